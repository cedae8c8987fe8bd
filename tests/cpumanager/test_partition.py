"""KEP-5526: dividing a pod's CPUs, and refusing pods whose shared pool would be empty."""

from __future__ import annotations

import pytest

from agent.cpumanager.assignment import take
from agent.cpumanager.packed import Packed, Taken
from agent.cpumanager.partition import check_shared_pool, held_prefix, partition
from agent.cpumanager.tables import cpu_tables
from agent.domain.idset import CpuSet
from agent.domain.pod import Pod
from agent.domain.settings import Gates
from agent.errors import AdmissionError
from tests.cpumanager.build import container, machine, pod

TABLES = cpu_tables(machine(16, threads=1))


def lowest(available: CpuSet, n: int) -> Taken:
    return take(TABLES, available, n, Packed())


def divided(one: Pod, cpus: str, **held: str) -> dict[str, str]:
    kept = {name: CpuSet.parse(text) for name, text in held.items()}
    return {s.container: str(s.cpus) for s in partition(one, Gates(), CpuSet.parse(cpus), kept, lowest)}


BUSY = pod(
    "u",
    container("init-before", "5", "init"),
    container("shared-before", kind="init"),
    container("sidecar", "2", "sidecar"),
    container("shared-sidecar", kind="sidecar"),
    container("init-after", "5", "init"),
    container("shared-after", kind="init"),
    container("app", "3"),
    container("shared-app"),
    cpu="8",
)


def test_each_kind_gets_its_part() -> None:
    assert divided(BUSY, "0-7") == {
        "init-before": "0-4",
        "shared-before": "0-7",
        "sidecar": "0-1",
        "shared-sidecar": "5-7",
        "init-after": "2-6",
        "shared-after": "2-7",
        "app": "2-4",
        "shared-app": "5-7",
    }


def test_what_a_container_holds_it_keeps() -> None:
    slices = divided(BUSY, "0-7", **{"init-before": "1-5", "shared-before": "0-7", "sidecar": "6-7"})
    assert slices["sidecar"] == "6-7"
    assert slices["init-before"] == "1-5"
    assert slices["app"] == "0-2"
    assert slices["shared-app"] == "3-5"


def test_unused_cpus_stay_with_the_pod() -> None:
    assert divided(pod("u", container("a", "2"), cpu="8"), "0-7") == {"a": "0-1"}


@pytest.mark.parametrize(
    ("names", "is_prefix"),
    [("", True), ("a", True), ("ab", True), ("abc", True), ("b", False), ("ac", False)],
)
def test_a_prefix_has_no_hole(names: str, is_prefix: bool) -> None:
    one = pod("u", container("a", kind="init"), container("b"), container("c"), cpu="4")
    assert held_prefix(one, dict.fromkeys(names, CpuSet())) is is_prefix


REFUSED = [
    (
        pod("u", container("s", "3", "sidecar"), container("i", "2", "init"), container("a"), cpu="4"),
        "pod rejected, largest exclusive init container requests 2 cpus, but only 1 available",
    ),
    (
        pod("u", container("s", "4", "sidecar"), container("i", kind="init"), cpu="4"),
        "pod rejected, pod has shared init containers but no cpus available for them",
    ),
    (
        pod("u", container("a", "3"), container("b", "1"), container("c"), cpu="4"),
        (
            "pod rejected, sum of exclusive container cpu requests equals pod budget,"
            " leaving no cpus for shared containers"
        ),
    ),
    (
        pod("u", container("a", "4"), container("s", kind="sidecar"), cpu="4"),
        (
            "pod rejected, sum of exclusive container cpu requests equals pod budget,"
            " leaving no cpus for shared containers"
        ),
    ),
]


@pytest.mark.parametrize(("one", "message"), REFUSED, ids=["init", "shared init", "app", "sidecar"])
def test_an_empty_shared_pool_is_refused(one: Pod, message: str) -> None:
    with pytest.raises(AdmissionError) as refusal:
        check_shared_pool(one, Gates())
    assert refusal.value.message == message
    assert refusal.value.reason == "EmptyPodSharedPoolError"


@pytest.mark.parametrize(
    "one",
    [
        pod("u", container("a", "3"), container("b", "1"), cpu="4"),
        pod("u", container("a", "3"), container("b"), cpu="4"),
        pod("u", container("i", "4", "init"), container("a", "3"), container("b"), cpu="4"),
    ],
    ids=["nobody shares", "one is left", "an init container is gone by then"],
)
def test_a_pod_whose_containers_all_get_cpus_is_fine(one: Pod) -> None:
    check_shared_pool(one, Gates())
