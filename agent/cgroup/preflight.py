"""Can this host enforce anything at a given cgroup root? Looks, and writes nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from agent.cgroup.backend import PROCS, SUBTREE_CONTROL, Problem
from agent.cgroup.tree import REQUIRED_CONTROLLERS
from agent.errors import HostError

_CONTROLLERS: Final = "cgroup.controllers"
_TYPE: Final = "cgroup.type"
_NO_V2: Final = "no cgroup v2 hierarchy is mounted at or above {}"
_NO_V2_REMEDY: Final = "boot with systemd.unified_cgroup_hierarchy=1, or mount cgroup2 at /sys/fs/cgroup"
_NOT_WRITABLE_REMEDY: Final = "run as root on a writable cgroup mount, or let systemd delegate: Delegate=yes"


def mount_of(root: Path) -> Path:
    """The root of the cgroup v2 hierarchy that ``root`` is in; raises HostError if there is none."""
    found = [path for path in (root, *root.parents) if (path / _CONTROLLERS).is_file()]
    if not found:
        raise HostError(_NO_V2.format(root), hint=_NO_V2_REMEDY)
    return found[-1]


def preflight(root: Path) -> tuple[Problem, ...]:
    """Every problem of enforcing at ``root``, with its remedy; none means go ahead."""
    try:
        mount = mount_of(root)
    except HostError as error:
        return (Problem(error.message, error.hint),)
    if root == mount:
        text = f"{root} is the top of the hierarchy, which has no limits of its own"
        return (Problem(text, f"use a cgroup below it, e.g. {root}/numalet"),)
    return tuple(_problems(mount, root))


def require(problems: Sequence[Problem]) -> None:
    """Raise HostError with every blocking problem and its remedy, if there is one."""
    blocking = [problem for problem in problems if problem.blocking]
    if blocking:
        raise HostError(
            "; ".join(problem.text for problem in blocking),
            hint="; ".join(problem.remedy for problem in blocking),
        )


def _problems(mount: Path, root: Path) -> Iterator[Problem]:
    line = [path for path in (*reversed(root.parents), root) if path.is_relative_to(mount) and path.is_dir()]
    offered = _words(mount / _CONTROLLERS)
    for name in REQUIRED_CONTROLLERS:
        if name not in offered:
            text = f"the kernel does not offer the {name} controller on cgroup v2 (at {mount})"
            yield Problem(text, f"unmount cgroup v1's {name}, and remove cgroup_disable={name} at boot")
    for cgroup in line:
        yield from _cgroup_problems(cgroup, mount, root, offered)
    if line[-1] != root and not os.access(line[-1], os.W_OK):
        yield Problem(f"{root} cannot be made: {line[-1]} is not writable", _NOT_WRITABLE_REMEDY)


def _cgroup_problems(cgroup: Path, mount: Path, root: Path, offered: set[str]) -> Iterator[Problem]:
    missing = [
        name
        for name in REQUIRED_CONTROLLERS
        if name in offered and name not in _words(cgroup / SUBTREE_CONTROL)
    ]
    kind = " ".join(sorted(_words(cgroup / _TYPE)))
    if cgroup != mount and kind != "domain":
        text = f"{cgroup} is of type {kind!r}: the memory controller does not work there"
        yield Problem(text, "choose a cgroup root without threaded cgroups above it")
    if not os.access(cgroup / SUBTREE_CONTROL, os.W_OK) and (missing or cgroup == root):
        text = f"{cgroup}/{SUBTREE_CONTROL} is not writable"
        yield Problem(text, _NOT_WRITABLE_REMEDY)
    if cgroup != mount and missing and _words(cgroup / PROCS):
        text = f"{cgroup} holds processes, so it cannot pass on {', '.join(missing)} (no internal processes)"
        yield Problem(
            text, "move them into a child cgroup; in systemd 254 and newer DelegateSubgroup= does it"
        )
    if cgroup != root and "cpuset" in missing:
        text = f"enabling cpuset in {cgroup} resets CPUAffinity= of what already runs below it"
        yield Problem(
            text, "restart units that use CPUAffinity= afterwards, or use AllowedCPUs=", blocking=False
        )


def _words(path: Path) -> set[str]:
    try:
        return set(path.read_text().split())
    except OSError:
        return set()
