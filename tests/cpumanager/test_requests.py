"""How many exclusive CPUs, and why none."""

from __future__ import annotations

import pytest

from agent.cpumanager.requests import guaranteed_cpus, pod_guaranteed_cpus, why_pod_shares, why_shared
from agent.domain.pod import CPU, MEMORY, Container, Pod, Resources
from agent.domain.quantity import parse_quantity
from agent.domain.settings import Gates
from tests.cpumanager.build import container, pod

OPEN = Gates()
SHUT = Gates(pod_level_resource_managers=False)
LOOSE = Container(
    name="c",
    resources=Resources(
        requests={CPU: parse_quantity("2"), MEMORY: parse_quantity("1Gi")},
        limits={CPU: parse_quantity("3"), MEMORY: parse_quantity("1Gi")},
    ),
)

SHARING = [
    (pod("u", LOOSE), OPEN, "the pod is Burstable, exclusive CPUs are for Guaranteed pods"),
    (pod("u", container("c")), OPEN, "the pod is BestEffort, exclusive CPUs are for Guaranteed pods"),
    (pod("u", container("c", "1500m")), OPEN, "its CPU request 1500m is not a whole number"),
    (pod("u", container("c", "500m"), cpu="4"), OPEN, "its CPU request 500m is not a whole number"),
    (pod("u", container("c"), cpu="4"), OPEN, "its requests of cpu and memory are not both set and equal"),
    (pod("u", LOOSE, cpu="4"), OPEN, "its requests of cpu and memory are not both set"),
    (pod("u", container("c", "2"), cpu="4"), SHUT, "pod-level resources are not managed"),
]


@pytest.mark.parametrize(("shared", "gates", "why"), SHARING, ids=[why for *_, why in SHARING])
def test_a_container_that_shares_is_told_why(shared: Pod, gates: Gates, why: str) -> None:
    assert guaranteed_cpus(shared, shared.containers[0], gates) == 0
    assert why_shared(shared, shared.containers[0], gates).startswith(why)


@pytest.mark.parametrize(("given", "n"), [("2", 2), ("2000m", 2), ("2e0", 2), ("1999.5m", 2), ("2.0", 2)])
def test_whole_cpus_of_a_guaranteed_pod_are_exclusive(given: str, n: int) -> None:
    one = pod("u", container("c", given))
    assert guaranteed_cpus(one, one.containers[0], OPEN) == n


def test_a_guaranteed_equivalent_container_of_a_pod_with_a_budget_is_exclusive() -> None:
    one = pod("u", container("c", "2"), cpu="4")
    assert guaranteed_cpus(one, one.containers[0], OPEN) == 2


PODS = [
    ("app containers add up", pod("u", container("a", "2"), container("b", "3")), 5),
    ("init containers run one at a time", pod("u", container("i", "4", "init"), container("a", "2")), 4),
    (
        "sidecars add to what starts after them",
        pod("u", container("s", "1", "sidecar"), container("i", "4", "init"), container("a", "2")),
        5,
    ),
    (
        "sidecars do not add to what ran before them",
        pod("u", container("i", "4", "init"), container("s", "1", "sidecar"), container("a", "2")),
        4,
    ),
    ("shared containers do not count", pod("u", container("a", "2"), container("b", "500m")), 2),
    ("a budget is what counts", pod("u", container("a", "2"), cpu="6"), 6),
    ("a budget that is not whole", pod("u", container("a", "2"), cpu="6500m"), 0),
]


@pytest.mark.parametrize(("one", "n"), [(one, n) for _, one, n in PODS], ids=[name for name, *_ in PODS])
def test_the_pods_cpus(one: Pod, n: int) -> None:
    assert pod_guaranteed_cpus(one, OPEN) == n


def test_a_pod_that_shares_is_told_why() -> None:
    assert why_pod_shares(pod("u", cpu="1500m"), OPEN) == (
        "its pod-level CPU request 1500m is not a whole number"
    )
    assert why_pod_shares(pod("u", cpu="2"), SHUT).startswith("pod-level resources are not managed")
    burstable = Pod(
        name="u",
        namespace="ns",
        uid=pod("u").uid,
        containers=(),
        resources=Resources(requests={CPU: parse_quantity("2")}),
    )
    assert why_pod_shares(burstable, OPEN).startswith("the pod is Burstable")
