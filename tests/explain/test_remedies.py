"""What a refusal tells to do, and that doing it helps."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.admission import Admitted, admit
from agent.cli.scratch import Scratch
from agent.domain.pod import CPU, MEMORY, Pod, Resources
from agent.domain.quantity import Quantity
from agent.domain.settings import MemoryPolicy, TopologyPolicy, TopologyScope
from agent.explain.edits import with_amounts
from agent.explain.emptypool import empty_pools, lowered, raised
from tests.explain.build import container, numa, pod, resources, scratch, way_out

SMT = {"full-pcpus-only": "true"}


def test_an_empty_pool_names_who_takes_what_and_both_ways_out() -> None:
    three_one = pod(
        "app", [container("a", 2), container("b", 1), container("logging-sidecar")], resources(3, "2Gi")
    )
    assert way_out(scratch(), three_one) == (
        "cpu: 3 requested; 2 + 1 go to exclusive slices (a, b); logging-sidecar needs at least 1:"
        " raise spec.resources cpu to 4, or lower cpu of a to 1"
    )


def test_a_raise_that_the_node_has_no_room_for_is_said_to_be_one() -> None:
    all_cpus = pod("app", [container("a", 4), container("b", 3), container("c")], resources(7, "2Gi"))
    assert way_out(scratch(), all_cpus) == (
        "cpu: 7 requested; 4 + 3 go to exclusive slices (a, b); c needs at least 1:"
        " raise spec.resources cpu to 8, though that alone does not make it fit here"
    )


def test_empty_pools_of_cpu_and_memory_are_mended_in_one_go() -> None:
    both = pod("app", [container("a", 2, "1Gi"), container("b")], resources(2, "1Gi"))
    assert way_out(scratch(), both) == (
        "cpu: 2 requested; 2 goes to the exclusive slice of a; b needs at least 1;"
        " memory: 1Gi requested; 1Gi goes to the exclusive slice of a; b needs some:"
        " raise spec.resources cpu to 3 and memory to 1025Mi,"
        " or lower cpu of a to 1 and memory of a to 1023Mi"
    )


def test_huge_pages_grow_by_a_page() -> None:
    pages = pod(
        "app",
        [container("a", 1, "512Mi", hugepages_2Mi="8Mi"), container("b")],
        resources(2, "1Gi", hugepages_2Mi="8Mi"),
    )
    assert way_out(scratch(numa(hugepages=64)), pages) == (
        "hugepages-2Mi: 8Mi requested; 8Mi goes to the exclusive slice of a; b needs at least 2Mi:"
        " raise spec.resources hugepages-2Mi to 10Mi, or lower hugepages-2Mi of a to 6Mi"
    )


PROXY = {**container("proxy", 2), "restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("init", "budget", "text"),
    [
        pytest.param(
            container("init", 2),
            3,
            "cpu: 3 requested; 2 goes to the exclusive slice of proxy; init needs 2:"
            " raise spec.resources cpu to 4, or lower cpu of proxy to 1",
            id="exclusive init container",
        ),
        pytest.param(
            container("init"),
            2,
            "cpu: 2 requested; 2 goes to the exclusive slice of proxy; init needs at least 1:"
            " raise spec.resources cpu to 3, or lower cpu of proxy to 1",
            id="shared init container",
        ),
    ],
)
def test_an_init_container_runs_beside_the_sidecars_before_it(
    init: dict[str, Any], budget: int, text: str
) -> None:
    valid = pod("app", [container("a")], resources(4, "2Gi"), init=[PROXY, init])
    cpus = Quantity.whole(budget)  # less than validation lets through: the managers check it again
    stated = {CPU: cpus, MEMORY: valid.resources.request(MEMORY)}
    one = replace(valid, resources=Resources(requests=stated, limits=stated))
    assert way_out(scratch(), one) == text


def test_under_full_pcpus_only_the_budget_grows_by_whole_cores() -> None:
    whole = pod("app", [container("a", 1), container("b", 1), container("c")], resources(2, "2Gi"))
    assert "raise spec.resources cpu to 4" in way_out(scratch(cpu_options=SMT), whole)


@pytest.mark.parametrize(
    ("one", "text"),
    [
        pytest.param(
            pod("app", [container("a", 1), container("b")], resources(3, "1Gi")),
            "full-pcpus-only gives out whole cores of 2 CPUs: change spec.resources cpu to 4 or 2",
            id="budget",
        ),
        pytest.param(
            pod("app", [container("a", 1)]),
            "full-pcpus-only gives out whole cores of 2 CPUs: change cpu of a to 2",
            id="one CPU can only grow",
        ),
        pytest.param(
            pod("app", [container("a", 8)]),
            "8 CPUs wanted, 6 free in all: NUMA node 0: 2 of 3 CPUs; NUMA node 1: 4 of 4 CPUs."
            " Lower cpu of a to 6",
            id="not enough cores",
        ),
    ],
)
def test_whole_cores(one: Pod, text: str) -> None:
    policy = (
        TopologyPolicy.NONE
        if one.containers[0].resources.request(CPU).value == 8
        else TopologyPolicy.RESTRICTED
    )
    assert way_out(scratch(cpu_options=SMT, topology_policy=policy), one) == text


def full_node(**config: Any) -> Scratch:
    """Node 0 has 1 of 3 CPUs left, node 1 has 2 of 4."""
    node = scratch(**config)
    for name in ("first", "second"):
        assert node.rehearse(pod(name, [container("a", 2)]), f"{name}.yaml").refusal is None
    return node


@pytest.mark.parametrize("policy", [TopologyPolicy.RESTRICTED, TopologyPolicy.SINGLE_NUMA_NODE])
def test_a_full_node_says_which_numa_node_comes_closest_and_what_is_missing(policy: TopologyPolicy) -> None:
    assert way_out(full_node(topology_policy=policy), pod("third", [container("a", 3)])) == (
        "3 CPUs and memory 512Mi wanted from 1 NUMA node; free: NUMA node 0: 1 of 3 CPUs;"
        " NUMA node 1: 2 of 4 CPUs; NUMA node 1 comes closest, 1 CPU is missing."
        " Lower cpu of a to 2, or delete pods that hold CPUs on NUMA node 1,"
        " or set topologyManagerPolicy best-effort, which takes other NUMA nodes too"
    )


def test_cpu_and_memory_that_need_different_numbers_of_nodes_never_meet() -> None:
    assert way_out(scratch(), pod("app", [container("a", 2, "5Gi")])) == (
        "2 CPUs take 1 NUMA node, memory 5Gi takes 2 NUMA nodes; restricted wants both from the same"
        " nodes, and no more than needed. Lower memory of a to 4Gi, or raise cpu of a to 5,"
        " or set topologyManagerPolicy best-effort, which takes other NUMA nodes too"
    )


@pytest.mark.parametrize(("nodes", "remark"), [(8, ""), (9, " (not rehearsed on 9 NUMA nodes)")])
def test_best_effort_is_rehearsed_where_that_is_cheap(nodes: int, remark: str) -> None:
    assert way_out(scratch(numa(nodes)), pod("app", [container("a", 2, "5Gi")])).endswith(
        "or set topologyManagerPolicy best-effort, which takes other NUMA nodes too" + remark
    )


def test_memory_that_no_node_has_is_refused_at_allocation_and_that_is_explained_as_well() -> None:
    node = scratch()
    for name in ("first", "second"):
        assert node.rehearse(pod(name, [container("a", 1, "3Gi")]), f"{name}.yaml").refusal is None
    assert way_out(node, pod("third", [container("a", 1, "2Gi")])) == (
        "1 CPU and memory 2Gi wanted from 1 NUMA node; free: NUMA node 0: memory 924Mi of 3996Mi;"
        " NUMA node 1: memory 1Gi of 4Gi; NUMA node 1 comes closest, memory 1Gi is missing."
        " Lower memory of a to 1Gi, or delete pods that hold memory on NUMA node 1"
    )


def test_a_node_whose_memory_serves_a_group_has_none_for_a_pod_alone() -> None:
    node = scratch()
    assert node.rehearse(pod("wide", [container("a", 5, "5Gi")]), "wide.yaml").refusal is None
    assert "memory in use as one group, NUMA nodes 0-1" in way_out(node, pod("app", [container("a", 1)]))


def test_more_than_the_machine_has() -> None:
    assert way_out(scratch(), pod("app", [container("a", 64)])) == (
        "64 CPUs wanted, but all of this machine has 7 CPUs for pods. Lower cpu of a to 4"
    )


def test_under_topology_policy_none_the_whole_machine_counts() -> None:
    node = scratch(topology_policy=TopologyPolicy.NONE)
    node.rehearse(pod("first", [container("a", 4)]), "a.yaml")
    assert way_out(node, pod("second", [container("a", 4)])) == (
        "4 CPUs wanted, 3 free in all: NUMA node 0: 3 of 3 CPUs; NUMA node 1: 0 of 4 CPUs."
        " Lower cpu of a to 3, or delete pods that hold CPUs"
    )


def test_a_fraction_of_a_byte_keeps_the_managers_own_hint() -> None:
    half = pod("app", [container("a", 1, "1500m")])
    assert way_out(scratch(), half) == "memory 1500m is not a whole number of bytes"


def test_a_pod_that_holds_other_amounts_must_go_first() -> None:
    node = scratch()
    node.rehearse(pod("app", [container("a", 2)]), "a.yaml")
    node.done.clear()  # as if an earlier run had admitted it
    assert way_out(node, pod("app", [container("a", 3)])) == (
        "container a already holds 2 CPUs (2-3) but requests 3: delete the pod, then apply it anew"
    )


SIZES = st.integers(1, 6)
CONTAINERS = st.lists(st.one_of(st.none(), SIZES), min_size=1, max_size=4)
CONFIGS = st.fixed_dictionaries(
    {
        "topology_policy": st.sampled_from(TopologyPolicy),
        "topology_scope": st.sampled_from(TopologyScope),
        "memory_policy": st.sampled_from(MemoryPolicy),
        "cpu_options": st.sampled_from([{}, SMT, {"strict-cpu-reservation": "true"}]),
    }
)


@given(CONFIGS, st.lists(st.tuples(CONTAINERS, st.booleans()), max_size=4))
def test_every_refusal_has_a_way_out_and_following_it_helps(
    config: dict[str, Any], shapes: list[tuple[list[int | None], bool]]
) -> None:
    node = scratch(**config)
    for number, (sizes, level) in enumerate(shapes):
        containers = [container(f"c{i}", size) for i, size in enumerate(sizes)]
        total = sum(size or 0 for size in sizes)
        one = pod(f"p{number}", containers, resources(max(total, 1), "4Gi") if level else None)
        rehearsed = node.rehearse(one, "p.yaml")
        if rehearsed.refusal is None:
            continue
        remedy = rehearsed.refusal.remedy
        assert remedy
        found = re.search(r"lower cpu of (\w+) to (\d+)(?:,|$)", remedy, re.IGNORECASE)
        if found:
            name, size = found[1], int(found[2])
            now = next(c.resources.request(CPU).value for c in one.containers if c.name == name)
            edit = with_amounts(one, name, {CPU: now}, {CPU: size})
            assert edit is not None
            assert isinstance(admit(node.machine.managers, node.state, edit.pod), Admitted)


@given(CONTAINERS, st.integers(0, 2))
def test_the_raised_budget_is_the_smallest_that_leaves_a_pool(sizes: list[int | None], more: int) -> None:
    chosen = scratch().machine.settings
    total = sum(size or 0 for size in sizes)
    one = pod(
        "app", [container(f"c{i}", s) for i, s in enumerate(sizes)], resources(max(total, 1) + more, "8Gi")
    )
    pools = empty_pools(one, chosen)
    assert bool(pools) == (None in sizes and total > 0 and more == 0)
    edit = raised(one, pools, 1)
    if pools:
        assert edit is not None
        assert empty_pools(edit.pod, chosen) == ()
        assert edit.pod.resources.request(CPU).value == total + 1
        less = lowered(one, pools)
        assert less is None or empty_pools(less.pod, chosen) == ()
