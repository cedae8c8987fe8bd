"""Any settings that fit a machine, and any pod."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st

from agent.cpumanager import options
from agent.domain.idset import CpuSet
from agent.domain.pod import CPU, MEMORY, Container, ContainerKind, Pod, PodUid, ResourceName, Resources
from agent.domain.quantity import Quantity, parse_quantity
from agent.domain.settings import (
    CpuPolicy,
    Gates,
    MemoryPolicy,
    Settings,
    TopologyPolicy,
    TopologyScope,
)
from agent.domain.topology import Topology
from tests.properties.machines import GIB

MIB: Final = 1 << 20
HUGEPAGES: Final = ResourceName("hugepages-2Mi")

OPTIONS: Final = sorted(options.ALPHA | options.BETA | options.STABLE)
EXCLUDED: Final = [
    (options.FULL_PCPUS_ONLY, options.DISTRIBUTE_ACROSS_CORES),
    (options.DISTRIBUTE_ACROSS_NUMA, options.DISTRIBUTE_ACROSS_CORES),
    (options.PREFER_UNCORE, options.DISTRIBUTE_ACROSS_CORES),
    (options.PREFER_UNCORE, options.DISTRIBUTE_ACROSS_NUMA),
]


@st.composite
def settings_for(draw: st.DrawFn, topology: Topology) -> Settings:
    """Settings that the managers accept on this machine."""
    policy = draw(st.sampled_from([*TopologyPolicy, TopologyPolicy.BEST_EFFORT]))
    chosen = draw(st.sets(st.sampled_from([*OPTIONS, options.STRICT_RESERVATION]), max_size=3))
    for one, other in EXCLUDED:
        if one in chosen:
            chosen.discard(other)
    if policy is TopologyPolicy.SINGLE_NUMA_NODE or len(topology.sockets) > len(topology.node_cpus):
        chosen.discard(options.ALIGN_BY_SOCKET)
    cpu_policy = draw(st.sampled_from([CpuPolicy.STATIC] * 7 + [CpuPolicy.NONE]))
    count = draw(st.integers(1, min(2, len(topology.online) - 1)))
    lowest = CpuSet.of(list(topology.online)[:count])
    roomiest = max(topology.nodes, key=lambda node: (node.memory, -node.id))
    memory = Quantity.bytes(GIB // 4)
    prefers_closest = all(node.distances for node in topology.nodes) and draw(st.booleans())
    return Settings(
        cpu_policy=cpu_policy,
        cpu_options=dict.fromkeys(sorted(chosen), "true") if cpu_policy is CpuPolicy.STATIC else {},
        reserved_cpus=draw(st.sampled_from([None, lowest])),
        node_reserved={CPU: parse_quantity(str(count)), MEMORY: memory},
        memory_policy=draw(st.sampled_from([MemoryPolicy.STATIC] * 3 + [MemoryPolicy.NONE])),
        reserved_memory={roomiest.id: {MEMORY: memory}},
        topology_policy=policy,
        topology_scope=draw(st.sampled_from([*TopologyScope, TopologyScope.POD])),
        topology_options={"prefer-closest-numa-nodes": "true"} if prefers_closest else {},
        gates=Gates(pod_level_resource_managers=draw(st.sampled_from([True] * 5 + [False]))),
    )


def equal(cpu: str, memory: int, huge: int = 0) -> Resources:
    """Requests that equal their limits."""
    amounts = {CPU: parse_quantity(cpu), MEMORY: Quantity.bytes(memory)}
    if huge:
        amounts[HUGEPAGES] = Quantity.bytes(huge)
    return Resources(requests=amounts, limits=amounts)


def only_requests(cpu: str, memory: int) -> Resources:
    return Resources(requests=equal(cpu, memory).requests)


MEMORY_SIZES = st.sampled_from([64 * MIB, GIB, 2 * GIB, 4 * GIB])
PINNED = st.builds(
    equal, st.sampled_from(["1", "1", "2", "3", "4", "6", "500m", "1500m"]), MEMORY_SIZES
) | st.builds(equal, st.sampled_from(["1", "2"]), MEMORY_SIZES, st.sampled_from([2 * MIB, 64 * MIB]))
LOOSE = st.sampled_from([Resources(), equal("0", 0), only_requests("1", GIB), only_requests("250m", 0)])


@st.composite
def pods(draw: st.DrawFn, uid: str) -> Pod:
    """All kinds of containers, with and without a pod-level budget that covers them."""
    kinds = draw(st.lists(st.sampled_from([ContainerKind.INIT, ContainerKind.SIDECAR]), max_size=2))
    kinds += [ContainerKind.APP] * draw(st.integers(1, 3))
    budget = draw(
        st.sampled_from(["none", "none", "guaranteed", "guaranteed", "guaranteed", "fraction", "burstable"])
    )
    amounts = PINNED if budget == "none" and draw(st.integers(0, 3)) else PINNED | LOOSE
    containers = tuple(
        Container(name=f"{kind.value}-{place}", kind=kind, resources=draw(amounts))
        for place, kind in enumerate(kinds)
    )
    resources = Resources() if budget == "none" else _budget(draw, containers, budget)
    return Pod(name=uid, namespace="ns", uid=PodUid(uid), containers=containers, resources=resources)


def _budget(draw: st.DrawFn, containers: tuple[Container, ...], kind: str) -> Resources:
    """At least what the containers need at once, sometimes exactly that."""
    milli = _needed(containers, CPU) // 1_000_000 + draw(st.sampled_from([0, 1000, 2000]))
    memory = _needed(containers, MEMORY) // 1_000_000_000 + draw(st.sampled_from([0, 64 * MIB]))
    huge = _needed(containers, HUGEPAGES) // 1_000_000_000
    whole = max(1, -(-milli // 1000))
    match kind:
        case "guaranteed":
            return equal(str(whole), max(memory, MIB), huge)
        case "fraction":
            return equal(f"{whole}500m", max(memory, MIB), huge)
        case _:
            return only_requests(str(whole), max(memory, MIB))


def _needed(containers: tuple[Container, ...], name: ResourceName) -> int:
    """Nano-units: all that keeps running, and the largest init container on top."""
    running = sum(c.resources.request(name).nano for c in containers if c.kind.keeps_running)
    inits = [c.resources.request(name).nano for c in containers if not c.kind.keeps_running]
    return running + max(inits, default=0)
