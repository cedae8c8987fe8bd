"""A real Prometheus scrapes a running daemon and answers for every metric."""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.vm.node import PATIENCE, Node, best_effort, exclusive, free_port, mixed, running, wait_until

pytestmark = [pytest.mark.vm, pytest.mark.timeout(400)]

GO_PATIENCE = 3 * PATIENCE
"""Seconds; emulated CPUs take their time to start a program of 50 MB."""

MONITORING = Path(__file__).parents[2] / "docs" / "monitoring"
KUBELETS_NAMES = {
    'cpu_manager_exclusive_cpu_allocation_count non-histogram and non-summary metrics should not have "_count" suffix',
    "topology_manager_admission_duration_ms metric names should not contain abbreviated units",
}
"""What promtool says of names that we are not free to choose."""

Result = list[dict[str, Any]]


def complaints(page: str) -> set[str]:
    """What promtool finds fault with on a page of metrics."""
    done = subprocess.run(
        ["promtool", "check", "metrics"],
        input=page,
        capture_output=True,
        text=True,
        check=False,
        timeout=GO_PATIENCE,
    )
    return {line for line in (done.stdout + done.stderr).splitlines() if line}


class Prometheus:
    """A server that scrapes one node every other second, with the shipped rules."""

    def __init__(self, work: Path, node: Node) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self.config = work / "prometheus.yml"
        often = {"scrape_interval": "2s", "evaluation_interval": "1s"}
        job = {
            "job_name": "numalet",
            "static_configs": [{"targets": [node.config["metricsBindAddress"]]}],
        }
        rules = [str(MONITORING / "alerts.yml")]
        self.config.write_text(json.dumps({"global": often, "rule_files": rules, "scrape_configs": [job]}))
        self.command = (
            "prometheus",
            f"--config.file={self.config}",
            f"--storage.tsdb.path={work / 'tsdb'}",
            f"--web.listen-address={self.address}",
            "--log.level=warn",
        )

    def api(self, path: str, **parameters: str) -> Any:
        asked = f"{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(f"http://{self.address}/api/v1/{asked}", timeout=PATIENCE) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> Result:
        found: Result = self.api("query", query=expression)["result"]
        return found

    def wait_for(self, expression: str) -> None:
        wait_until(lambda: bool(self.query(expression)), f"Prometheus has {expression}", every=0.5)

    def wait_for_value(self, expression: str, wanted: float) -> None:
        """A scrape that takes too long leaves a gap: it is asked until it is as it should be."""

        def values() -> list[float]:
            return [float(series["value"][1]) for series in self.query(expression)]

        wait_until(lambda: values() == [wanted], f"{expression} is {wanted}", every=0.5)

    def health(self) -> set[str]:
        """How the rules are; unknown is one whose turn is yet to come."""
        [group] = self.api("rules")["groups"]
        return {rule["health"] for rule in group["rules"]}

    def is_up(self) -> bool:
        try:
            return bool(self.query('up{job="numalet"} == 1'))
        except (urllib.error.URLError, ConnectionError):
            return False


@contextmanager
def prometheus(work: Path, node: Node) -> Iterator[Prometheus]:
    """Prometheus, once it has scraped the node."""
    server = Prometheus(work, node)
    process = subprocess.Popen(server.command, cwd=work)
    try:
        wait_until(server.is_up, "Prometheus has scraped the daemon", GO_PATIENCE, every=0.5)
        yield server
    finally:
        process.kill()
        process.wait()


def names_on(page: str) -> set[str]:
    """The metrics that have a series."""
    lines = (line for line in page.splitlines() if line and not line.startswith("#"))
    return {line.partition("{")[0].partition(" ")[0] for line in lines}


def types_on(page: str) -> set[str]:
    """The families, with a series or without."""
    return {line.split()[2] for line in page.splitlines() if line.startswith("# TYPE ")}


def check_promql(server: Prometheus, page: str) -> None:
    for name in sorted(names_on(page)):
        server.wait_for(name)
    for expression, wanted in {
        'sum(numalet_pods{state="admitted"})': 3,
        'sum(numalet_pods{state="admitted", scope="pod"})': 1,
        "sum(numalet_cpus_allocated)": 6,
        "cpu_manager_exclusive_cpu_allocation_count": 6,
        "sum(numalet_exclusive_throttled_periods_total)": 0,
        "count(numalet_exclusive_throttled_periods_total)": 2,
        # The restart admitted the three pods again, and the CPUs of two containers were held already.
        "topology_manager_admission_requests_total": 3,
        "sum(resource_manager_allocations_total)": 0,
    }.items():
        server.wait_for_value(expression, wanted)
    assert server.query("numalet_cpus_allocatable - numalet_cpus_allocated != numalet_cpus_free") == []
    wait_until(lambda: server.health() == {"ok"}, "every rule has had its turn", every=0.5)
    assert server.query('ALERTS{alertname!="NumaletDown"}') == []
    # A scrape that takes too long is a daemon that seems down until the next.
    wait_until(lambda: server.query("ALERTS") == [], "nothing is wrong", every=0.5)


def test_prometheus_stores_every_metric_and_the_rules_speak_when_something_is_wrong(tmp_path: Path) -> None:
    # single-numa-node: the one policy that counts alignment
    with running(tmp_path, topologyManagerPolicy="single-numa-node") as node:
        for pod in (exclusive("a"), mixed("b"), best_effort("c")):
            node.admit(pod)
        node.end(signal.SIGTERM)
        node.start()  # what was stored is what memory may have drifted from
        page = node.page("/metrics")[1]
        with_series = {
            family for family in types_on(page) if any(n.startswith(family) for n in names_on(page))
        }
        assert types_on(page) == with_series
        assert complaints(page) == KUBELETS_NAMES
        with prometheus(tmp_path, node) as server:
            check_promql(server, page)
            for number in range(4):
                assert node.apply(exclusive(f"big-{number}", "64"))[0]["verdict"] == "rejected"
                server.wait_for(
                    f'admission_rejections_total{{reason="TopologyAffinityError"}} == {number + 1}'
                )
            server.wait_for('ALERTS{alertname="NumaletRefusesPods", alertstate="firing"}')
            node.end(signal.SIGTERM)
            server.wait_for('ALERTS{alertname="NumaletDown", alertstate="pending"}')
