"""QoS classes: of pods by containers, by pod-level resources, and of single containers."""

from __future__ import annotations

import pytest

from agent.domain.pod import Container, ContainerKind, Pod, PodUid, ResourceName, Resources
from agent.domain.qos import QosClass, is_guaranteed_equivalent, qos_class
from agent.domain.quantity import Quantity, parse_quantity


def amounts(text: str) -> dict[ResourceName, Quantity]:
    """``cpu=1 memory=1Gi`` as a resource list."""
    pairs = (part.split("=") for part in text.split())
    return {ResourceName(name): parse_quantity(value) for name, value in pairs}


def resources(requests: str = "", limits: str = "") -> Resources:
    return Resources(requests=amounts(requests), limits=amounts(limits))


BOTH = "cpu=1 memory=1Gi"
FULL = resources(BOTH, BOTH)


def pod(
    *containers: Resources, level: Resources | None = None, kind: ContainerKind = ContainerKind.APP
) -> Pod:
    return Pod(
        name="p",
        namespace="default",
        uid=PodUid("u"),
        containers=tuple(
            Container(name=f"c{i}", kind=kind if i == 0 else ContainerKind.APP, resources=stated)
            for i, stated in enumerate(containers)
        ),
        resources=level or Resources(),
    )


BY_CONTAINERS = {
    "nothing stated": (pod(resources()), QosClass.BEST_EFFORT),
    "only zeros": (pod(resources("cpu=0", "memory=0")), QosClass.BEST_EFFORT),
    "only another resource": (pod(resources("a.b/gpu=1", "a.b/gpu=1")), QosClass.BEST_EFFORT),
    "all equal": (pod(FULL, FULL), QosClass.GUARANTEED),
    "equal in other words": (
        pod(resources("cpu=1000m memory=1Gi", "cpu=1 memory=1024Mi")),
        QosClass.GUARANTEED,
    ),
    "one container without": (pod(FULL, resources()), QosClass.BURSTABLE),
    "no memory": (pod(resources("cpu=1", "cpu=1")), QosClass.BURSTABLE),
    "request below limit": (pod(resources(BOTH, "cpu=2 memory=1Gi")), QosClass.BURSTABLE),
    "only requests": (pod(resources(BOTH)), QosClass.BURSTABLE),
    "an init container without": (pod(resources(), FULL, kind=ContainerKind.INIT), QosClass.BURSTABLE),
}
BY_POD = {
    "budget decides, containers say nothing": (pod(resources(), level=FULL), QosClass.GUARANTEED),
    "budget without memory": (pod(FULL, level=resources("cpu=1", "cpu=1")), QosClass.BURSTABLE),
    "budget of zero": (pod(FULL, level=resources("cpu=0", "cpu=0")), QosClass.BEST_EFFORT),
    "budget of another resource is none": (pod(FULL, level=resources("x=1", "x=1")), QosClass.GUARANTEED),
    "budget of huge pages alone": (
        pod(FULL, level=resources("hugepages-2Mi=2Mi", "hugepages-2Mi=2Mi")),
        QosClass.BEST_EFFORT,
    ),
    "requests alone": (pod(FULL, level=resources(BOTH)), QosClass.BURSTABLE),
}
ALL = {**BY_CONTAINERS, **BY_POD}


@pytest.mark.parametrize(("one", "expected"), ALL.values(), ids=ALL.keys())
def test_the_class_of_a_pod(one: Pod, expected: QosClass) -> None:
    assert qos_class(one) is expected


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        (FULL, True),
        (resources("cpu=500m memory=1Gi", "cpu=500m memory=1Gi"), True),
        (resources("cpu=1", "cpu=1"), False),
        (resources("cpu=0 memory=1Gi", "cpu=0 memory=1Gi"), False),
        (resources(BOTH, "cpu=2 memory=1Gi"), False),
        (resources(), False),
    ],
    ids=["both", "fraction of a cpu", "no memory", "zero cpu", "burstable", "nothing"],
)
def test_a_container_is_guaranteed_equivalent_when_cpu_and_memory_are_pinned(
    stated: Resources, expected: bool
) -> None:
    assert is_guaranteed_equivalent(Container(name="c", resources=stated)) is expected
