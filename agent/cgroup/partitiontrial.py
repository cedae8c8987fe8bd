"""Whether this kernel and this process can make cpuset partitions: found out by making one."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from agent.cgroup.backend import CgroupBackend, EnforcementError
from agent.cgroup.layout import ROOT, CgroupDir
from agent.cgroup.tree import CPUS, EXCLUSIVE, MEMBER, PARTITION, cpus_in
from agent.domain.idset import CpuSet

TRIAL: Final = CgroupDir("podnumalet.trial")
"""Like the cgroup of a pod that nobody knows, so that one a crash leaves behind goes as such a pod's does."""


def partition_obstacle(cgroups: CgroupBackend, free: CpuSet) -> str:
    """Why there can be no partition here; empty if there can. ``free`` are CPUs that no pod holds.

    For a moment one of them is kept from everybody else; partitions that are there stay. Where there is none
    to spare nothing is tried. Raises EnforcementError where the cgroups cannot be had at all.
    """
    missing = {EXCLUSIVE, PARTITION} - cgroups.offer().files
    if missing:
        return f"this kernel has no {' and no '.join(sorted(missing))} (Linux 6.7 and newer have it)"
    if len(free) < 2:
        return ""
    cgroups.enable(ROOT, ("cpuset",))
    _remove(cgroups)
    before = cpus_in(cgroups.read(ROOT, EXCLUSIVE)) - free
    cgroups.make(TRIAL)
    obstacle = _tried(cgroups, before, free)
    _remove(cgroups)
    cgroups.write(ROOT, EXCLUSIVE, str(before))
    return obstacle


def _tried(cgroups: CgroupBackend, before: CpuSet, free: CpuSet) -> str:
    """The kernel's reason for the lowest CPU if all fail: another program may claim some of them."""
    reason = ""
    for cpu in sorted(free, reverse=True):
        one = CpuSet.of([cpu])
        try:
            cgroups.write(TRIAL, CPUS, str(one))
            cgroups.write(ROOT, EXCLUSIVE, str(before | one))
            cgroups.write(TRIAL, EXCLUSIVE, str(one))
            cgroups.write(TRIAL, PARTITION, "root")
        except EnforcementError as error:
            reason = f"{error.message}: {error.hint}"
        else:
            return ""
    return reason


def _remove(cgroups: CgroupBackend) -> None:
    if cgroups.exists(TRIAL):
        with suppress(EnforcementError):  # not even that file may be there
            cgroups.write(TRIAL, PARTITION, MEMBER)
        cgroups.remove(TRIAL)
