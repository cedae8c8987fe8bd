"""Everything this daemon exports, as a page in the format the client asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Lock

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import InfoMetricFamily, Metric

from agent import __version__
from agent.containermanager import Snapshot
from agent.metrics.decisions import DecisionMetrics
from agent.metrics.node import node_families
from agent.metrics.podresources import PodResourcesMetrics
from agent.metrics.rendering import Renderer
from agent.metrics.throttling import Stat, Throttling


class NodeMetrics:
    """All families, computed from one snapshot at each scrape."""

    def __init__(self, decisions: DecisionMetrics, snapshot: Callable[[], Snapshot], stat: Stat) -> None:
        self.pod_resources = PodResourcesMetrics()
        self._decisions = decisions
        self._snapshot = snapshot
        self._throttling = Throttling(stat)
        self._renderer = Renderer("")
        self._lock = Lock()

    def families(self) -> Iterator[Metric]:
        """Yield all families, each also where it has no series yet."""
        snapshot = self._snapshot()
        info = InfoMetricFamily("numalet_build", "The running version.")
        info.add_metric((), {"version": __version__})
        yield info
        yield from self._decisions.families(snapshot.managers)
        yield from self.pod_resources.families()
        yield from node_families(snapshot)
        yield from self._throttling.families(snapshot)

    def page(self, accept: str) -> tuple[bytes, str]:
        """All metrics in the format that an Accept header asks for, and its content type."""
        with self._lock:
            if choose_encoder(accept)[1] != self._renderer.content_type:
                self._renderer = Renderer(accept)
            return self._renderer.page(self.families()), self._renderer.content_type
