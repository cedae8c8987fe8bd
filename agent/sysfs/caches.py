"""Uncore caches: the groups of CPUs that share a last-level (L3) cache.

A cache is the set of CPUs that share it, not its ``id``: the id is missing on many Arm machines,
and a cache may span NUMA nodes (sub-NUMA clustering) or sockets (virtual machines). The id only
names the set, for the order in which caches are tried is the order of their ids (KEP-4800).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from agent.domain.idset import CpuSet
from agent.sysfs.probe import SYS_CPU, Probe, partition
from agent.sysfs.reader import ABSENT, Absent

UNCORE_LEVEL: Final = 3


def uncore_caches(
    probe: Probe, online: CpuSet, socket_of: Mapping[int, int]
) -> tuple[Mapping[int, int], CpuSet]:
    """The uncore cache of each CPU, and the CPUs that have none.

    For those their socket stands: its id, counted on from the last cache so that none is mistaken
    for a cache. A cache goes by the kernel's id or, unless all have one of their own, its lowest CPU.
    """
    folders = {cpu: folder for cpu in online if (folder := _l3_folder(probe, cpu)) is not ABSENT}
    shared: dict[int, int] = {}
    for cpu, folder in folders.items():
        bits = probe.shared(folder, "shared_cpu_list", "shared_cpu_map")
        if bits is not ABSENT:
            shared[cpu] = bits
    lowest, disputed = partition(shared, online.bits)
    if disputed:
        probe.findings.note(
            "CPU {ids}: contradictory L3 caches, the lowest CPU of each cache is believed", disputed
        )
    names = _names(probe, {cpu: folders[cpu] for cpu in lowest.values()})
    cacheless = CpuSet.of(cpu for cpu in online if cpu not in lowest)
    if cacheless:
        probe.findings.note("CPU {ids}: no L3 cache reported, the socket stands for it", cacheless.bits)
    beyond = max(names.values(), default=-1) + 1
    uncore = {cpu: names[first] for cpu, first in lowest.items()}
    return uncore | {cpu: beyond + socket_of[cpu] for cpu in cacheless}, cacheless


def _l3_folder(probe: Probe, cpu: int) -> str | Absent:
    folder = f"{SYS_CPU}/cpu{cpu}/cache"
    # From the last index down: the L3 is nearly always the last one, which saves the other reads.
    for index in reversed(probe.numbered(folder, "index")):
        if probe.number(f"{folder}/index{index}/level") == UNCORE_LEVEL:
            return f"{folder}/index{index}"
    return ABSENT


def _names(probe: Probe, folders: Mapping[int, str]) -> Mapping[int, int]:
    """The names of the caches by their lowest CPU."""
    read = {cpu: probe.number(f"{folder}/id") for cpu, folder in folders.items()}
    ids = {cpu: found for cpu, found in read.items() if found is not ABSENT and found >= 0}
    return ids if len(set(ids.values())) == len(folders) else {cpu: cpu for cpu in folders}
