"""CPUs: which are there, and their cores, sockets, dies, clusters and core types.

The files are those of https://docs.kernel.org/admin-guide/cputopology.html. A core is its thread
siblings: core_id repeats from socket to socket, from cluster to cluster and from book to book.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from agent.domain.idset import NO_CPUS, CpuSet, iter_bits
from agent.domain.topology import NO_NODE
from agent.errors import HostError
from agent.sysfs.probe import SYS_CPU, Probe, partition
from agent.sysfs.reader import ABSENT

HYBRID_DEVICES: Final = ("cpu_core", "cpu_atom", "cpu_lowpower")
"""Intel's performance monitoring units, one a core type: ``/sys/devices/<device>/cpus``."""

_UNKNOWN_IDS: Final = (-1, 65_535)
"""Ids of a die or cluster that the firmware does not describe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Presence:
    """Which CPUs there are; ``online`` is never empty."""

    online: CpuSet
    offline: CpuSet
    possible: CpuSet
    isolated: CpuSet


def presence(probe: Probe) -> Presence:
    """Find the CPUs. Raises HostError if nothing under the root names a single one."""
    online = _online(probe)
    possible = online | _listed(probe, "possible", CpuSet.of(probe.numbered(SYS_CPU, "cpu")))
    return Presence(
        online=online,
        offline=_listed(probe, "offline", possible) - online,
        possible=possible,
        isolated=_listed(probe, "isolated", NO_CPUS),
    )


def _listed(probe: Probe, name: str, default: CpuSet) -> CpuSet:
    bits = probe.ids(f"{SYS_CPU}/{name}")
    return default if bits is ABSENT else CpuSet(bits)


def _online(probe: Probe) -> CpuSet:
    online = _listed(probe, "online", NO_CPUS)
    if online:
        return online
    online = CpuSet.of(cpu for cpu in probe.numbered(SYS_CPU, "cpu") if _is_online(probe, cpu))
    if online:
        return online
    online = probe.cpus_in_stat()
    if online:
        probe.findings.note("sysfs lists no CPU, the online ones are taken from proc/stat")
        return online
    raise HostError(f"no CPU found: neither {SYS_CPU} nor proc/stat lists one", hint="is /sys mounted?")


def _is_online(probe: Probe, cpu: int) -> bool:
    """A CPU that cannot go offline has no ``online`` file."""
    return probe.number(f"{SYS_CPU}/cpu{cpu}/online") in (1, ABSENT)


def cores(probe: Probe, online: CpuSet) -> Mapping[int, int]:
    """The core of each CPU: its lowest online thread sibling."""
    shared: dict[int, int] = {}
    for cpu in online:
        # core_cpus is the name since kernel 5.3, thread_siblings the one before.
        bits = probe.shared(
            f"{SYS_CPU}/cpu{cpu}/topology",
            "core_cpus_list",
            "thread_siblings_list",
            "core_cpus",
            "thread_siblings",
        )
        if bits is not ABSENT:
            shared[cpu] = bits
    core, disputed = partition(shared, online.bits)
    alone = [cpu for cpu in online if cpu not in core]
    for cpu in alone:
        probe.findings.note(
            "CPU {ids}: no thread siblings reported, each counts as a core of its own", 1 << cpu
        )
    if disputed:
        probe.findings.note(
            "CPU {ids}: contradictory thread siblings, the lowest CPU of each core is believed", disputed
        )
    return core | {cpu: cpu for cpu in alone}


def sockets(probe: Probe, online: CpuSet, node_of: Mapping[int, int]) -> Mapping[int, int]:
    """The socket of each CPU: its package id, or a pseudo-socket above all of them.

    A package id of -1 is the kernel's word for "unknown". Such CPUs make one pseudo-socket per
    NUMA node; if no CPU reports a package at all, the whole machine is one socket.
    """
    reported = {cpu: probe.number(f"{SYS_CPU}/cpu{cpu}/topology/physical_package_id") for cpu in online}
    if all(package is ABSENT for package in reported.values()):
        probe.findings.note("no CPU reports its socket, the whole machine counts as one")
        return dict.fromkeys(online, 0)
    known = {cpu: package for cpu, package in reported.items() if package is not ABSENT and package >= 0}
    first_free = max(known.values(), default=-1) + 1
    beyond = max(node_of.values(), default=NO_NODE) + 1
    pseudo: dict[int, int] = {}
    for cpu in online:
        if cpu not in known:
            node = node_of[cpu]
            pseudo[cpu] = first_free + (beyond if node == NO_NODE else node)
            probe.findings.note(
                "CPU {ids}: socket unknown, each NUMA node they are on counts as a socket", 1 << cpu
            )
    return known | pseudo


def part(probe: Probe, cpu: int, name: str) -> int:
    """A CPU's ``die_id`` or ``cluster_id``; 0, the only one of its socket, if there is none."""
    found = probe.number(f"{SYS_CPU}/cpu{cpu}/topology/{name}")
    return 0 if found is ABSENT or found in _UNKNOWN_IDS else found


def core_types(probe: Probe, online: CpuSet) -> Mapping[int, str]:
    """The core type of each CPU of a hybrid machine; CPUs of a uniform machine have none.

    Named after the kernel's device (``cpu_core``, ``cpu_atom``) or, on Arm and RISC-V, after the CPU's
    relative capacity (``capacity-1024``). Absent files mean uniform: that is the common case.
    """
    types: dict[int, str] = {}
    for name in HYBRID_DEVICES:
        bits = probe.ids(f"sys/devices/{name}/cpus")
        if bits is not ABSENT:
            types.update(dict.fromkeys(iter_bits(bits & online.bits), name))
    types = types or _capacities(probe, online)
    return {} if len({types.get(cpu) for cpu in online}) == 1 else types


def _capacities(probe: Probe, online: CpuSet) -> dict[int, str]:
    read = {cpu: probe.number(f"{SYS_CPU}/cpu{cpu}/cpu_capacity") for cpu in online}
    return {cpu: f"capacity-{capacity}" for cpu, capacity in read.items() if capacity is not ABSENT}
