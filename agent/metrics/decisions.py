"""The metrics of decisions: an observer of the owner, and the clock of its stages."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from prometheus_client.metrics_core import Metric

from agent.admission import TOPOLOGY_AFFINITY_ERROR, UNEXPECTED_ADMISSION_ERROR, Managers
from agent.containermanager import MACHINE_FAULTS, Decided, Stage
from agent.cpumanager.static import SMT_ALIGNMENT_ERROR
from agent.domain.pod import CPU, MEMORY
from agent.domain.trace import Pool
from agent.memorymanager.podpool import EMPTY_POD_SHARED_POOL
from agent.metrics import increments as names
from agent.metrics.families import Counted, Counts, Histogram, Labels

_RESOURCES: Final = (CPU, MEMORY)
_SOURCES: Final[tuple[Labels, ...]] = tuple((r, pool.value) for r in _RESOURCES for pool in Pool)
_KINDS: Final = ("node_exclusive", "pod_exclusive", "pod_shared")
_BY_SOURCE: Final[Labels] = ("resource_name", "source")
_BY_BOUNDARY: Final[Labels] = ("scope", "boundary")
REASONS: Final = sorted(
    {
        TOPOLOGY_AFFINITY_ERROR,
        UNEXPECTED_ADMISSION_ERROR,
        SMT_ALIGNMENT_ERROR,
        EMPTY_POD_SHARED_POOL,
        *MACHINE_FAULTS,
    }
)

_COUNTED: Final = (
    Counted(
        name=names.ALLOCATIONS,
        text="Allocations made by a resource manager, by whether they came from the node's or a pod's pool.",
        labels=_BY_SOURCE,
        start=_SOURCES,
    ),
    Counted(
        name=names.ALLOCATION_ERRORS,
        text="Allocations a resource manager refused, by whether they were asked of the node's or a pod's pool.",
        labels=_BY_SOURCE,
        start=_SOURCES,
    ),
    Counted(
        name=names.ASSIGNMENTS,
        text="Containers a resource manager has placed, by how they are kept apart. Only ever grows.",
        labels=("resource_name", "assignment_type"),
        start=tuple((resource, kind) for resource in _RESOURCES for kind in _KINDS),
    ),
    Counted(
        name=names.ADMISSIONS,
        text="The number of admission requests where resources have to be aligned.",
    ),
    Counted(
        name=names.ADMISSION_ERRORS,
        text="The number of admission request failures where resources could not be aligned.",
    ),
    Counted(
        name=names.PINNING_REQUESTS[CPU],
        text="The number of cpu core allocations which required pinning.",
    ),
    Counted(
        name=names.PINNING_ERRORS[CPU],
        text="The number of cpu core allocations which required pinning failed.",
    ),
    Counted(
        name=names.PINNING_REQUESTS[MEMORY],
        text="The number of memory pages allocations which required pinning.",
    ),
    Counted(
        name=names.PINNING_ERRORS[MEMORY],
        text="The number of memory pages allocations which required pinning that failed.",
    ),
    Counted(
        name=names.ALIGNED,
        text="Cumulative number of aligned compute resources allocated to containers by alignment type.",
        labels=_BY_BOUNDARY,
        start=(),
    ),
    Counted(
        name=names.NOT_ALIGNED,
        text="Cumulative number of failures to allocate aligned compute resources to containers"
        " by alignment type.",
        labels=_BY_BOUNDARY,
        start=(),
    ),
    Counted(
        name=names.REJECTIONS,
        text="Pods that were refused, by reason; one that is handed in again counts again.",
        labels=("reason",),
        start=tuple((reason,) for reason in REASONS),
    ),
)
_MILLISECONDS: Final = tuple(0.05 * 2**step for step in range(15))
_SECONDS: Final = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025),
    *(0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)


class DecisionMetrics:
    """Counts every verdict and times every admission; from any thread."""

    def __init__(self) -> None:
        self._counts = Counts(_COUNTED)
        self._admission = Histogram(
            "topology_manager_admission_duration_ms",
            "Duration in milliseconds to serve a pod admission request.",
            _MILLISECONDS,
        )
        self._stages = Histogram(
            "numalet_admission_stage_duration_seconds",
            "Duration of the parts of an admission: to decide, to persist the state,"
            " to enforce it with cgroups.",
            _SECONDS,
            labels=("stage",),
            start=tuple((stage.value,) for stage in Stage),
        )

    def decided(self, decided: Decided) -> None:
        """Count one verdict (observer of the container manager)."""
        self._counts.add(names.increments(decided))

    @contextmanager
    def timed(self, stage: Stage) -> Iterator[None]:
        """Observe how long the block takes, also where it fails."""
        started = time.perf_counter()
        try:
            yield
        finally:
            took = time.perf_counter() - started
            self._stages.observe(took, (stage.value,))
            if stage is Stage.DECIDE:
                self._admission.observe(int(took * 1000))  # whole milliseconds, as the kubelet

    def families(self, managers: Managers) -> Iterator[Metric]:
        """All families."""
        yield from self._counts.families(names.aligned_series(managers))
        yield self._admission.family()
        yield self._stages.family()
