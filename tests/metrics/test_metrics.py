"""Names, labels, moments and formats of the metrics (KEP-5526); a real owner decides, a scrape shows."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from agent.config import Config
from agent.containermanager import ContainerManager
from agent.domain.pod import PodUid
from agent.domain.settings import CpuPolicy, Gates, MemoryPolicy, TopologyPolicy, TopologyScope
from agent.domain.trace import WHOLE_POD, Refused
from agent.manifest import load_manifests
from agent.metrics import NodeMetrics, ResourceManagerMetrics, exposition
from tests.containermanager.node import Node, best_effort, budgeted, limits, manifest, parsed, topology

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
SAMPLE = re.compile(r"^(\w+)\{([^}]*)\} ([\d.eE+-]+)$", re.MULTILINE)

Counts = dict[tuple[str, str, str], float]


class Scraped:
    """A node with its metrics; `counts` is what differs from zero."""

    def __init__(self, config: Config | None = None) -> None:
        self.counters = ResourceManagerMetrics()
        self.node = Node(config, topology() if config else None)
        self.owner: ContainerManager = self.node.owner(self.counters.decided)
        self.collector = NodeMetrics(self.counters, self.owner.snapshot)

    def admit(self, *documents: dict[str, Any]) -> None:
        for document in documents:
            self.owner.admit(parsed(document), "api")

    def page(self, accept: str = "text/plain") -> str:
        return exposition(self.collector, accept)[0].decode()

    def counts(self) -> Counts:
        found: Counts = {}
        for name, labels, value in SAMPLE.findall(self.page()):
            if name.startswith("resource_manager_") and float(value):
                values = dict(re.findall(r'(\w+)="([^"]*)"', labels))
                kind = values.get("source") or values["assignment_type"]
                found[name.removeprefix("resource_manager_"), values["resource_name"], kind] = float(value)
        return found


def both(*, source: str, kind: str) -> Counts:
    """One allocation and one assignment of each resource."""
    return {
        **{("allocations_total", resource, source): 1.0 for resource in ("cpu", "memory")},
        **{("container_assignments", resource, kind): 1.0 for resource in ("cpu", "memory")},
    }


def test_every_series_is_there_before_anything_happened() -> None:
    page = Scraped().page()
    series = [line for line in page.splitlines() if line.startswith("resource_manager_")]
    assert series == [
        *(f'resource_manager_allocations_total{{resource_name="{r}",source="{s}"}} 0.0' for r in ("cpu", "memory") for s in ("node", "pod")),
        *(f'resource_manager_allocation_errors_total{{resource_name="{r}",source="{s}"}} 0.0' for r in ("cpu", "memory") for s in ("node", "pod")),
        *(f'resource_manager_container_assignments{{assignment_type="{a}",resource_name="{r}"}} 0.0' for r in ("cpu", "memory") for a in ("node_exclusive", "pod_exclusive", "pod_shared")),
    ]  # fmt: skip


@pytest.mark.parametrize("accept", ["text/plain", OPENMETRICS, ""])
def test_the_assignments_keep_their_exact_name_in_every_format(accept: str) -> None:
    page = Scraped().page(accept)
    assert (
        'resource_manager_container_assignments{assignment_type="pod_shared",resource_name="cpu"} 0.0' in page
    )
    assert "container_assignments_total" not in page
    assert 'resource_manager_allocations_total{resource_name="cpu",source="node"}' in page


def test_the_format_is_the_one_asked_for() -> None:
    scraped = Scraped()
    assert exposition(scraped.collector, OPENMETRICS)[1].startswith("application/openmetrics-text")
    assert scraped.page(OPENMETRICS).endswith("# EOF\n")
    assert exposition(scraped.collector, "*/*")[1].startswith("text/plain")


def test_a_guaranteed_pod_counts_once_per_resource_from_the_node() -> None:
    scraped = Scraped()
    scraped.admit(manifest("a"))
    assert scraped.counts() == both(source="node", kind="node_exclusive")


def test_a_second_admission_counts_nothing() -> None:
    scraped = Scraped()
    scraped.admit(manifest("a"), manifest("a"))
    assert scraped.counts() == both(source="node", kind="node_exclusive")


def test_a_restart_counts_nothing() -> None:
    scraped = Scraped()
    scraped.admit(manifest("a"))
    again = ResourceManagerMetrics()
    scraped.node.owner(again.decided)
    assert not again.allocations
    assert not again.assignments


def test_removal_takes_nothing_back() -> None:
    scraped = Scraped()
    scraped.admit(manifest("a"))
    scraped.owner.remove(PodUid("uid-a"), 0)
    assert scraped.counts() == both(source="node", kind="node_exclusive")


def test_shared_containers_of_the_node_count_nothing() -> None:
    scraped = Scraped()
    scraped.admit(best_effort("a"))
    assert scraped.counts() == {}


def test_a_fractional_guaranteed_container_is_exclusive_for_memory_alone() -> None:
    scraped = Scraped()
    scraped.admit(manifest("a", cpu="500m"))
    assert scraped.counts() == {
        ("allocations_total", "memory", "node"): 1.0,
        ("container_assignments", "memory", "node_exclusive"): 1.0,
    }


def test_a_pod_allocated_as_one_counts_each_of_its_containers_from_the_pod() -> None:
    scraped = Scraped()
    scraped.admit(budgeted("team"))
    expected: Counts = {}
    for resource in ("cpu", "memory"):
        expected["allocations_total", resource, "pod"] = 2.0
        expected["container_assignments", resource, "pod_exclusive"] = 1.0
        expected["container_assignments", resource, "pod_shared"] = 1.0
    assert scraped.counts() == expected


def test_in_container_scope_the_exclusive_container_comes_from_the_node() -> None:
    scraped = Scraped(Config(topology_scope=TopologyScope.CONTAINER))
    scraped.admit(budgeted("team"))
    assert scraped.counts() == both(source="node", kind="node_exclusive")


def test_a_refusal_by_a_manager_is_an_error_of_the_pool_it_was_asked_of() -> None:
    scraped = Scraped(Config(topology_policy=TopologyPolicy.NONE))
    scraped.admit(manifest("a", cpu="64"))
    assert scraped.counts() == {("allocation_errors_total", "cpu", "node"): 1.0}


def test_a_refusal_by_the_topology_manager_is_no_error_of_a_resource() -> None:
    scraped = Scraped()
    scraped.admit(manifest("a", cpu="64"))
    assert scraped.counts() == {}


def test_memory_counts_one_allocation_a_type() -> None:
    document = manifest("a", cpu="1", memory="64Mi")
    stated = {"cpu": "1", "memory": "64Mi", "hugepages-2Mi": "4Mi"}
    document["spec"]["containers"][0]["resources"] = {"requests": stated, "limits": stated}
    counters = ResourceManagerMetrics()
    plain = topology()
    machine = replace(plain, nodes=tuple(replace(node, hugepages={2048: 8}) for node in plain.nodes))
    owner = Node(machine=machine).owner(counters.decided)
    [pod] = load_manifests(json.dumps(document).encode(), "a.yaml", Gates())
    owner.admit(pod, "api")
    assert counters.allocations["memory", "node"] == 2
    assert counters.assignments["memory", "node_exclusive"] == 1


def test_init_containers_count_like_others() -> None:
    document = manifest("a", cpu="1", memory="64Mi")
    document["spec"]["initContainers"] = [{"name": "init", "resources": limits("1", "64Mi")}]
    scraped = Scraped()
    scraped.admit(document)
    assert scraped.counts()["container_assignments", "cpu", "node_exclusive"] == 2.0


def gauge(page: str, name: str) -> dict[str, float]:
    return {labels: float(value) for found, labels, value in SAMPLE.findall(page) if found == name}


def test_the_node_is_shown_as_it_is() -> None:
    scraped = Scraped()
    scraped.admit(manifest("a"), manifest("b", cpu="64"))
    page = scraped.page()
    assert gauge(page, "numalet_pods") == {
        'state="admitted"': 1.0,
        'state="degraded"': 0.0,
        'state="rejected"': 1.0,
    }
    assert gauge(page, "numalet_cpus") == {
        'numa_node="0",pool="exclusive"': 2.0,
        'numa_node="0",pool="shared"': 2.0,
        'numa_node="1",pool="exclusive"': 0.0,
        'numa_node="1",pool="shared"': 4.0,
    }
    memory = gauge(page, "numalet_memory_bytes")
    assert memory['numa_node="0",state="reserved",type="memory"'] == float(1 << 30)
    assert re.search(r'numalet_build_info\{version="[^"]+"\} 1\.0', page)


def test_without_a_cpu_policy_every_cpu_is_shared() -> None:
    off = Config(
        cpu_policy=CpuPolicy.NONE, memory_policy=MemoryPolicy.NONE, topology_policy=TopologyPolicy.NONE
    )
    cpus = gauge(Scraped(off).page(), "numalet_cpus")
    assert cpus['numa_node="0",pool="shared"'] == 4.0
    assert cpus['numa_node="0",pool="exclusive"'] == 0.0


def test_a_refused_pod_allocation_is_an_error_of_the_pods_pool() -> None:
    counters = ResourceManagerMetrics()
    counters.decided((Refused(WHOLE_POD, "memory", "UnexpectedAdmissionError", "no"),))
    assert counters.errors == {("memory", "pod"): 1}


def test_what_was_lost_drifted_or_is_degraded_is_counted() -> None:
    scraped = Scraped()
    scraped.admit(manifest("a"))
    scraped.node.store.files["cpu_manager_state"] = b""
    nodes = tuple(replace(node, memory=node.memory + (1 << 20)) for node in scraped.node.topology.nodes)
    lost = topology(offline=frozenset({1}))
    again = scraped.node.rebooted(replace(lost, nodes=nodes)).owner()
    page = exposition(NodeMetrics(scraped.counters, again.snapshot), "text/plain")[0].decode()
    assert gauge(page, "numalet_state_recoveries_total") == {
        'file="cpu_manager_state"': 1.0,
        'file="memory_manager_state"': 0.0,
        'file="pods"': 0.0,
    }
    assert gauge(page, "numalet_memory_drift_bytes") == {
        'numa_node="0"': float(1 << 20),
        'numa_node="1"': float(1 << 20),
    }
    assert gauge(page, "numalet_pods")['state="degraded"'] == 1.0
