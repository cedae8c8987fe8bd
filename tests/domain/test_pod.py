"""The small questions a pod answers."""

from __future__ import annotations

import pytest

from agent.domain.pod import Container, Pod, PodUid, ResourceName, Resources, is_hugepages, is_memory_type
from agent.domain.quantity import ZERO, Quantity

CPU_ONE = {ResourceName("cpu"): Quantity.whole(1)}
POD = Pod(name="p", namespace="n", uid=PodUid("u"), containers=(Container(name="a"), Container(name="b")))


def test_a_container_is_found_by_name() -> None:
    assert POD.container("b") is POD.containers[1]
    assert POD.container("c") is None
    assert POD.full_name == "n/p"


def test_a_resource_that_is_not_stated_is_zero() -> None:
    stated = Resources(limits=CPU_ONE)
    assert stated.limit(ResourceName("cpu")) == Quantity.whole(1)
    assert stated.request(ResourceName("cpu")) == ZERO


@pytest.mark.parametrize(
    ("name", "memory", "huge"),
    [
        ("memory", True, False),
        ("hugepages-2Mi", True, True),
        ("cpu", False, False),
        ("a.b/hugepages-1", False, False),
    ],
)
def test_memory_types_are_memory_and_huge_pages(name: str, memory: bool, huge: bool) -> None:
    assert is_memory_type(ResourceName(name)) is memory
    assert is_hugepages(ResourceName(name)) is huge


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        (Resources(), False),
        (Resources(limits=CPU_ONE), True),
        (Resources(requests={ResourceName("hugepages-1Gi"): ZERO}), True),
        (Resources(requests={ResourceName("a.b/gpu"): Quantity.whole(1)}), False),
    ],
)
def test_pod_level_resources_count_when_a_supported_one_is_stated(stated: Resources, expected: bool) -> None:
    pod = Pod(name="p", namespace="n", uid=PodUid("u"), containers=(), resources=stated)
    assert pod.has_pod_level_resources is expected


def test_the_kept_manifest_does_not_make_pods_differ() -> None:
    other = Pod(name="p", namespace="n", uid=PodUid("u"), containers=POD.containers, manifest={"spec": {}})
    assert other == POD
