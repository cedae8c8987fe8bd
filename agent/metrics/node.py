"""The metrics of the node as it is: gauges from one snapshot, and counters that the owner keeps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import Final

from prometheus_client.metrics_core import Metric

from agent.cgroup.mirror import REMOVED
from agent.cgroup.tree import CPU_MAX, CPU_WEIGHT, CPUS, MEMORY_MAX, MEMS
from agent.checkpoint.store import CPU_FILE, MEMORY_FILE, PODS
from agent.config.model import HostIsolation
from agent.containermanager import Snapshot
from agent.domain.idset import CpuSet
from agent.domain.pod import PodUid
from agent.domain.state import MemoryTable, NodeState
from agent.domain.topology import NO_NODE
from agent.metrics.families import Labels, counter, gauge

_STATES: Final = ("admitted", "degraded", "succeeded", "rejected")
_SCOPES: Final = ("pod", "container", "none")
_BY_NODE: Final[Labels] = ("numa_node",)
_BY_NODE_AND_TYPE: Final[Labels] = ("numa_node", "type")
_MEMORY: Final[tuple[tuple[str, str, Callable[[MemoryTable], int]], ...]] = (
    ("allocatable", "Memory that pods may be given", attrgetter("allocatable")),
    ("allocated", "Memory that pods hold", attrgetter("reserved")),
    ("free", "Memory that pods may still be given", attrgetter("free")),
)


def node_families(snapshot: Snapshot) -> Iterator[Metric]:
    """All families; those about the machine have no series while it cannot be looked at."""
    yield gauge(
        "numalet_ready",
        "Whether numalet can admit pods and enforce what it decided: 1, or 0 as /readyz says.",
        (),
        {(): int(not snapshot.failures)},
    )
    yield gauge(
        "numalet_pods",
        "Pods known, by state, and by whether the pod, its containers or none of them hold resources.",
        ("state", "scope"),
        _pods(snapshot),
    )
    yield counter(
        "numalet_state_recoveries_total",
        "State files that were missing or damaged when the daemon started.",
        ("file",),
        {(file,): snapshot.recovered.get(file, 0) for file in (CPU_FILE, MEMORY_FILE, PODS)},
    )
    files = dict.fromkeys((CPUS, MEMS, CPU_MAX, CPU_WEIGHT, MEMORY_MAX, REMOVED), 0) | dict(
        snapshot.drift_repairs
    )
    yield counter(
        "cgroup_drift_repairs_total",
        "Cgroup files that somebody else had changed and numalet put right; file cgroup: a cgroup was removed.",
        ("file",),
        {(file,): count for file, count in sorted(files.items())},
    )
    yield gauge(
        "numalet_unknown_pod_cgroups",
        "Cgroups with processes of pods that numalet does not know; they are held to the shared pool.",
        (),
        {(): len(snapshot.strangers)},
    )
    yield gauge(
        "numalet_host_isolation",
        "How host processes are kept off exclusive CPUs: 1 for the mode that holds, asked for or not.",
        ("mode",),
        {(mode.value,): int(mode.value == snapshot.host_isolation) for mode in HostIsolation},
    )
    yield from _cpu_families(snapshot)
    yield from _memory_families(snapshot)


def _pods(snapshot: Snapshot) -> Mapping[Labels, float]:
    counts: Counter[Labels] = Counter(dict.fromkeys(((s, scope) for s in _STATES for scope in _SCOPES), 0))
    for uid in snapshot.pods:
        state = "degraded" if uid in snapshot.degraded else "admitted"
        counts[state, _scope(snapshot.state, uid)] += 1
    counts["succeeded", "none"] += len(snapshot.ended)
    counts["rejected", "none"] += len(snapshot.rejected)
    return counts


def _scope(state: NodeState, uid: PodUid) -> str:
    if uid in state.cpu.pod_entries or uid in state.memory.pod_entries:
        return "pod"
    return "container" if state.holds(uid) else "none"


def _cpu_families(snapshot: Snapshot) -> Iterator[Metric]:
    managers = snapshot.managers
    free = snapshot.shared & managers.cpu.allocatable
    exclusive = snapshot.exclusive
    nodes: Mapping[str, CpuSet] = {}
    if not snapshot.withdrawn:
        nodes = {str(node): cpus for node, cpus in snapshot.topology.node_cpus.items() if node != NO_NODE}

    def by_node(name: str, text: str, cpus: CpuSet) -> Metric:
        return gauge(name, text, _BY_NODE, {(node,): len(own & cpus) for node, own in nodes.items()})

    yield by_node(
        "numalet_cpus_allocatable",
        "Online CPUs per NUMA node that pods may be given exclusively.",
        managers.cpu.allocatable,
    )
    yield by_node("numalet_cpus_allocated", "Online CPUs per NUMA node that pods hold.", exclusive)
    yield by_node(
        "numalet_cpus_free",
        "Online CPUs per NUMA node that pods may still be given exclusively.",
        free,
    )
    yield by_node(
        "numalet_cpus_shared",
        "Online CPUs per NUMA node in the node shared pool, reserved ones included.",
        snapshot.shared,
    )
    yield by_node("cpu_manager_allocation_per_numa", "Number of CPUs allocated per NUMA node", exclusive)

    def total(name: str, text: str, value: int) -> Metric:
        return gauge(name, text, (), {} if snapshot.withdrawn else {(): value})

    yield total(
        "cpu_manager_exclusive_cpu_allocation_count",
        "The total number of CPUs exclusively allocated to containers running on this node",
        len(exclusive),
    )
    yield total(
        "cpu_manager_shared_pool_size_millicores",
        "The size of the shared CPU pool for non-guaranteed QoS pods, in millicores.",
        len(free) * 1000,
    )


def _memory_families(snapshot: Snapshot) -> Iterator[Metric]:
    nodes = {} if snapshot.withdrawn else snapshot.state.memory.nodes
    tables = {
        (str(node), str(kind)): table for node, held in nodes.items() for kind, table in held.tables.items()
    }
    for state, text, size in _MEMORY:
        yield gauge(
            f"numalet_memory_{state}_bytes",
            f"{text}, per NUMA node and type: memory, and each huge page size.",
            _BY_NODE_AND_TYPE,
            {labels: size(table) for labels, table in tables.items()},
        )
    drift = {} if snapshot.withdrawn else snapshot.memory_drift
    yield gauge(
        "numalet_memory_drift_bytes",
        "Memory a NUMA node has more than when the state that the daemon started from was written.",
        _BY_NODE,
        {(str(node),): more for node, more in drift.items()},
    )
