"""Small machines, pods and managers for the tests of the CPU manager."""

from __future__ import annotations

from collections.abc import Mapping

from agent.cpumanager.policy import new_cpu_manager
from agent.cpumanager.static import StaticCpuManager
from agent.domain.hints import ANY_NODE, Hint
from agent.domain.idset import CpuSet, NodeMask
from agent.domain.pod import CPU, MEMORY, Container, ContainerKind, Pod, PodUid, Resources
from agent.domain.quantity import parse_quantity
from agent.domain.settings import (
    CpuPolicy,
    Fidelity,
    Gates,
    Settings,
    TopologyPolicy,
)
from agent.domain.state import CpuState
from agent.domain.topology import CoreId, Cpu, CpuId, NodeId, NumaNode, SocketId, Topology, UncoreId

NO_HINT = Hint(ANY_NODE, preferred=True)
KINDS = {"init": ContainerKind.INIT, "sidecar": ContainerKind.SIDECAR, "app": ContainerKind.APP}


def machine(
    cpus: int,
    *,
    nodes: int = 1,
    sockets: int = 1,
    threads: int = 2,
    uncores: int = 0,
    offline: frozenset[int] = frozenset(),
) -> Topology:
    """Regular units; CPU numbers list the first threads of all cores, then the second ones."""
    cores = cpus // threads
    online = tuple(
        Cpu(
            id=CpuId(cpu),
            core=CoreId(cpu % cores),
            socket=SocketId(cpu % cores * sockets // cores),
            node=NodeId(cpu % cores * nodes // cores),
            uncore=UncoreId(cpu % cores * (uncores or sockets) // cores),
        )
        for cpu in range(cpus)
        if cpu not in offline
    )
    return Topology(
        cpus=online,
        nodes=tuple(
            NumaNode(id=NodeId(n), cpus=CpuSet.of(cpu.id for cpu in online if cpu.node == n))
            for n in range(nodes)
        ),
    )


def resources(cpu: str, memory: str = "1Gi") -> Resources:
    """Requests equal to limits."""
    both = {CPU: parse_quantity(cpu), MEMORY: parse_quantity(memory)}
    return Resources(requests=both, limits=both)


def container(name: str, cpu: str = "", kind: str = "app") -> Container:
    """A Guaranteed-equivalent container, or one without resources."""
    return Container(name=name, kind=KINDS[kind], resources=resources(cpu) if cpu else Resources())


def pod(uid: str, *containers: Container, cpu: str = "") -> Pod:
    """A pod; ``cpu`` are its pod-level CPUs."""
    return Pod(
        name=uid,
        namespace="ns",
        uid=PodUid(uid),
        containers=containers,
        resources=resources(cpu, "64Gi") if cpu else Resources(),
    )


def settings(
    options: Mapping[str, str] | None = None,
    *,
    reserved: str = "1",
    gates: Gates | None = None,
    topology_policy: TopologyPolicy = TopologyPolicy.NONE,
    fidelity: Fidelity = Fidelity.SAFE,
) -> Settings:
    """The static policy."""
    return Settings(
        cpu_policy=CpuPolicy.STATIC,
        cpu_options=options or {},
        node_reserved={CPU: parse_quantity(reserved)},
        gates=gates or Gates(),
        topology_policy=topology_policy,
        fidelity=fidelity,
    )


def static(topology: Topology, given: Settings | None = None) -> StaticCpuManager:
    """The static policy on ``topology``."""
    manager = new_cpu_manager(given or settings(), topology)
    assert isinstance(manager, StaticCpuManager)
    return manager


def fresh(manager: StaticCpuManager) -> CpuState:
    """The state after a first start."""
    return manager.restore(CpuState())


def near(*nodes: int) -> Hint:
    """A preferred hint for these NUMA nodes."""
    return Hint(NodeMask.of(nodes), preferred=True)


def shown(state: CpuState) -> dict[str, object]:
    """The state as texts."""
    return {
        "default": str(state.default),
        "entries": {
            uid: {name: str(cpus) for name, cpus in pod_entries.items()}
            for uid, pod_entries in state.entries.items()
        },
        "pods": {uid: str(cpus) for uid, cpus in state.pod_entries.items()},
    }
