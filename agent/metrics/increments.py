"""What one decision adds to the counters: a pure function of its trace.

Moments: KEP-5526 and the kubelet's metrics of the topology, CPU and memory manager. Two differ from
the places in the kubelet's code, not in what they count: a pod that was refused counts what it was
given until then, and what was undone because disk or kernel failed counts as a request and a
rejection, not as an allocation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from agent.admission import Managers
from agent.containermanager import Decided
from agent.cpumanager.options import CpuOptions
from agent.cpumanager.static import StaticCpuManager
from agent.domain.idset import CpuSet
from agent.domain.pod import CPU, MEMORY, ContainerKind, Pod
from agent.domain.settings import TopologyPolicy
from agent.domain.topology import CpuId, Topology
from agent.domain.trace import (
    WHOLE_POD,
    CpusGranted,
    Kept,
    MemoryGranted,
    Merged,
    Offered,
    Pool,
    Refused,
    Shared,
    Step,
    Trace,
)
from agent.metrics.families import Labels

ALLOCATIONS: Final = "resource_manager_allocations_total"
ALLOCATION_ERRORS: Final = "resource_manager_allocation_errors_total"
ASSIGNMENTS: Final = "resource_manager_container_assignments"
ADMISSIONS: Final = "topology_manager_admission_requests_total"
ADMISSION_ERRORS: Final = "topology_manager_admission_errors_total"
REJECTIONS: Final = "admission_rejections_total"
ALIGNED: Final = "container_aligned_compute_resources_count"
NOT_ALIGNED: Final = "container_aligned_compute_resources_failure_count"
PINNING_REQUESTS: Final[Mapping[str, str]] = {
    CPU: "cpu_manager_pinning_requests_total",
    MEMORY: "memory_manager_pinning_requests_total",
}
PINNING_ERRORS: Final[Mapping[str, str]] = {
    CPU: "cpu_manager_pinning_errors_total",
    MEMORY: "memory_manager_pinning_errors_total",
}

IN_CONTAINER: Final = "container"
IN_POD: Final = "pod"
ON_NODE: Final[Mapping[str, Labels]] = {scope: (scope, "numa_node") for scope in (IN_CONTAINER, IN_POD)}
ON_CORES: Final[Labels] = (IN_CONTAINER, "physical_cpu")
ON_UNCORE: Final[Labels] = (IN_CONTAINER, "uncore_cache")

Increment = tuple[str, Labels, int]


def increments(decided: Decided) -> Iterator[Increment]:
    """Yield ``(family, label values, how many)`` for everything the decision counts."""
    if decided.reason:
        yield REJECTIONS, (decided.reason,), 1
    if not decided.trace:
        return
    yield ADMISSIONS, (), 1
    if decided.is_undone:
        return
    for step in decided.trace:
        yield from _of_resource_managers(step)
        yield from _of_cpu_manager(step, decided.managers)
        yield from _of_memory_manager(step, decided.pod)
    yield from _of_topology_manager(decided.trace, decided.managers)


def aligned_series(managers: Managers) -> Mapping[str, Iterable[Labels]]:
    """The series about alignment that these settings can count on: there from the start, at zero."""
    series: list[Labels] = []
    if managers.settings.topology_policy is not TopologyPolicy.NONE:
        series += ON_NODE.values()
    options = _options(managers)
    if options.full_pcpus_only:
        series.append(ON_CORES)
    if options.prefer_uncore:
        series.append(ON_UNCORE)
    return {ALIGNED: series, NOT_ALIGNED: series}


def _options(managers: Managers) -> CpuOptions:
    return managers.cpu.options if isinstance(managers.cpu, StaticCpuManager) else CpuOptions()


def _of_resource_managers(step: Step) -> Iterator[Increment]:
    match step:
        case CpusGranted() | MemoryGranted() if step.container == WHOLE_POD:
            pass  # the pod's own set: its containers are counted, each once
        case CpusGranted():
            yield from _granted(CPU, step.source, 1)
        case MemoryGranted():
            types = len({block.type for block in step.blocks})
            yield from _granted(MEMORY, step.source, types if step.source is Pool.NODE else 1)
        case Shared() if step.pool is Pool.POD:
            yield ALLOCATIONS, (step.resource, Pool.POD.value), 1
            yield ASSIGNMENTS, (step.resource, "pod_shared"), 1
        case Refused() if step.manager in PINNING_ERRORS:
            source = Pool.POD if step.container == WHOLE_POD else Pool.NODE
            yield ALLOCATION_ERRORS, (step.manager, source.value), 1
        case _:
            pass


def _granted(resource: str, source: Pool, allocations: int) -> Iterator[Increment]:
    yield ALLOCATIONS, (resource, source.value), allocations
    yield ASSIGNMENTS, (resource, f"{source.value}_exclusive"), 1


def _of_cpu_manager(step: Step, managers: Managers) -> Iterator[Increment]:
    """A request is counted for each exclusive container, not for the pod that they are in."""
    options = _options(managers)
    match step:
        case CpusGranted():
            # Out of a pod's set no container is aligned for itself: its pod was, when it got the set.
            from_node = step.source is Pool.NODE
            if step.container != WHOLE_POD:
                yield from _asked(CPU)
                if from_node and options.full_pcpus_only:
                    yield ALIGNED, ON_CORES, 1
            if from_node and options.prefer_uncore and _in_one_uncore(managers.machine, step.cpus):
                yield ALIGNED, ON_UNCORE, 1
        case Kept() if step.resource == CPU and step.container != WHOLE_POD:
            yield from _asked(CPU)
            if options.full_pcpus_only:
                yield ALIGNED, ON_CORES, 1
        case Refused() if step.manager == CPU:
            yield PINNING_ERRORS[CPU], (), 1
            if step.container != WHOLE_POD:
                yield from _asked(CPU)
                if options.full_pcpus_only:
                    yield NOT_ALIGNED, ON_CORES, 1
        case _:
            pass


def _of_memory_manager(step: Step, pod: Pod) -> Iterator[Increment]:
    """A pod that is allocated as one asks once for itself, and once for each container but sharing apps."""
    match step:
        case MemoryGranted():
            yield from _asked(MEMORY)
        case Kept() if step.resource == MEMORY:
            yield from _asked(MEMORY)
        case Shared() if step.resource == MEMORY and step.pool is Pool.POD:
            container = pod.container(step.container)
            if container is not None and container.kind is not ContainerKind.APP:
                yield from _asked(MEMORY)
        case Refused() if step.manager == MEMORY:
            yield from _asked(MEMORY)
            yield PINNING_ERRORS[MEMORY], (), 1
        case _:
            pass


def _asked(resource: str) -> Iterator[Increment]:
    yield PINNING_REQUESTS[resource], (), 1


def _of_topology_manager(trace: Trace, managers: Managers) -> Iterator[Increment]:
    """Policy none aligns nothing and is never in error; only single-numa-node guarantees alignment."""
    offers = [step for step in trace if isinstance(step, Offered)]
    if not offers:
        return
    refusals = [step for step in trace if isinstance(step, Refused)]
    yield from ((ADMISSION_ERRORS, (), 1) for _ in refusals)
    if managers.settings.topology_policy is not TopologyPolicy.SINGLE_NUMA_NODE:
        return
    where = ON_NODE[IN_POD if offers[0].container == WHOLE_POD else IN_CONTAINER]
    aligned = sum(isinstance(step, Merged) and step.admitted for step in trace)
    for refused in refusals:
        if refused.manager == "topology":
            yield NOT_ALIGNED, where, 1
        else:
            aligned -= 1  # the last of them: its resources could not be allocated
    if aligned > 0:
        yield ALIGNED, where, aligned


def _in_one_uncore(machine: Topology, cpus: CpuSet) -> bool:
    return len({machine.by_id[CpuId(cpu)].uncore for cpu in cpus}) == 1
