"""Names, labels, moments and formats of the resource_manager_* metrics (KEP-5526)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.admission import Managers
from agent.config import Config
from agent.containermanager import Decided
from agent.domain.pod import PodUid
from agent.domain.settings import TopologyPolicy, TopologyScope
from agent.domain.trace import WHOLE_POD, Refused
from tests.containermanager.node import best_effort, budgeted, limits, manifest, pod, topology
from tests.metrics.scraped import Scraped

OPENMETRICS = "application/openmetrics-text; version=1.0.0"

Counts = dict[tuple[str, str, str], float]


def counts(scraped: Scraped) -> Counts:
    """What differs from zero, by name, resource and source or assignment type."""
    found: Counts = {}
    for name in ("allocations_total", "allocation_errors_total", "container_assignments"):
        for labels, value in scraped.counted(f"resource_manager_{name}").items():
            first, second = labels.split(" ")
            resource, kind = (second, first) if name == "container_assignments" else (first, second)
            found[name, resource, kind] = value
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
    assert scraped.metrics.page(OPENMETRICS)[1].startswith("application/openmetrics-text")
    assert scraped.page(OPENMETRICS).endswith("# EOF\n")
    assert scraped.metrics.page("*/*")[1].startswith("text/plain")


def test_a_guaranteed_pod_counts_once_per_resource_from_the_node() -> None:
    scraped = Scraped()
    scraped.admit(manifest("a"))
    assert counts(scraped) == both(source="node", kind="node_exclusive")


def test_a_second_admission_counts_nothing() -> None:
    scraped = Scraped()
    scraped.admit(manifest("a"), manifest("a"))
    assert counts(scraped) == both(source="node", kind="node_exclusive")


def test_a_restart_counts_nothing() -> None:
    scraped = Scraped()
    scraped.admit(manifest("a"), budgeted("b"))
    scraped.start()
    assert counts(scraped) == {}


def test_removal_takes_nothing_back() -> None:
    scraped = Scraped()
    scraped.admit(manifest("a"))
    scraped.owner.remove(PodUid("uid-a"), 0)
    assert counts(scraped) == both(source="node", kind="node_exclusive")


def test_shared_containers_of_the_node_count_nothing() -> None:
    scraped = Scraped()
    scraped.admit(best_effort("a"))
    assert counts(scraped) == {}


def test_a_fractional_guaranteed_container_is_exclusive_for_memory_alone() -> None:
    scraped = Scraped()
    scraped.admit(manifest("a", cpu="500m"))
    assert counts(scraped) == {
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
    assert counts(scraped) == expected


def test_in_container_scope_the_exclusive_container_comes_from_the_node() -> None:
    scraped = Scraped(Config(topology_scope=TopologyScope.CONTAINER))
    scraped.admit(budgeted("team"))
    assert counts(scraped) == both(source="node", kind="node_exclusive")


def test_a_refusal_by_a_manager_is_an_error_of_the_pool_it_was_asked_of() -> None:
    scraped = Scraped(Config(topology_policy=TopologyPolicy.NONE))
    scraped.admit(manifest("a", cpu="64"))
    assert counts(scraped) == {("allocation_errors_total", "cpu", "node"): 1.0}


def test_a_refusal_by_the_topology_manager_is_no_error_of_a_resource() -> None:
    scraped = Scraped()
    scraped.admit(manifest("a", cpu="64"))
    assert counts(scraped) == {}


def test_memory_counts_one_allocation_a_type() -> None:
    document = manifest("a", cpu="1", memory="64Mi")
    stated = {"cpu": "1", "memory": "64Mi", "hugepages-2Mi": "4Mi"}
    document["spec"]["containers"][0]["resources"] = {"requests": stated, "limits": stated}
    plain = topology()
    machine = replace(plain, nodes=tuple(replace(node, hugepages={2048: 8}) for node in plain.nodes))
    scraped = Scraped(machine=machine)
    scraped.admit(document)
    assert counts(scraped)["allocations_total", "memory", "node"] == 2
    assert counts(scraped)["container_assignments", "memory", "node_exclusive"] == 1


def test_init_containers_count_like_others() -> None:
    document = manifest("a", cpu="1", memory="64Mi")
    document["spec"]["initContainers"] = [{"name": "init", "resources": limits("1", "64Mi")}]
    scraped = Scraped()
    scraped.admit(document)
    assert counts(scraped)["container_assignments", "cpu", "node_exclusive"] == 2.0


def test_a_refused_pod_allocation_is_an_error_of_the_pods_pool() -> None:
    scraped = Scraped()
    refused = Refused(WHOLE_POD, "memory", "UnexpectedAdmissionError", "no")
    managers: Managers = scraped.node.managers
    scraped.decisions.decided(
        Decided(pod=pod("a"), managers=managers, trace=(refused,), reason=refused.reason)
    )
    assert counts(scraped) == {("allocation_errors_total", "memory", "pod"): 1}
