"""The machine: CPUs, cores, sockets, uncore caches and NUMA nodes, as the kernel reports them.

A core is a set of thread siblings, never a (package, core_id) pair: core_id repeats. Its id is
its lowest CPU. Unknown sockets are a `Topology` without guess: discovery says so in ``warnings``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import NewType, TypeVar

from agent.domain.idset import NO_CPUS, CpuSet, NodeMask
from agent.domain.pod import ResourceName

CpuId = NewType("CpuId", int)
CoreId = NewType("CoreId", int)
SocketId = NewType("SocketId", int)
UncoreId = NewType("UncoreId", int)
NodeId = NewType("NodeId", int)
K = TypeVar("K", bound=int)

NO_NODE = NodeId(-1)
"""The node of an online CPU that no online NUMA node lists (cpu0 of an offline node0)."""

_BINARY_SUFFIXES = ("", "Ki", "Mi", "Gi", "Ti")


@lru_cache(maxsize=64)
@lru_cache
def hugepages_resource(page_kib: int) -> ResourceName:
    """The resource name of a page size in KiB: 2048 -> ``hugepages-2Mi``."""
    size, suffix = page_kib, 1
    while size % 1024 == 0 and suffix < len(_BINARY_SUFFIXES) - 1:
        size //= 1024
        suffix += 1
    return ResourceName(f"hugepages-{size}{_BINARY_SUFFIXES[suffix]}")


@dataclass(frozen=True, slots=True)
class Cpu:
    """One online logical CPU and what it belongs to.

    ``uncore`` identifies the last-level (L3) cache; where the kernel reports none it is the socket.
    """

    id: CpuId
    core: CoreId
    socket: SocketId
    node: NodeId
    uncore: UncoreId
    die: int = 0
    cluster: int = 0
    core_type: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NumaNode:
    """One online NUMA node; ``memory`` in bytes, ``hugepages`` pages by page size in KiB.

    ``distances[k]`` is the ACPI SLIT distance to the k-th online node, nodes in ascending id.
    """

    id: NodeId
    cpus: CpuSet = NO_CPUS
    memory: int = 0
    hugepages: Mapping[int, int] = field(default_factory=dict)
    distances: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Topology:
    """The machine at one moment. ``cpus`` and ``nodes`` ascend by id.

    ``cacheless`` are the online CPUs whose ``uncore`` is no real cache but their socket.
    Not slotted: the derived tables below are computed once, on first use.
    """

    cpus: tuple[Cpu, ...]
    nodes: tuple[NumaNode, ...]
    offline: CpuSet = NO_CPUS
    possible: CpuSet = NO_CPUS
    isolated: CpuSet = NO_CPUS
    cacheless: CpuSet = NO_CPUS
    warnings: tuple[str, ...] = ()

    @cached_property
    def online(self) -> CpuSet:
        """All online CPUs."""
        return CpuSet.of(cpu.id for cpu in self.cpus)

    @cached_property
    def by_id(self) -> Mapping[CpuId, Cpu]:
        """The CPUs by id."""
        return {cpu.id: cpu for cpu in self.cpus}

    @cached_property
    def cores(self) -> Mapping[CoreId, CpuSet]:
        """Thread siblings by core, ascending."""
        return _grouped((cpu.core, cpu.id) for cpu in self.cpus)

    @cached_property
    def sockets(self) -> Mapping[SocketId, CpuSet]:
        """CPUs by socket, ascending."""
        return _grouped((cpu.socket, cpu.id) for cpu in self.cpus)

    @cached_property
    def uncores(self) -> Mapping[UncoreId, CpuSet]:
        """CPUs by uncore cache, ascending."""
        return _grouped((cpu.uncore, cpu.id) for cpu in self.cpus)

    @cached_property
    def node_cpus(self) -> Mapping[NodeId, CpuSet]:
        """Online CPUs by NUMA node, ascending; memory-only nodes are left out."""
        return _grouped((cpu.node, cpu.id) for cpu in self.cpus)

    @cached_property
    def cpu_nodes(self) -> NodeMask:
        """The NUMA nodes that have online CPUs."""
        return NodeMask.of(node for node in self.node_cpus if node != NO_NODE)

    @cached_property
    def all_nodes(self) -> NodeMask:
        """All online NUMA nodes."""
        return NodeMask.of(node.id for node in self.nodes)

    @cached_property
    def memory_nodes(self) -> NodeMask:
        """The online NUMA nodes with memory; all of them where no size is known."""
        return NodeMask.of(node.id for node in self.nodes if node.memory) or self.all_nodes

    @cached_property
    def threads_per_core(self) -> int:
        """CPUs divided by cores, rounded down, as the kubelet computes it; at least 1."""
        return max(1, len(self.cpus) // max(1, len(self.cores)))

    def cpus_of_nodes(self, mask: NodeMask) -> CpuSet:
        """The online CPUs of the NUMA nodes in ``mask``."""
        bits = 0
        for node in mask:
            bits |= self.node_cpus.get(NodeId(node), NO_CPUS).bits
        return CpuSet(bits)

    def siblings(self, cpus: CpuSet) -> CpuSet:
        """``cpus`` and all their thread siblings."""
        bits = 0
        for cpu in cpus:
            bits |= self.cores[self.by_id[CpuId(cpu)].core].bits
        return CpuSet(bits)


def _grouped(pairs: Iterable[tuple[K, CpuId]]) -> Mapping[K, CpuSet]:
    bits: dict[K, int] = {}
    for key, cpu in pairs:
        bits[key] = bits.get(key, 0) | 1 << cpu
    return {key: CpuSet(bits[key]) for key in sorted(bits)}
