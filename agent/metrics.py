"""Prometheus metrics: counters fed by decision traces, and the page that serves them.

Names, labels and moments are those of KEP-5526 (the kubelet's, without its ``kubelet_`` prefix).
Some of its counters, such as ``resource_manager_container_assignments``, have no ``_total`` suffix. Both
exposition formats reserve the counter type for names that have it, so they are exposed as of unknown
type: a Prometheus server stores the name as it stands and counts on it as on any other series.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from threading import Lock
from typing import Final

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from agent import __version__
from agent.checkpoint.store import CPU_FILE, MEMORY_FILE, PODS
from agent.containermanager import Snapshot
from agent.domain.pod import CPU, MEMORY
from agent.domain.trace import WHOLE_POD, CpusGranted, MemoryGranted, Pool, Refused, Shared, Step, Trace

RESOURCES: Final = (CPU, MEMORY)
SOURCES: Final = (Pool.NODE.value, Pool.POD.value)
ASSIGNMENTS: Final = ("node_exclusive", "pod_exclusive", "pod_shared")

API_METHODS: Final = {"list": "List", "get_allocatable": "GetAllocatableResources", "get": "Get"}
API_VERSIONS: Final = {"v1": tuple(API_METHODS), "v1alpha1": ("list",)}
"""The methods of each version of the PodResources API."""

Key = tuple[str, str]


class ResourceManagerMetrics:
    """The three ``resource_manager_*`` families; every label pair starts at zero."""

    def __init__(self) -> None:
        self.allocations: Counter[Key] = Counter()
        self.errors: Counter[Key] = Counter()
        self.assignments: Counter[Key] = Counter()
        self._lock = Lock()

    def decided(self, trace: Trace) -> None:
        """Count one decision (observer of the container manager)."""
        with self._lock:
            for step in trace:
                self._count(step)

    def _count(self, step: Step) -> None:
        match step:
            case CpusGranted() if step.container == WHOLE_POD:
                pass  # the pod's own set: its containers are counted, each once
            case CpusGranted():
                self._granted(CPU, step.source, 1)
            case MemoryGranted() if step.container == WHOLE_POD:
                pass
            case MemoryGranted():
                types = len({block.type for block in step.blocks})
                self._granted(MEMORY, step.source, types if step.source is Pool.NODE else 1)
            case Shared() if step.pool is Pool.POD:
                self.allocations[step.resource, Pool.POD.value] += 1
                self.assignments[step.resource, "pod_shared"] += 1
            case Refused() if step.manager in RESOURCES:
                source = Pool.POD if step.container == WHOLE_POD else Pool.NODE
                self.errors[step.manager, source.value] += 1
            case _:
                pass

    def _granted(self, resource: str, source: Pool, allocations: int) -> None:
        self.allocations[resource, source.value] += allocations
        self.assignments[resource, f"{source.value}_exclusive"] += 1

    def families(self) -> Iterator[Metric]:
        """The families with every label pair, also those never counted."""
        with self._lock:
            allocations, errors = Counter(self.allocations), Counter(self.errors)
            assignments = Counter(self.assignments)
        yield _counter(
            "resource_manager_allocations",
            "Allocations made by a resource manager, by whether they came from the node's or a pod's pool.",
            allocations,
        )
        yield _counter(
            "resource_manager_allocation_errors",
            "Allocations a resource manager refused, by whether they were asked of the node's or a pod's pool.",
            errors,
        )
        family = Metric(
            "resource_manager_container_assignments",
            "Containers a resource manager has placed, by how they are kept apart. Only ever grows.",
            "unknown",
        )
        for resource in RESOURCES:
            for kind in ASSIGNMENTS:
                labels = {"resource_name": resource, "assignment_type": kind}
                family.add_sample(family.name, labels, assignments[resource, kind])
        yield family


def _counter(name: str, text: str, counts: Counter[Key]) -> Metric:
    family = CounterMetricFamily(name, text, labels=("resource_name", "source"))
    for resource in RESOURCES:
        for source in SOURCES:
            family.add_metric((resource, source), counts[resource, source])
    return family


class PodResourcesMetrics:
    """The ``pod_resources_endpoint_*`` families; every version and method starts at zero."""

    def __init__(self) -> None:
        self.counts: Counter[Key] = Counter()
        self._lock = Lock()

    def count(self, name: str, version: str) -> None:
        """Count one request or error; ``name`` is the family's after ``pod_resources_endpoint_``."""
        with self._lock:
            self.counts[name, version] += 1

    def families(self) -> Iterator[Metric]:
        """The families, with the kubelet's names and texts."""
        with self._lock:
            counts = Counter(self.counts)
        total = CounterMetricFamily(
            "pod_resources_endpoint_requests",
            "Cumulative number of requests to the PodResource endpoint. Broken down by server api version.",
            labels=("server_api_version",),
        )
        for version in API_VERSIONS:
            total.add_metric((version,), counts["requests_total", version])
        yield total
        for what, suffix in (("requests", ""), ("errors", " which returned error")):
            for method, word in API_METHODS.items():
                name = f"{what}_{method}"
                text = f"Number of requests to the PodResource {word} endpoint{suffix}. Broken down by server api version."
                family = Metric(f"pod_resources_endpoint_{name}", text, "unknown")
                for version, methods in API_VERSIONS.items():
                    if method in methods:
                        labels = {"server_api_version": version}
                        family.add_sample(family.name, labels, counts[name, version])
                yield family


class NodeMetrics(Collector):
    """Everything this daemon exports, computed from one snapshot at each scrape."""

    def __init__(self, resource_managers: ResourceManagerMetrics, snapshot: Callable[[], Snapshot]) -> None:
        self.resource_managers = resource_managers
        self.pod_resources = PodResourcesMetrics()
        self.snapshot = snapshot

    def collect(self) -> Iterable[Metric]:
        """Yield all families."""
        info = InfoMetricFamily("numalet_build", "The running version.")
        info.add_metric((), {"version": __version__})
        yield info
        yield from self.resource_managers.families()
        yield from self.pod_resources.families()
        yield from _node_families(self.snapshot())


def _node_families(snapshot: Snapshot) -> Iterator[Metric]:
    pods = GaugeMetricFamily(
        "numalet_pods", "Pods known to numalet by state; a degraded one is admitted, too.", labels=("state",)
    )
    pods.add_metric(("admitted",), len(snapshot.pods))
    pods.add_metric(("degraded",), len(snapshot.degraded))
    pods.add_metric(("rejected",), len(snapshot.rejected))
    yield pods
    recoveries = CounterMetricFamily(
        "numalet_state_recoveries",
        "State files that were missing or damaged when the daemon started.",
        labels=("file",),
    )
    for file in (CPU_FILE, MEMORY_FILE, PODS):
        recoveries.add_metric((file,), snapshot.recovered.get(file, 0))
    yield recoveries
    if not snapshot.withdrawn:
        yield from _machine_families(snapshot)


def _machine_families(snapshot: Snapshot) -> Iterator[Metric]:
    cpus = GaugeMetricFamily(
        "numalet_cpus", "Online CPUs per NUMA node by who holds them.", labels=("numa_node", "pool")
    )
    for node, online in snapshot.topology.node_cpus.items():
        cpus.add_metric((str(node), "shared"), len(online & snapshot.shared))
        cpus.add_metric((str(node), "exclusive"), len(online & snapshot.exclusive))
    yield cpus
    memory = GaugeMetricFamily(
        "numalet_memory_bytes",
        "Memory per NUMA node and type that pods may be given, by state.",
        labels=("numa_node", "type", "state"),
    )
    for node_id, held in snapshot.state.memory.nodes.items():
        for kind, table in held.tables.items():
            memory.add_metric((str(node_id), kind, "reserved"), table.reserved)
            memory.add_metric((str(node_id), kind, "free"), table.free)
    yield memory
    drift = GaugeMetricFamily(
        "numalet_memory_drift_bytes",
        "Memory a NUMA node has more than when the state that the daemon started from was written.",
        labels=("numa_node",),
    )
    for node_id, more in snapshot.memory_drift.items():
        drift.add_metric((str(node_id),), more)
    yield drift


def exposition(collector: NodeMetrics, accept: str) -> tuple[bytes, str]:
    """Render all metrics in the format the client asks for: the page and its content type."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    encoder, content_type = choose_encoder(accept)
    return encoder(registry), content_type
