"""Metric families from plain values.

Some of the kubelet's counters, such as ``resource_manager_container_assignments``, have no ``_total``
suffix. Both exposition formats reserve the counter type for names that have it, so they are exposed
as of unknown type: a Prometheus server stores the name as it stands and counts on it as on any other.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Final

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

Labels = tuple[str, ...]
"""Label values, in the order of their names."""
Values = Mapping[Labels, float]

_TOTAL: Final = "_total"


def counter(name: str, text: str, labels: Labels, values: Values) -> Metric:
    """A counter under exactly this name."""
    if not name.endswith(_TOTAL):
        return _with_samples(Metric(name, text, "unknown"), name, labels, values)
    return _with_samples(CounterMetricFamily(name, text, labels=labels), name, labels, values)


def gauge(name: str, text: str, labels: Labels, values: Values) -> Metric:
    """A gauge."""
    return _with_samples(GaugeMetricFamily(name, text, labels=labels), name, labels, values)


def _with_samples(family: Metric, name: str, labels: Labels, values: Values) -> Metric:
    family.samples = [
        Sample(name, dict(zip(labels, key, strict=True)), value) for key, value in values.items()
    ]
    return family


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """A counter to declare: ``start`` are the series that are there before anything is counted."""

    name: str
    text: str
    labels: Labels = ()
    start: tuple[Labels, ...] = ((),)


class Counts:
    """Counters of several families; from any thread."""

    def __init__(self, declared: Iterable[Counted]) -> None:
        self._declared = tuple(declared)
        self._counts: dict[str, Counter[Labels]] = {
            one.name: Counter(dict.fromkeys(one.start, 0)) for one in self._declared
        }
        self._lock = Lock()

    def add(self, increments: Iterable[tuple[str, Labels, int]]) -> None:
        """Count ``(family, label values, how many)``, all at once."""
        with self._lock:
            for name, labels, more in increments:
                self._counts[name][labels] += more

    def families(self, start: Mapping[str, Iterable[Labels]]) -> Iterator[Metric]:
        """All families; ``start`` adds series that are there by the settings of now."""
        with self._lock:
            counts = {name: dict(values) for name, values in self._counts.items()}
        for one in self._declared:
            values = dict.fromkeys(start.get(one.name, ()), 0) | counts[one.name]
            yield counter(one.name, one.text, one.labels, values)


class Histogram:
    """Observations by upper bound, for one or several label values; from any thread."""

    def __init__(
        self,
        name: str,
        text: str,
        bounds: tuple[float, ...],
        labels: Labels = (),
        start: tuple[Labels, ...] = ((),),
    ) -> None:
        self.name = name
        self.text = text
        self._bounds = bounds
        self._names = tuple(map(floatToGoString, (*bounds, math.inf)))
        self._labels = labels
        self._counts = {key: [0] * len(self._names) for key in start}
        self._sums = dict.fromkeys(start, 0.0)
        self._lock = Lock()

    def observe(self, value: float, labels: Labels = ()) -> None:
        """Count one observation."""
        with self._lock:
            self._counts[labels][bisect_left(self._bounds, value)] += 1
            self._sums[labels] += value

    def family(self) -> Metric:
        """The family, each bucket with what is in the lower ones."""
        family = HistogramMetricFamily(self.name, self.text, labels=self._labels)
        with self._lock:
            for key, counts in self._counts.items():
                buckets, below = [], 0
                for name, count in zip(self._names, counts, strict=True):
                    below += count
                    buckets.append((name, below))
                family.add_metric(key, buckets, self._sums[key])
        return family
