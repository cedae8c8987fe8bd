"""What the PodResources API says of pods (KEP-5526, API section), read by an independent client."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.api.podresources.answers import Answers
from agent.api.podresources.v1 import api_pb2 as v1
from agent.config import Config
from agent.domain.pod import PodUid
from agent.domain.settings import CpuPolicy, Gates, MemoryPolicy, TopologyPolicy
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
from tests.podresources.reference import Client, RefusedError, message_class, plain
from tests.podresources.serving import Serving, serving

Json = dict[str, Any]

ALLOCATABLE_NODE_0 = 4 * GIB - (100 << 20)
"""Less the eviction threshold, which is reserved there."""


@pytest.fixture
def pod_scope(tmp_path: Path) -> Iterator[tuple[Serving, Client]]:
    with serving(tmp_path) as both:
        yield both


def memory(size: int, *nodes: int, kind: str = "memory") -> Json:
    """A block; the number 0 is a default, and defaults are left out."""
    return {
        "memory_type": kind,
        "size": size,
        "topology": {"nodes": [{"ID": node} if node else {} for node in nodes]},
    }


def test_a_pod_allocated_as_one_shows_all_it_has_and_its_containers_slices_of_that(
    pod_scope: tuple[Serving, Client],
) -> None:
    served, client = pod_scope
    served.admit(budgeted("a"))
    assert client.list() == {
        "a": {
            "name": "a",
            "namespace": "default",
            "cpu_ids": [1, 2, 3],
            "memory": [memory(2 * GIB, 0)],
            "containers": [
                {"name": "main", "cpu_ids": [1, 2], "memory": [memory(GIB, 0)]},
                {"name": "helper"},
            ],
        }
    }


def test_in_container_scope_a_pod_has_nothing_of_its_own(tmp_path: Path) -> None:
    with serving(tmp_path, container_scope()) as (served, client):
        served.admit(budgeted("a"))
        assert client.get("a") == {
            "name": "a",
            "namespace": "default",
            "containers": [
                {"name": "main", "cpu_ids": [1, 2], "memory": [memory(GIB, 0)]},
                {"name": "helper"},
            ],
        }


@pytest.mark.parametrize("config", [Config(), container_scope()], ids=["pod scope", "container scope"])
def test_a_pod_without_pod_level_resources_shows_its_containers_only(tmp_path: Path, config: Config) -> None:
    with serving(tmp_path, config) as (served, client):
        served.admit(manifest("a"), best_effort("b"))
        container = {"name": "main", "cpu_ids": [1, 2], "memory": [memory(GIB, 0)]}
        assert client.list() == {
            "a": {"name": "a", "namespace": "default", "containers": [container]},
            "b": {"name": "b", "namespace": "default", "containers": [{"name": "main"}]},
        }


def test_with_the_gate_off_a_pod_with_pod_level_resources_holds_nothing(tmp_path: Path) -> None:
    with serving(tmp_path, Config(gates=Gates(pod_level_resource_managers=False))) as (served, client):
        served.admit(budgeted("a"), manifest("b"))
        pods = client.list()
        assert pods["a"]["containers"] == [{"name": "main"}, {"name": "helper"}]
        assert pods["a"].keys() == {"name", "namespace", "containers"}
        assert pods["b"]["containers"][0]["cpu_ids"] == [1, 2]


def test_with_the_managers_off_there_are_only_names(tmp_path: Path) -> None:
    off = Config(
        cpu_policy=CpuPolicy.NONE, memory_policy=MemoryPolicy.NONE, topology_policy=TopologyPolicy.NONE
    )
    with serving(tmp_path, off) as (served, client):
        served.admit(budgeted("a"), manifest("b"))
        assert [pod["containers"] for pod in client.list().values()] == [
            [{"name": "main"}, {"name": "helper"}],
            [{"name": "main"}],
        ]
        assert client.allocatable() == {}


def test_a_container_with_a_part_of_a_cpu_shares_cpus_but_not_memory(
    pod_scope: tuple[Serving, Client],
) -> None:
    served, client = pod_scope
    document = budgeted("a")
    document["spec"]["containers"][1]["resources"] = limits("500m", "256Mi")
    served.admit(document)
    assert client.get("a")["containers"][1] == {"name": "helper", "memory": [memory(256 << 20, 0)]}


def test_sidecars_are_listed_before_apps_and_standard_init_containers_are_not(
    pod_scope: tuple[Serving, Client],
) -> None:
    served, client = pod_scope
    document = budgeted("a", cpu="4")
    document["spec"]["initContainers"] = [
        {"name": "setup", "resources": limits("1", "64Mi")},
        {"name": "proxy", "resources": limits("1", "64Mi"), "restartPolicy": "Always"},
    ]
    served.admit(document)
    held = client.get("a")
    assert [container["name"] for container in held["containers"]] == ["proxy", "main", "helper"]
    proxy, main, helper = held["containers"]
    assert set(proxy["cpu_ids"]) | set(main["cpu_ids"]) < set(held["cpu_ids"])
    assert set(proxy["cpu_ids"]).isdisjoint(main["cpu_ids"])
    assert "cpu_ids" not in helper
    names = client.call("v1alpha1.PodResourcesLister/List")["pod_resources"]
    assert names == [
        {"name": "a", "namespace": "default", "containers": [{"name": "main"}, {"name": "helper"}]}
    ]


def test_pods_come_in_the_order_of_admission_and_only_while_they_are_active(
    pod_scope: tuple[Serving, Client],
) -> None:
    served, client = pod_scope
    served.admit(best_effort("z"), manifest("too-big", cpu="64"), best_effort("a"), best_effort("m"))
    assert list(client.list()) == ["z", "a", "m"]
    served.owner.remove(PodUid("uid-a"), 0)
    assert list(client.list()) == ["z", "m"]
    for name in ("too-big", "a"):
        with pytest.raises(RefusedError, match="not found"):
            client.get(name)


def test_pods_of_one_name_are_told_apart_by_namespace(pod_scope: tuple[Serving, Client]) -> None:
    served, client = pod_scope
    other = best_effort("a")
    other["metadata"] |= {"namespace": "prod", "uid": "uid-prod"}
    served.admit(manifest("a"), other)
    assert "cpu_ids" in client.get("a")["containers"][0]
    assert client.get("a", "prod") == {"name": "a", "namespace": "prod", "containers": [{"name": "main"}]}


def test_get_says_of_a_pod_what_list_says(pod_scope: tuple[Serving, Client]) -> None:
    served, client = pod_scope
    served.admit(budgeted("a"), manifest("b"))
    assert {name: client.get(name) for name in ("a", "b")} == client.list()


def test_an_unknown_pod_is_the_kubelets_error(pod_scope: tuple[Serving, Client]) -> None:
    _served, client = pod_scope
    with pytest.raises(RefusedError) as caught:
        client.get("nobody", "nowhere")
    assert caught.value.code is grpc.StatusCode.UNKNOWN
    assert caught.value.details == "pod nobody in namespace nowhere not found"


def test_allocatable_is_all_but_what_is_reserved_whoever_holds_it(pod_scope: tuple[Serving, Client]) -> None:
    served, client = pod_scope
    expected = {
        "cpu_ids": [1, 2, 3, 4, 5, 6, 7],
        "memory": [memory(ALLOCATABLE_NODE_0, 0), memory(4 * GIB, 1)],
    }
    assert client.allocatable() == expected
    served.admit(budgeted("a"), manifest("b"))
    assert client.allocatable() == expected


def test_while_the_machine_cannot_be_told_pods_still_can(pod_scope: tuple[Serving, Client]) -> None:
    served, client = pod_scope
    served.admit(manifest("a"))
    served.snapshot = lambda: replace(served.owner.snapshot(), withdrawn="discovery failed")
    with pytest.raises(RefusedError, match="discovery failed") as caught:
        client.allocatable()
    assert caught.value.code is grpc.StatusCode.UNAVAILABLE
    assert served.counts["errors_get_allocatable", "v1"] == 1
    assert list(client.list()) == ["a"]


def test_a_fault_of_ours_is_an_internal_error_and_not_the_end(
    pod_scope: tuple[Serving, Client], caplog: pytest.LogCaptureFixture
) -> None:
    served, client = pod_scope

    def broken() -> Any:
        raise ZeroDivisionError("a fault of ours")

    served.snapshot = broken
    with pytest.raises(RefusedError, match="internal error: a fault of ours") as caught:
        client.list()
    assert caught.value.code is grpc.StatusCode.INTERNAL
    assert served.counts["errors_list", "v1"] == 1
    assert "PodResources call failed: list" in caplog.text
    served.snapshot = served.owner.snapshot
    assert client.list() == {}


OPERATIONS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(["plain", "budget", "none", "remove"])), max_size=12
)


@given(OPERATIONS)
@settings(max_examples=25)
def test_what_is_kept_of_earlier_lists_is_never_stale(operations: list[tuple[int, str]]) -> None:
    owner = Node().owner()
    kept = Answers(owner.snapshot)
    request = v1.ListPodResourcesRequest()
    for number, what in operations:
        name = f"p{number}"
        if what == "remove":
            owner.remove(PodUid(f"uid-{name}"), 0)
        else:
            make = {"plain": manifest, "budget": budgeted, "none": best_effort}[what]
            owner.admit(parsed(make(name)), "api")
        answer = kept.list(request)
        assert answer == Answers(owner.snapshot).list(request)
        shown = plain(message_class("v1.ListPodResourcesResponse").FromString(answer))
        listed = [pod["name"] for pod in shown.get("pod_resources", ())]
        assert listed == [entry.pod.name for entry in owner.snapshot().pods.values()]
