"""Everything this daemon exports, as a page in the format the client asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import InfoMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from agent import __version__
from agent.containermanager import Snapshot
from agent.metrics.decisions import DecisionMetrics
from agent.metrics.node import node_families
from agent.metrics.podresources import PodResourcesMetrics
from agent.metrics.throttling import Stat, Throttling


class NodeMetrics(Collector):
    """All families, computed from one snapshot at each scrape."""

    def __init__(self, decisions: DecisionMetrics, snapshot: Callable[[], Snapshot], stat: Stat) -> None:
        self.pod_resources = PodResourcesMetrics()
        self._decisions = decisions
        self._snapshot = snapshot
        self._throttling = Throttling(stat)

    def collect(self) -> Iterable[Metric]:
        """Yield all families, each also where it has no series yet."""
        snapshot = self._snapshot()
        info = InfoMetricFamily("numalet_build", "The running version.")
        info.add_metric((), {"version": __version__})
        yield info
        yield from self._decisions.families(snapshot.managers)
        yield from self.pod_resources.families()
        yield from node_families(snapshot)
        yield from self._throttling.families(snapshot)


def exposition(collector: NodeMetrics, accept: str) -> tuple[bytes, str]:
    """Render all metrics in the format the client asks for: the page and its content type."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    encoder, content_type = choose_encoder(accept)
    return encoder(registry), content_type
