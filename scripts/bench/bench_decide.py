"""Whole decisions, as the daemon makes them: hints, merge, CPUs, memory, next state and trace.

Without checkpoint, cgroups and anything else that touches the system.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from agent.admission import Admitted, Decision, Rejected, admit, remove_pod
from agent.domain.pod import Pod
from agent.domain.settings import TopologyPolicy
from agent.domain.topology import Topology
from agent.explain.sentences import explain
from scripts.bench.machines import (
    NODE_HUGE_GIB,
    Node,
    amounts,
    app,
    empty_node,
    four_containers,
    half_full_node,
    machine,
    pod,
    settings,
    thousand_cpus,
)
from scripts.bench.registry import Times, benchmark

Timed = Callable[[], object]
MakePod = Callable[[], Pod]
"""Pods remember what was worked out about them, so each decision gets one that is new."""

_HALF_HUGE = NODE_HUGE_GIB // 2
_NONE, _SINGLE = TopologyPolicy.NONE, TopologyPolicy.SINGLE_NUMA_NODE


def _decision(node: Node, wanted: MakePod, kind: type[Decision] = Admitted) -> Timed:
    """Deciding about ``wanted`` over and over; it has to end in ``kind``."""
    decision = admit(node.managers, node.state, wanted())
    if not isinstance(decision, kind):
        raise TypeError(f"the pod is not {kind.__name__}: {decision.trace[-1]}")
    return lambda: admit(node.managers, node.state, wanted())


def _one(cpus: int, gib: float, huge_gib: int = 0) -> MakePod:
    """A pod of one container."""
    return lambda: pod("one", app("main", amounts(cpus, gib, huge_gib)))


def _two_sockets() -> Node:
    return half_full_node(machine(sockets=2, nodes=2, cpus=256), settings())


def _hugepages(nodes: int) -> Node:
    topology = machine(sockets=2, nodes=nodes, cpus=64 * nodes, hugepages=True)
    return half_full_node(topology, settings(), _HALF_HUGE)


def _gb200() -> Node:
    return half_full_node(machine(sockets=2, nodes=2, cpus=144, memory_only=32), settings())


def _many_nodes() -> Topology:
    return machine(sockets=8, nodes=64, cpus=1024)


@benchmark(aim=0.4)
def pod_level_256_cpus() -> Timed:
    """Pod-level resources, 4 containers; 2 NUMA nodes, 256 CPUs, half full, scope pod, restricted."""
    return _decision(_two_sockets(), partial(four_containers, pod_level=True))


@benchmark(aim=0.8)
def without_pod_level_256_cpus() -> Timed:
    """The same pod without pod-level resources."""
    return _decision(_two_sockets(), partial(four_containers, pod_level=False))


@benchmark(aim=5)
def hugepages_8_nodes() -> Timed:
    """cpu, memory and two sizes of huge pages; 8 NUMA nodes, 512 CPUs, half full, restricted."""
    return _decision(_hugepages(8), _one(16, 16, 8))


@benchmark(aim=100)
def hugepages_16_nodes() -> Timed:
    """The same on 16 NUMA nodes, 1,024 CPUs."""
    return _decision(_hugepages(16), _one(16, 16, 8))


@benchmark(aim=None)
def best_effort_16_nodes() -> Timed:
    """The same under best-effort, for a pod that no NUMA node has enough CPUs for: all sets are ranked."""
    topology = machine(sockets=2, nodes=16, cpus=1024, hugepages=True)
    node = half_full_node(topology, settings(TopologyPolicy.BEST_EFFORT), _HALF_HUGE)
    return _decision(node, _one(48, 16, 8))


@benchmark(aim=20)
def gb200_34_nodes() -> Timed:
    """cpu and memory; 2 NUMA nodes with 144 CPUs, 32 with memory only, restricted."""
    return _decision(_gb200(), _one(16, 64))


@benchmark(aim=20)
def single_numa_node_64_nodes() -> Timed:
    """cpu and memory; 64 NUMA nodes, 1,024 CPUs, half full, single-numa-node."""
    node = half_full_node(_many_nodes(), settings(_SINGLE))
    return _decision(node, _one(4, 16))


@benchmark(aim=3)
def distribute_96_of_512_cpus() -> Timed:
    """distribute-cpus-across-numa, 96 CPUs over 8 NUMA nodes that are unevenly used."""
    options = {"distribute-cpus-across-numa": "true"}
    node = empty_node(machine(sockets=2, nodes=8, cpus=512), settings(_NONE, cpu_options=options))
    node.admit(pod(f"used-{n}", app("main", amounts(2 + 3 * n, 1))) for n in range(8))
    return _decision(node, _one(96, 96))


@benchmark(aim=Times(1.2, "decide.pod_level_256_cpus"))
def pod_level_256_cpus_explained() -> Timed:
    """pod_level_256_cpus, and its trace in sentences."""
    node, wanted = _two_sockets(), partial(four_containers, pod_level=True)
    return lambda: explain(admit(node.managers, node.state, wanted()).trace)


@benchmark(aim=1)
def beside_10_pods() -> Timed:
    """A pod of 1 CPU on a machine of 1,024 CPUs where 10 pods hold one each."""
    return _decision(thousand_cpus(10), _one(1, 1 / 4))


@benchmark(aim=Times(1.5, "decide.beside_10_pods"))
def beside_100_pods() -> Timed:
    """The same beside 100 pods."""
    return _decision(thousand_cpus(100), _one(1, 1 / 4))


@benchmark(aim=Times(1.5, "decide.beside_10_pods"))
def beside_1000_pods() -> Timed:
    """The same beside 1,000 pods."""
    return _decision(thousand_cpus(1000), _one(1, 1 / 4))


@benchmark(aim=Times(1, "decide.beside_1000_pods"))
def removal_beside_1000_pods() -> Timed:
    """Releasing that pod."""
    node, last = thousand_cpus(1000), _one(1, 1 / 4)()
    node.admit((last,))
    return lambda: remove_pod(node.managers, node.state, last.uid)


@benchmark(aim=Times(1, "decide.pod_level_256_cpus"))
def removal_256_cpus() -> Timed:
    """Releasing the pod of pod_level_256_cpus."""
    node, last = _two_sockets(), four_containers(pod_level=True)
    node.admit((last,))
    return lambda: remove_pod(node.managers, node.state, last.uid)


@benchmark(aim=1.2)
def refused_256_cpus() -> Timed:
    """A refusal with its remedy: the node of pod_level_256_cpus, more CPUs than one NUMA node has left."""
    return _decision(_two_sockets(), _one(100, 16), Rejected)


@benchmark(aim=15)
def refused_8_nodes() -> Timed:
    """The same, the node of hugepages_8_nodes."""
    return _decision(_hugepages(8), _one(48, 16, 8), Rejected)


@benchmark(aim=300)
def refused_16_nodes() -> Timed:
    """The same, the node of hugepages_16_nodes."""
    return _decision(_hugepages(16), _one(48, 16, 8), Rejected)


@benchmark(aim=60)
def refused_64_nodes() -> Timed:
    """The same, the node of single_numa_node_64_nodes."""
    node = half_full_node(_many_nodes(), settings(_SINGLE))
    return _decision(node, _one(12, 16), Rejected)


@benchmark(aim=60)
def refused_34_nodes() -> Timed:
    """The same, the node of gb200_34_nodes."""
    return _decision(_gb200(), _one(60, 64), Rejected)
