"""Any machine: the recorded ones, and generated ones with every irregularity hardware has."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from hypothesis import strategies as st

from agent.domain.idset import CpuSet
from agent.domain.topology import CoreId, Cpu, CpuId, NodeId, NumaNode, SocketId, Topology, UncoreId
from tests.sysfs.machines import NAMES, discovered

GIB: Final = 1 << 30
MANY_NODES: Final = {"256ia64-64n2s2c", "fakecpuid1f-64intel64-2p4d2n2c2t"}
"""Their hint searches take too long for hundreds of examples: see test_many_nodes."""

RECORDED: Final = [name for name in NAMES if name not in MANY_NODES]


def machines() -> st.SearchStrategy[Topology]:
    return generated() | st.sampled_from(RECORDED).map(lambda name: with_memory(discovered(name)))


def with_memory(topology: Topology) -> Topology:
    """Some recordings have no meminfo: their nodes get memory, unequal on purpose."""
    if any(node.memory for node in topology.nodes):
        return topology
    nodes = (replace(node, memory=(4 + place % 3) * GIB) for place, node in enumerate(topology.nodes))
    return replace(topology, nodes=tuple(nodes))


def with_online(topology: Topology, online: CpuSet) -> Topology:
    """The machine with only these CPUs online; a core is called by its lowest online CPU."""
    siblings = {cpu.id: topology.cores[cpu.core] & online for cpu in topology.cpus}
    cpus = tuple(
        replace(cpu, core=CoreId(min(siblings[cpu.id]))) for cpu in topology.cpus if cpu.id in online
    )
    nodes = tuple(replace(node, cpus=node.cpus & online) for node in topology.nodes)
    return replace(topology, cpus=cpus, nodes=nodes)


@st.composite
def generated(draw: st.DrawFn) -> Topology:
    """2 to 48 CPUs: unequal cores and nodes, holes in all ids, offline CPUs, memory-only nodes."""
    threads = draw(st.sampled_from([1, 2, 2, 4, 8]))
    sockets, nodes_each = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    cores_each = draw(st.integers(2, max(2, min(6, 48 // (threads * sockets * nodes_each)))))
    nodes = sockets * nodes_each
    cores = nodes * cores_each
    single_thread = draw(st.frozensets(st.integers(0, cores - 1), max_size=3))
    uncores_each = draw(st.sampled_from([1, 2, cores_each]))
    adjacent, first, step = draw(st.booleans()), draw(st.sampled_from([0, 1, 5])), draw(st.integers(1, 3))
    node_ids = sorted(draw(st.sets(st.integers(0, 9), min_size=nodes + 2, max_size=nodes + 2)))
    cpus = []
    for core in range(cores):
        for thread in range(1 if core in single_thread else threads):
            place = core * threads + thread if adjacent else thread * cores + core
            node = core // cores_each
            cpus.append(
                Cpu(
                    id=CpuId(first + step * place),
                    core=CoreId(first + step * (core * threads if adjacent else core)),
                    socket=SocketId(node // nodes_each),
                    node=NodeId(node_ids[node]),
                    uncore=UncoreId(core * uncores_each // cores_each),
                )
            )
    cpus.sort(key=lambda cpu: cpu.id)
    memory_only = draw(st.integers(0, 2))
    memories = draw(st.lists(st.integers(1, 4), min_size=nodes + 2, max_size=nodes + 2))
    pages = draw(st.sampled_from([{}, {2048: 64}, {2048: 256, 1048576: 1}]))
    ids = node_ids[: nodes + memory_only]
    spread = draw(st.integers(1, 7))
    topology = Topology(
        cpus=tuple(cpus),
        nodes=tuple(
            NumaNode(
                id=NodeId(node),
                cpus=CpuSet.of(cpu.id for cpu in cpus if cpu.node == node),
                memory=(1 + memories[place]) * GIB,
                hugepages=pages if place % 2 == 0 else dict.fromkeys(pages, 0),
                distances=tuple(10 if node == other else 11 + (node + other) * spread % 30 for other in ids),
            )
            for place, node in enumerate(ids)
        ),
    )
    most = len(cpus) - 2
    gone = draw(st.frozensets(st.sampled_from([cpu.id for cpu in cpus]), max_size=min(3, max(0, most))))
    return with_online(topology, topology.online - CpuSet.of(gone))
