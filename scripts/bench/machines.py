"""Made-up machines and pods to decide about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from agent.admission import Admitted, Managers, admit, new_managers, restore
from agent.domain.idset import CpuSet
from agent.domain.pod import (
    CPU,
    MEMORY,
    NO_RESOURCES,
    Container,
    ContainerKind,
    Pod,
    PodUid,
    ResourceName,
    Resources,
)
from agent.domain.quantity import Quantity
from agent.domain.settings import CpuPolicy, MemoryPolicy, Settings, TopologyPolicy, TopologyScope
from agent.domain.state import NodeState
from agent.domain.topology import CoreId, Cpu, CpuId, NodeId, NumaNode, SocketId, Topology, UncoreId

GIB: Final = 1 << 30
HUGE_2M: Final = ResourceName("hugepages-2Mi")
HUGE_1G: Final = ResourceName("hugepages-1Gi")
THREADS: Final = 2
NODE_GIB: Final = 256
NODE_HUGE_GIB: Final = 64
"""GiB of each huge page size on a node that has some."""


def machine(
    *, sockets: int, nodes: int, cpus: int, memory_only: int = 0, hugepages: bool = False
) -> Topology:
    """``nodes`` NUMA nodes with ``cpus`` CPUs in all, two threads a core, then nodes with memory only."""
    per_node, cores = cpus // nodes, cpus // THREADS
    pages = {2048: NODE_HUGE_GIB * GIB >> 21, 1 << 20: NODE_HUGE_GIB} if hugepages else {}
    online = tuple(
        Cpu(
            id=CpuId(cpu),
            core=CoreId(cpu % cores),
            socket=SocketId(node * sockets // nodes),
            node=NodeId(node),
            uncore=UncoreId(node),
        )
        for cpu in range(cpus)
        for node in (cpu % cores * THREADS // per_node,)
    )
    count = nodes + memory_only
    return Topology(
        cpus=online,
        nodes=tuple(
            NumaNode(
                id=NodeId(node),
                cpus=CpuSet.of(cpu.id for cpu in online if cpu.node == node),
                memory=NODE_GIB * GIB,
                hugepages=pages,
                distances=tuple(10 + 2 * abs(node - other) for other in range(count)),
            )
            for node in range(count)
        ),
        possible=CpuSet.of(cpu.id for cpu in online),
    )


def settings(
    policy: TopologyPolicy = TopologyPolicy.RESTRICTED,
    scope: TopologyScope = TopologyScope.POD,
    cpu_options: Mapping[str, str] | None = None,
) -> Settings:
    """Both static policies; 2 CPUs and 1 GiB of node 0 are reserved."""
    reserved = {CPU: Quantity.whole(2), MEMORY: Quantity.bytes(GIB)}
    return Settings(
        cpu_policy=CpuPolicy.STATIC,
        cpu_options=cpu_options or {},
        node_reserved=reserved,
        memory_policy=MemoryPolicy.STATIC,
        reserved_memory={NodeId(0): {MEMORY: reserved[MEMORY]}},
        topology_policy=policy,
        topology_scope=scope,
    )


def amounts(cpus: int, gib: float, huge_gib: int = 0) -> Resources:
    """Requests equal to limits; ``huge_gib`` of either huge page size."""
    stated = {CPU: Quantity.whole(cpus), MEMORY: Quantity.bytes(int(gib * GIB))}
    if huge_gib:
        stated |= dict.fromkeys((HUGE_2M, HUGE_1G), Quantity.bytes(huge_gib * GIB))
    return Resources(requests=stated, limits=stated)


def app(name: str, resources: Resources = NO_RESOURCES) -> Container:
    """An app container."""
    return Container(name=name, resources=resources)


def pod(name: str, *containers: Container, budget: Resources = NO_RESOURCES) -> Pod:
    """A pod; with ``budget`` it has pod-level resources."""
    return Pod(
        name=name, namespace="bench", uid=PodUid(f"uid-{name}"), containers=containers, resources=budget
    )


def four_containers(*, pod_level: bool) -> Pod:
    """A sidecar, two exclusive containers and a helper, 12 CPUs; the helper shares if ``pod_level``."""
    return pod(
        "four",
        Container(name="proxy", kind=ContainerKind.SIDECAR, resources=amounts(2, 4)),
        app("one", amounts(4, 8)),
        app("two", amounts(4, 8)),
        app("helper", NO_RESOURCES if pod_level else amounts(2, 4)),
        budget=amounts(12, 24) if pod_level else NO_RESOURCES,
    )


@dataclass(kw_only=True)
class Node:
    """A machine under settings, with the pods admitted so far."""

    managers: Managers
    state: NodeState
    pods: dict[PodUid, Pod] = field(default_factory=dict)

    def admit(self, pods: Iterable[Pod]) -> None:
        """Admit ``pods``, which have to fit."""
        for one in pods:
            decision = admit(self.managers, self.state, one)
            if not isinstance(decision, Admitted):
                raise TypeError(f"pod {one.name} does not fit: {decision.message}")
            self.state = decision.state
            self.pods[one.uid] = one


def empty_node(topology: Topology, chosen: Settings) -> Node:
    """A node without pods."""
    managers = new_managers(chosen, topology)
    return Node(managers=managers, state=restore(managers, NodeState()))


def half_full_node(topology: Topology, chosen: Settings, huge_gib: int = 0) -> Node:
    """Each NUMA node with CPUs has a pod that holds a little more than half of it."""
    node = empty_node(topology, chosen)
    cpus = len(topology.cpus) // len(topology.node_cpus) // 2 + 1
    half = amounts(cpus, NODE_GIB // 4, huge_gib)
    node.admit(pod(f"half-{number}", app("main", half)) for number in range(len(topology.node_cpus)))
    return node


def thousand_cpus(pods: int) -> Node:
    """1,024 CPUs in 2 NUMA nodes, ``pods`` pods that hold one CPU each."""
    node = empty_node(machine(sockets=2, nodes=2, cpus=1024), settings())
    node.admit(pod(f"slice-{number}", app("main", amounts(1, 1 / 4))) for number in range(pods))
    return node
