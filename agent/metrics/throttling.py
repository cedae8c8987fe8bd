"""Throttling of exclusive slices, from the cpu.stat of their containers' cgroups at each scrape.

numalet sets no quota on them, so anything but zero means that somebody else does: cgroup-v2.rst,
cpu.max of the cgroup itself or of one above it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from threading import Lock
from typing import Final

from prometheus_client.metrics_core import Metric

from agent.cgroup.backend import EnforcementError
from agent.cgroup.layout import CgroupDir
from agent.containermanager import Snapshot
from agent.domain.outcome import Isolation
from agent.metrics.families import Labels, counter

Stat = Callable[[CgroupDir], Mapping[str, int]]

READ_AT_MOST: Final = 64
"""Files read for one scrape: the kernel sums up over all CPUs for each. The others show what was last read."""

_LABELS: Final[Labels] = ("namespace", "pod", "container")


class Throttling:
    """The last readings; ``stat`` is a cgroup backend's."""

    def __init__(self, stat: Stat) -> None:
        self._stat = stat
        self._lock = Lock()
        self._readings: dict[tuple[Labels, CgroupDir], tuple[int, int]] = {}
        """Periods and microseconds, least recently read first."""

    def families(self, snapshot: Snapshot) -> Iterator[Metric]:
        """Both families; a slice that could not be read yet is left out."""
        with self._lock:
            self._read(_slices(snapshot))
            readings = {labels: reading for (labels, _), reading in sorted(self._readings.items())}
        yield counter(
            "numalet_exclusive_throttled_periods_total",
            "Periods in which a container with exclusive CPUs was throttled; there should be none.",
            _LABELS,
            {labels: periods for labels, (periods, _) in readings.items()},
        )
        yield counter(
            "numalet_exclusive_throttled_seconds_total",
            "Time for which a container with exclusive CPUs was throttled; there should be none.",
            _LABELS,
            {labels: microseconds / 1e6 for labels, (_, microseconds) in readings.items()},
        )

    def _read(self, slices: set[tuple[Labels, CgroupDir]]) -> None:
        known = {one: reading for one, reading in self._readings.items() if one in slices}
        due = [*sorted(slices - known.keys()), *known][:READ_AT_MOST]
        for one in due:
            with suppress(EnforcementError):  # the pod is going
                stat = self._stat(one[1])
                if "nr_throttled" in stat:
                    known.pop(one, None)
                    known[one] = stat["nr_throttled"], stat.get("throttled_usec", 0)
        self._readings = known


def _slices(snapshot: Snapshot) -> set[tuple[Labels, CgroupDir]]:
    return {
        ((entry.pod.namespace, entry.pod.name, name), entry.directories[name])
        for entry in snapshot.pods.values()
        for name, level in entry.isolation.items()
        if level is Isolation.CONTAINER and name not in entry.pod.bindings
    }
