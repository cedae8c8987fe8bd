"""The counters of the endpoint have the kubelet's names, without its prefix."""

from __future__ import annotations

import pytest

from agent.metrics import DecisionMetrics, NodeMetrics
from tests.containermanager.node import Node

VERSIONS = {"list": ("v1", "v1alpha1"), "get_allocatable": ("v1",), "get": ("v1",)}
SERIES = {
    *(("requests_total", version) for version in ("v1", "v1alpha1")),
    *(
        (f"{what}_{method}", version)
        for what in ("requests", "errors")
        for method, versions in VERSIONS.items()
        for version in versions
    ),
}


@pytest.fixture
def metrics() -> NodeMetrics:
    node = Node()
    return NodeMetrics(DecisionMetrics(), node.owner().snapshot, node.cgroups.stat)


def samples(metrics: NodeMetrics, accept: str = "text/plain") -> set[str]:
    lines = metrics.page(accept)[0].decode().splitlines()
    return {line for line in lines if line.startswith("pod_resources_endpoint_")}


def test_every_series_starts_at_zero(metrics: NodeMetrics) -> None:
    assert samples(metrics) == {
        f'pod_resources_endpoint_{name}{{server_api_version="{version}"}} 0.0' for name, version in SERIES
    }


@pytest.mark.parametrize("accept", ["text/plain", "application/openmetrics-text; version=1.0.0"])
def test_what_is_counted_is_shown_under_its_own_name(metrics: NodeMetrics, accept: str) -> None:
    for number, (name, version) in enumerate(sorted(SERIES), start=1):
        for _ in range(number):
            metrics.pod_resources.count(name, version)
    assert samples(metrics, accept) == {
        f'pod_resources_endpoint_{name}{{server_api_version="{version}"}} {number}.0'
        for number, (name, version) in enumerate(sorted(SERIES), start=1)
    }


def test_the_texts_are_the_kubelets(metrics: NodeMetrics) -> None:
    page = metrics.page("text/plain")[0].decode()
    broken_down = "Broken down by server api version."
    for name, text in (
        ("requests_total", "Cumulative number of requests to the PodResource endpoint."),
        ("requests_list", "Number of requests to the PodResource List endpoint."),
        ("errors_get", "Number of requests to the PodResource Get endpoint which returned error."),
    ):
        assert f"# HELP pod_resources_endpoint_{name} {text} {broken_down}\n" in page
