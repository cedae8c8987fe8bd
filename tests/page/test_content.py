"""Budgets in parts, and HTML that is safe by construction."""

from __future__ import annotations

import pytest

from agent.api.page.budget import Share, cpu_budget, memory_budget
from agent.api.page.content import View, main
from agent.api.page.markup import Markup, element
from agent.cgroup.layout import CgroupDir
from agent.drawing.picture import Kind
from tests.containermanager.node import (
    GIB,
    Node,
    best_effort,
    budgeted,
    container_scope,
    limits,
    manifest,
    parsed,
)


def test_a_pod_that_ended_is_on_the_page_without_holdings() -> None:
    node, document = Node(), manifest("job")
    document["spec"]["restartPolicy"] = "Never"
    owner, pod, main_cgroup = node.owner(), parsed(document), CgroupDir("poduid-job/main")
    owner.admit(pod, "api")
    process = node.cgroups.spawn()
    node.cgroups.add_process(main_cgroup, process)
    owner.containers.changed([main_cgroup])
    node.cgroups.exit(process)
    owner.end(pod.uid)
    text = main(owner.snapshot(), owner.events.since(0), View(width=800))
    assert "0 admitted, 1 succeeded, 0 rejected" in text
    assert "it holds nothing any more" in text
    assert "ContainerExited" in text


def shares(node: Node, document: dict[str, object]) -> tuple[tuple[Share, ...], tuple[Share, ...]]:
    owner, pod = node.owner(), parsed(document)
    owner.admit(pod, "api")
    snapshot = owner.snapshot()
    entry = snapshot.pods[pod.uid]
    return cpu_budget(snapshot, entry), memory_budget(snapshot, entry)


def test_a_budget_is_slices_then_the_pod_shared_pool() -> None:
    cpus, memory = shares(Node(), budgeted("a"))
    assert cpus == (
        Share(Kind.EXCLUSIVE, 2, "main 1-2"),
        Share(Kind.POD_SHARED, 1, "pod shared pool 3"),
    )
    assert memory == (
        Share(Kind.EXCLUSIVE, GIB, "main 1.0 GiB"),
        Share(Kind.POD_SHARED, GIB, "pod shared 1.0 GiB"),
    )


def test_in_container_scope_the_rest_of_the_budget_is_the_nodes() -> None:
    cpus, memory = shares(Node(container_scope()), budgeted("a"))
    assert cpus == (
        Share(Kind.EXCLUSIVE, 2, "main 1-2"),
        Share(Kind.NODE_SHARED, 1, "node shared pool 1"),
    )
    assert memory == (
        Share(Kind.EXCLUSIVE, GIB, "main 1.0 GiB"),
        Share(Kind.NODE_SHARED, GIB, "up to 1.0 GiB"),
    )


def test_a_pod_without_exclusive_cpus_has_its_request_of_the_node_shared_pool() -> None:
    document = manifest("a")
    document["spec"] = {"containers": [{"name": "main", "resources": limits("1500m", "1Gi")}]}
    cpus, _ = shares(Node(), document)
    assert cpus == (Share(Kind.NODE_SHARED, 1.5, "node shared pool 1.5"),)


def test_a_pod_that_asks_for_nothing_has_no_budget() -> None:
    assert shares(Node(), best_effort("a")) == ((), ())


def test_what_an_init_container_lent_is_not_counted_twice() -> None:
    document = manifest("a")
    document["spec"]["initContainers"] = [{"name": "setup", "resources": limits("2", "64Mi")}]
    cpus, _ = shares(Node(), document)
    assert sum(share.amount for share in cpus) == 2


def test_text_is_escaped_and_markup_is_not() -> None:
    inner = element("b", '1 < 2 & "3"')
    assert element("p", "a<b", inner, title="'\"<>") == (
        '<p title="&#x27;&quot;&lt;&gt;">a&lt;b<b>1 &lt; 2 &amp; &quot;3&quot;</b></p>'
    )
    assert isinstance(inner, Markup)


def test_attributes_are_named_as_html_has_them() -> None:
    assert (
        element("i", class_="a", data_pod="b", open=True, hidden=False)
        == '<i class="a" data-pod="b" open></i>'
    )


@pytest.mark.parametrize("text", ["\x00", "\x1b[31m", "\x7f", "\ud800"])
def test_what_no_document_may_contain_is_replaced(text: str) -> None:
    assert element("p", text).encode()
    assert text[0] not in element("p", text)
