"""Cpuset partitions as the kernel shows them, and what they do to the CPUs of the cgroups above.

``cpuset.cpus.partition`` is ``member`` for an ordinary cgroup, ``root`` or ``isolated`` for a partition, and
``root invalid (REASON)`` for one that the kernel was asked for and that does not hold (cgroup-v2.rst).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from agent.cgroup.layout import CgroupDir
from agent.cgroup.tree import (
    CPUS,
    CPUS_EFFECTIVE,
    EFFECTIVE,
    EXCLUSIVE,
    MEMBER,
    PARTITION,
    Observed,
    Setting,
    Wanted,
    cpus_in,
)
from agent.domain.idset import NO_CPUS, CpuSet

_INVALID: Final = " invalid"
_UNUSED: Final[Mapping[str, str]] = {EXCLUSIVE: "", PARTITION: MEMBER}


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A cgroup of somebody else's with CPUs of its own; ``kind`` as cpuset.cpus.partition has it."""

    path: str
    kind: str
    cpus: CpuSet

    def __str__(self) -> str:
        held = "is bound to CPUs of its own" if self.kind == MEMBER else f"is a partition ({self.kind})"
        return f"{held}: {self.cpus}"


def unpartitioned(wanted: Wanted, observed: Observed) -> Wanted:
    """``wanted``, and said of each cgroup that is there and to be no partition: that it is none."""
    more = {directory: _left(wanted, observed, directory) for directory in wanted.dirs}
    if not any(more.values()):
        return wanted
    dirs = {
        directory: replace(one, settings={**one.settings, **more[directory]})
        for directory, one in wanted.dirs.items()
    }
    return replace(wanted, dirs=dirs)


def _left(wanted: Wanted, observed: Observed, directory: CgroupDir) -> Mapping[str, Setting]:
    if directory not in observed.dirs:
        return {}
    settings, files = wanted.dirs[directory].settings, observed.dirs[directory].files
    return {
        file: Setting(text)
        for file, text in _UNUSED.items()
        if file not in settings and files.get(file, text) != text
    }


def is_invalid(files: Mapping[str, str]) -> bool:
    """Whether the cgroup with these files was to be a partition and is none."""
    return _INVALID in files.get(PARTITION, MEMBER)


def is_partition(files: Mapping[str, str]) -> bool:
    """Whether the kernel shows the cgroup with these files as a valid partition."""
    return files.get(PARTITION, MEMBER) != MEMBER and not is_invalid(files)


def granted(files: Mapping[str, str]) -> CpuSet:
    """The CPUs that the cgroup and those below it have: also those that partitions below have cut out of it.

    Where these are all of its own, what the kernel shows as effective is its parent's.
    """
    effective, asked = cpus_in(files.get(CPUS_EFFECTIVE, "")), cpus_in(files.get(CPUS, ""))
    handed_down = NO_CPUS if is_partition(files) else cpus_in(files.get(EXCLUSIVE, ""))
    if not handed_down:
        return effective
    return (effective | handed_down) & asked if asked else effective | handed_down


def is_granted(file: str, asked: str, files: Mapping[str, str]) -> bool:
    """Whether the kernel gives a cgroup all of ``asked`` in ``file``, one of `EFFECTIVE`: itself or what is below it."""
    given = granted(files) if file == CPUS else cpus_in(files.get(EFFECTIVE[file], ""))
    return given == cpus_in(asked)
