"""Machines made by numbers: sockets, NUMA nodes, cores and threads, all alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from agent.domain.idset import CpuSet
from agent.domain.topology import CoreId, Cpu, CpuId, NodeId, NumaNode, SocketId, Topology, UncoreId

SELF, SOCKET, FAR = 10, 12, 20
"""ACPI SLIT distances: to itself, within a socket, to another."""
MOST_CPUS: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """``numa_nodes`` a socket, ``cores`` a NUMA node, ``threads`` a core; memory and huge pages a NUMA node.

    ``memory`` in bytes, ``hugepages`` pages by page size in KiB.
    """

    sockets: int
    numa_nodes: int
    cores: int
    threads: int
    memory: int
    hugepages: Mapping[int, int] = field(default_factory=dict)


def made(numbers: Numbers) -> Topology:
    """A machine with its CPUs numbered as x86 firmware does: all first threads, then all second ones."""
    nodes = numbers.sockets * numbers.numa_nodes
    cores = nodes * numbers.cores
    cpus = tuple(
        Cpu(
            id=CpuId(cpu),
            core=CoreId(cpu % cores),
            socket=SocketId(node // numbers.numa_nodes),
            node=NodeId(node),
            uncore=UncoreId(node),
        )
        for cpu in range(cores * numbers.threads)
        for node in (cpu % cores // numbers.cores,)
    )
    return Topology(
        cpus=cpus,
        nodes=tuple(
            NumaNode(
                id=NodeId(node),
                cpus=CpuSet.of(cpu.id for cpu in cpus if cpu.node == node),
                memory=numbers.memory,
                hugepages=numbers.hugepages,
                distances=tuple(_distance(node, other, numbers.numa_nodes) for other in range(nodes)),
            )
            for node in range(nodes)
        ),
        possible=CpuSet.of(cpu.id for cpu in cpus),
    )


def _distance(one: int, other: int, of_socket: int) -> int:
    if one == other:
        return SELF
    return SOCKET if one // of_socket == other // of_socket else FAR
