"""Which cgroups of others have CPUs of their own: they may stand in the way of ours."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from agent.cgroup.backend import READ_BACK, SUBTREE_CONTROL, EnforcementError
from agent.cgroup.partition import Claim
from agent.cgroup.preflight import mount_of
from agent.cgroup.tree import CPUS, EXCLUSIVE, MEMBER, PARTITION, cpus_in
from agent.domain.idset import CpuSet

_FOR_OTHERS: Final = ("EINVAL", READ_BACK)


def claims(mount: Path, own: Path) -> Iterator[Claim]:
    """Every cgroup with CPUs of its own below ``mount``, but for ``own``, what is below it, and systemd's slices.

    Those slices bound what is below them; that is no claim, unless they are partitions.
    """
    return (
        one for one in _bounded(mount, own) if one.kind != MEMBER or not _is_slice_of(mount, Path(one.path))
    )


def blamed(error: EnforcementError, own: Path, cpus: Callable[[], str]) -> EnforcementError:
    """``error`` of a cgroup below ``own``; if it may be because of CPUs that others have, these are named.

    ``cpus`` lists those of the cgroup. Only a partition takes CPUs away from others; to make one, no other
    cgroup may claim them at all, nor be one at the top with no other CPUs (cgroup-v2.rst,
    cpuset.cpus.exclusive).
    """
    if error.code not in _FOR_OTHERS or error.file not in {CPUS, EXCLUSIVE, PARTITION}:
        return error
    wanted, mount = cpus_in(cpus() if error.file == PARTITION else error.value), mount_of(own)
    in_the_way = [
        f"{one.path} {one}" for one in _bounded(mount, own) if _is_in_the_way(one, wanted, error.file, mount)
    ]
    return error.because("; ".join(in_the_way)) if in_the_way else error


def _is_in_the_way(claim: Claim, wanted: CpuSet, file: str, mount: Path) -> bool:
    if claim.kind != MEMBER:
        return not claim.cpus.isdisjoint(wanted)
    if file == CPUS:
        return False
    return (
        claim.cpus <= wanted if _is_slice_of(mount, Path(claim.path)) else not claim.cpus.isdisjoint(wanted)
    )


def _bounded(mount: Path, own: Path) -> Iterator[Claim]:
    for directory, below, files in os.walk(mount):
        path = Path(directory)
        below[:] = sorted(name for name in below if path / name != own)
        if "cpuset" not in _text(path / SUBTREE_CONTROL).split():
            below.clear()
        if path == mount or CPUS not in files:
            continue
        claimed = cpus_in(_text(path / CPUS)) | cpus_in(_text(path / EXCLUSIVE))
        if claimed:
            yield Claim(path=str(path), kind=_text(path / PARTITION) or MEMBER, cpus=claimed)


def _text(file: Path) -> str:
    with suppress(OSError):
        return file.read_text().strip()
    return ""


def _is_slice_of(mount: Path, path: Path) -> bool:
    """Whether it is one of systemd's at the top."""
    return path.parent == mount and (path.suffix == ".slice" or path.name == "init.scope")
