"""NUMA nodes: CPUs, memory, huge pages and distances.

The files are those of Documentation/ABI/stable/sysfs-devices-node. Nodes may have memory but no
CPUs, CPUs but no memory, and list CPUs that do not exist.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent.domain.idset import CpuSet, iter_bits
from agent.domain.topology import NO_NODE, NodeId, NumaNode
from agent.sysfs.probe import SYS_NODE, Probe
from agent.sysfs.reader import ABSENT


def numa_nodes(probe: Probe, online: CpuSet) -> tuple[NumaNode, ...]:
    """The online nodes, ascending; a machine without any is one node 0 with all it has."""
    ids = _online_nodes(probe)
    if not ids:
        probe.findings.note("the kernel reports no NUMA nodes, the whole machine counts as node 0")
        return (_whole_machine(probe, online),)
    cpus = _cpus_of(probe, ids, online)
    return tuple(
        NumaNode(
            id=NodeId(node),
            cpus=cpus[node],
            memory=_memory(probe, node, ids),
            hugepages=_hugepages(probe, f"{SYS_NODE}/node{node}/hugepages"),
            distances=_distances(probe, node, ids),
        )
        for node in ids
    )


def nodes_of_cpus(probe: Probe, nodes: Sequence[NumaNode], online: CpuSet) -> Mapping[int, NodeId]:
    """The node of each online CPU, `NO_NODE` for those that no online node lists."""
    node_of = dict.fromkeys(online, NO_NODE)
    for node in nodes:
        node_of.update(dict.fromkeys(node.cpus, node.id))
    for cpu, node_id in node_of.items():
        if node_id == NO_NODE:
            probe.findings.note("CPU {ids}: on no online NUMA node, so never NUMA-aligned", 1 << cpu)
    return node_of


def _online_nodes(probe: Probe) -> Sequence[int]:
    bits = probe.ids(f"{SYS_NODE}/online")
    if bits is not ABSENT and bits:
        return tuple(iter_bits(bits))
    return probe.numbered(SYS_NODE, "node")


def _whole_machine(probe: Probe, online: CpuSet) -> NumaNode:
    memory = probe.memory("proc/meminfo")
    if memory is ABSENT:
        probe.findings.note("the size of the memory is unknown and counts as none")
        memory = 0
    return NumaNode(
        id=NodeId(0), cpus=online, memory=memory, hugepages=_hugepages(probe, "sys/kernel/mm/hugepages")
    )


def _cpus_of(probe: Probe, ids: Sequence[int], online: CpuSet) -> Mapping[int, CpuSet]:
    cpus: dict[int, CpuSet] = {}
    free = online
    for node in ids:
        bits = probe.shared(f"{SYS_NODE}/node{node}", "cpulist", "cpumap")
        if bits is ABSENT:
            probe.findings.note("NUMA node {ids}: CPUs unknown, counts as having none", 1 << node)
            bits = 0
        listed = CpuSet(bits) & online
        cpus[node] = listed & free
        free -= listed
        if listed != cpus[node]:
            twice = (listed - cpus[node]).bits
            probe.findings.note("CPU {ids}: on several NUMA nodes, the lowest counts", twice)
    return cpus


def _memory(probe: Probe, node: int, ids: Sequence[int]) -> int:
    memory = probe.memory(f"{SYS_NODE}/node{node}/meminfo")
    if memory is ABSENT and len(ids) == 1:
        memory = probe.memory("proc/meminfo")
    if memory is ABSENT:
        probe.findings.note("NUMA node {ids}: size of the memory unknown, counts as none", 1 << node)
        return 0
    return memory


def _hugepages(probe: Probe, folder: str) -> Mapping[int, int]:
    pages: dict[int, int] = {}
    for size in probe.numbered(folder, "hugepages-", "kB"):
        count = probe.number(f"{folder}/hugepages-{size}kB/nr_hugepages")
        if count is not ABSENT:
            pages[size] = count
    return pages


def _distances(probe: Probe, node: int, ids: Sequence[int]) -> tuple[int, ...]:
    """Column k belongs to the k-th online node, whatever its id."""
    distances = probe.numbers(f"{SYS_NODE}/node{node}/distance")
    if distances is ABSENT:
        if len(ids) > 1:
            probe.findings.note("NUMA node {ids}: distances unknown", 1 << node)
        return ()
    if len(distances) != len(ids):
        probe.findings.note(
            "NUMA node {ids}: the number of distances is not that of the online nodes, so they don't count",
            1 << node,
        )
        return ()
    return distances
