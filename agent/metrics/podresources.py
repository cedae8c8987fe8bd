"""The ``pod_resources_endpoint_*`` families, with the kubelet's names and texts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client.metrics_core import Metric

from agent.metrics.families import Counted, Counts, Labels

_PREFIX: Final = "pod_resources_endpoint_"
_METHODS: Final = {"list": "List", "get_allocatable": "GetAllocatableResources", "get": "Get"}
_VERSIONS: Final = {"v1": tuple(_METHODS), "v1alpha1": ("list",)}
"""The methods of each version of the PodResources API."""
_LABELS: Final[Labels] = ("server_api_version",)


def _declared() -> Iterator[Counted]:
    yield Counted(
        name=f"{_PREFIX}requests_total",
        text="Cumulative number of requests to the PodResource endpoint. Broken down by server api version.",
        labels=_LABELS,
        start=tuple((version,) for version in _VERSIONS),
    )
    for what, suffix in (("requests", ""), ("errors", " which returned error")):
        for method, word in _METHODS.items():
            yield Counted(
                name=f"{_PREFIX}{what}_{method}",
                text=f"Number of requests to the PodResource {word} endpoint{suffix}."
                " Broken down by server api version.",
                labels=_LABELS,
                start=tuple((version,) for version, methods in _VERSIONS.items() if method in methods),
            )


class PodResourcesMetrics:
    """Counts requests; every version and method starts at zero."""

    def __init__(self) -> None:
        self._counts = Counts(_declared())

    def count(self, name: str, version: str) -> None:
        """Count one request or error; ``name`` is the family's after ``pod_resources_endpoint_``."""
        self._counts.add([(_PREFIX + name, (version,), 1)])

    def families(self) -> Iterator[Metric]:
        """All families."""
        return self._counts.families({})
