"""Machines made up by tests: the sysfs files that a kernel would show for a `Topology`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from agent.domain.idset import CpuSet
from agent.domain.topology import CoreId, Cpu, CpuId, NodeId, NumaNode, SocketId, Topology, UncoreId

CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"
GIB = 1 << 30

Files = dict[str, str]


def mask(cpus: CpuSet) -> str:
    """The kernel's mask format, as cpumaps have it."""
    words = max(1, -(-cpus.bits.bit_length() // 32))
    return ",".join(f"{cpus.bits >> 32 * word & 0xFFFFFFFF:08x}" for word in reversed(range(words)))


def machine(*, sockets: int = 1, nodes: int = 1, cores: int = 2, threads: int = 2) -> Topology:
    """A regular machine: ``nodes`` a socket, ``cores`` a node, one L3 a node, siblings side by side."""
    per_node = cores * threads
    cpus = []
    for cpu in range(sockets * nodes * per_node):
        node = cpu // per_node
        cpus.append(
            Cpu(
                id=CpuId(cpu),
                core=CoreId(cpu - cpu % threads),
                socket=SocketId(node // nodes),
                node=NodeId(node),
                uncore=UncoreId(node * per_node),
            )
        )
    all_cpus = CpuSet.of(cpu.id for cpu in cpus)
    return Topology(
        cpus=tuple(cpus),
        nodes=tuple(
            NumaNode(
                id=NodeId(node),
                cpus=CpuSet.of(cpu.id for cpu in cpus if cpu.node == node),
                memory=4 * GIB,
                hugepages={2048: 8},
                distances=tuple(10 if node == other else 20 for other in range(sockets * nodes)),
            )
            for node in range(sockets * nodes)
        ),
        possible=all_cpus,
    )


def files_of(topology: Topology, *, masks: bool = False, end: str = "\n") -> Files:
    """The files of ``topology``, CPU sets as lists or as masks, each text ending in ``end``.

    Caches that don't go by their lowest CPU have an id.
    """
    files = _global_files(topology)
    for cpu in topology.cpus:
        files |= _cpu_files(topology, cpu, masks=masks)
    for node in topology.nodes:
        files |= _node_files(node, masks=masks)
    return {path: text + end for path, text in files.items()}


def _global_files(topology: Topology) -> Files:
    return {
        f"{CPU}/online": str(topology.online),
        f"{CPU}/offline": str(topology.offline),
        f"{CPU}/possible": str(topology.possible),
        f"{CPU}/isolated": str(topology.isolated),
        f"{NODE}/online": str(topology.all_nodes),
    }


def _cpu_files(topology: Topology, cpu: Cpu, *, masks: bool) -> Files:
    folder = f"{CPU}/cpu{cpu.id}"
    shown: Callable[[CpuSet], str] = mask if masks else str
    tail = "" if masks else "_list"
    files = {
        f"{folder}/topology/thread_siblings{tail}": shown(topology.cores[cpu.core]),
        f"{folder}/topology/core_id": "0",
        f"{folder}/topology/physical_package_id": str(cpu.socket),
        f"{folder}/topology/die_id": str(cpu.die or -1),
        f"{folder}/topology/cluster_id": str(cpu.cluster or 65535),
    }
    if cpu.id not in topology.cacheless:
        shared = "shared_cpu_map" if masks else "shared_cpu_list"
        if cpu.uncore != min(topology.uncores[cpu.uncore]):
            files[f"{folder}/cache/index3/id"] = str(cpu.uncore)
        files |= {
            f"{folder}/cache/index2/level": "2",
            f"{folder}/cache/index2/{shared}": shown(topology.cores[cpu.core]),
            f"{folder}/cache/index3/level": "3",
            f"{folder}/cache/index3/{shared}": shown(topology.uncores[cpu.uncore]),
        }
    if cpu.core_type:
        files[f"{folder}/cpu_capacity"] = cpu.core_type.removeprefix("capacity-")
    return files


def _node_files(node: NumaNode, *, masks: bool) -> Files:
    folder = f"{NODE}/node{node.id}"
    files = {
        f"{folder}/cpumap": mask(node.cpus),
        f"{folder}/meminfo": f"Node {node.id} MemTotal:  {node.memory // 1024} kB\nNode {node.id} MemFree: 0 kB",
        f"{folder}/distance": " ".join(map(str, node.distances)),
    }
    if not masks:
        files[f"{folder}/cpulist"] = str(node.cpus)
    for kib, pages in node.hugepages.items():
        files[f"{folder}/hugepages/hugepages-{kib}kB/nr_hugepages"] = str(pages)
    return files


def without(files: Mapping[str, str], *parts: str) -> Files:
    """``files`` without those whose path contains one of ``parts``."""
    return {path: text for path, text in files.items() if not any(part in path for part in parts)}


def texts(sets: Iterable[CpuSet]) -> list[str]:
    """The sets in list format, for comparing."""
    return [str(cpus) for cpus in sets]
