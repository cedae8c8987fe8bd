"""One allocation for a pod with pod-level resources (KEP-5526, pod scope)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.domain.outcome import Isolation
from agent.domain.pod import MEMORY, ContainerKind, Pod, PodUid, Resources
from agent.domain.quantity import parse_quantity
from agent.domain.settings import Gates
from agent.domain.state import MemoryState
from agent.domain.trace import WHOLE_POD, Kept, MemoryGranted, Pool, Shared
from agent.errors import AdmissionError
from tests.memorymanager.build import (
    HUGE_2MI,
    MIB,
    NO_HINT,
    admit,
    app,
    block,
    entries,
    hint,
    init,
    manager,
    pod,
    reserved_and_assigned,
    resources,
    sharing,
    sidecar,
)

U1 = PodUid("u1")
INIT, SIDECAR = ContainerKind.INIT, ContainerKind.SIDECAR

PARTS = [
    pytest.param(
        pod(app("a", 10), sharing("b"), budget=resources(64)), {"a": 10, "b": 54}, id="app-and-shared"
    ),
    pytest.param(pod(sharing("a"), sharing("b"), budget=resources(64)), {"a": 64, "b": 64}, id="all-share"),
    pytest.param(
        pod(app("a", 32), app("b", 32), budget=resources(64)), {"a": 32, "b": 32}, id="all-exclusive"
    ),
    pytest.param(pod(app("a", 32), budget=resources(64)), {"a": 32}, id="the-rest-stays-with-the-pod"),
    pytest.param(
        pod(sidecar("s", 4), init("i", 60), app("a", 10), sharing("b"), budget=resources(64)),
        {"s": 4, "i": 60, "a": 10, "b": 50},
        id="init-runs-beside-the-sidecar-only",
    ),
    pytest.param(
        pod(sharing("i", INIT), sidecar("s", 4), sharing("j", INIT), app("a", 10), budget=resources(64)),
        {"i": 64, "s": 4, "j": 60, "a": 10},
        id="shared-init-sees-the-sidecars-so-far",
    ),
    pytest.param(
        pod(sharing("s", SIDECAR), sidecar("t", 4), app("a", 10), budget=resources(64)),
        {"s": 50, "t": 4, "a": 10},
        id="shared-sidecar-gets-the-final-pool",
    ),
]


@pytest.mark.parametrize(("one", "sizes"), PARTS)
def test_how_a_budget_is_divided(one: Pod, sizes: dict[str, int]) -> None:
    static = manager([100, 100])
    after = static.allocate_pod(static.restore(MemoryState()), one, hint("1")).state
    assert entries(after) == {name: (block("1", size),) for name, size in sizes.items()}
    assert after.pod_entries == {U1: (block("1", 64),)}
    assert reserved_and_assigned(after) == [(0, 0, "0"), (64, 1, "1")]


def test_types_are_divided_each_for_itself() -> None:
    static = manager([100], [50])
    one = pod(app("a", 10, 4), sharing("b"), budget=resources(64, 8))
    after = static.allocate_pod(static.restore(MemoryState()), one, NO_HINT).state
    assert entries(after) == {
        "a": (block("0", 4, HUGE_2MI), block("0", 10)),
        "b": (block("0", 4, HUGE_2MI), block("0", 54)),
    }


REFUSED = [
    pytest.param(
        pod(sidecar("s", 10), init("i", 60), app("a", 1), budget=resources(64)),
        f"largest exclusive init container requests {60 * MIB} of memory, but only {54 * MIB} available",
        id="init-too-large",
    ),
    pytest.param(
        pod(sidecar("s", 64), sharing("i", INIT), app("a", 1), budget=resources(64)),
        "pod has shared init containers but no memory available for them",
        id="shared-init-beside-greedy-sidecar",
    ),
    pytest.param(
        pod(app("a", 64), sharing("b"), budget=resources(64)),
        "sum of exclusive container memory requests equals pod budget, leaving no memory for shared containers",
        id="nothing-left",
    ),
    pytest.param(
        pod(app("a", 32), sidecar("t", 32), sharing("s", SIDECAR), budget=resources(64)),
        "sum of exclusive container memory requests equals pod budget, leaving no memory for shared containers",
        id="nothing-left-for-a-sidecar",
    ),
    pytest.param(
        pod(app("a", 10, 8), sharing("b"), budget=resources(64, 8)),
        "sum of exclusive container hugepages-2Mi requests equals pod budget,"
        " leaving no memory for shared containers",
        id="no-hugepages-left-for-one-that-needs-none",
    ),
]


@pytest.mark.parametrize(("one", "text"), REFUSED)
def test_a_pod_whose_shared_pool_would_be_empty_is_refused(one: Pod, text: str) -> None:
    static = manager([1000], [100])
    with pytest.raises(AdmissionError) as refused:
        static.allocate_pod(static.restore(MemoryState()), one, NO_HINT)
    assert refused.value.message == f"pod rejected, {text}"
    assert refused.value.reason == "EmptyPodSharedPoolError"


def test_a_second_allocation_of_the_same_pod_changes_nothing() -> None:
    static = manager([100, 100])
    one = pod(app("a", 10), sharing("b"), budget=resources(64))
    after = static.allocate_pod(static.restore(MemoryState()), one, hint("1")).state
    again = static.allocate_pod(after, one, hint("0"))
    assert again.state == after
    assert again.steps == (Kept(WHOLE_POD, MEMORY),)


def test_a_pod_that_was_allocated_container_by_container_keeps_that() -> None:
    static = manager([100, 100])
    one = pod(app("a", 10), sharing("b"), budget=resources(64))
    after = admit(static, static.restore(MemoryState()), one, hint("1"))
    assert static.allocate_pod(after, one, hint("0")).state == after


LEFT_ALONE = [
    pytest.param(
        pod(app("a", 1), budget=Resources(requests=resources(64).requests)), Gates(), id="burstable"
    ),
    pytest.param(
        pod(app("a", 1), budget=resources(64)), Gates(pod_level_resource_managers=False), id="gate-off"
    ),
    pytest.param(
        pod(
            app("a", 1),
            budget=Resources(
                requests={**resources(1).requests, MEMORY: parse_quantity("1500m")},
                limits={**resources(1).limits, MEMORY: parse_quantity("1500m")},
            ),
        ),
        Gates(),
        id="fraction-of-a-byte",
    ),
]


@pytest.mark.parametrize(("one", "gates"), LEFT_ALONE)
def test_pods_that_get_no_allocation_of_their_own(one: Pod, gates: Gates) -> None:
    static = manager([100], gates=gates)
    fresh = static.restore(MemoryState())
    outcome = static.allocate_pod(fresh, one, NO_HINT)
    assert outcome.state == fresh
    assert [type(step) for step in outcome.steps] == [Shared]


def test_the_pods_memory_is_released_with_its_last_container() -> None:
    static = manager([100, 100])
    fresh = static.restore(MemoryState())
    one = pod(app("a", 10), sharing("b"), budget=resources(64))
    state = static.allocate_pod(fresh, one, hint("1")).state
    without_a = static.remove_container(state, U1, "a")
    assert without_a.nodes == state.nodes
    assert without_a.pod_entries == state.pod_entries
    assert static.remove_container(without_a, U1, "b") == fresh
    assert static.remove_pod(state, U1) == fresh


def test_isolation_and_trace_tell_exclusive_from_shared() -> None:
    static = manager([100, 100])
    one = pod(app("a", 10), sharing("b"), budget=resources(64))
    outcome = static.allocate_pod(static.restore(MemoryState()), one, hint("1"))
    levels = [static.isolation(outcome.state, one, c) for c in one.containers]
    assert levels == [Isolation.CONTAINER, Isolation.POD]
    whole, exclusive, shared = outcome.steps
    assert whole == MemoryGranted(WHOLE_POD, (block("1", 64),), Pool.NODE)
    assert exclusive == MemoryGranted("a", (block("1", 10),), Pool.POD)
    assert isinstance(shared, Shared)
    assert (shared.container, shared.pool) == ("b", Pool.POD)


def test_other_pods_are_not_touched() -> None:
    static = manager([100, 100])
    one, two = (pod(app("a", 10), uid=uid, budget=resources(64)) for uid in ("u1", "u2"))
    only_two = static.allocate_pod(static.restore(MemoryState()), two, hint("0")).state
    both = static.allocate_pod(only_two, one, hint("1")).state
    assert static.remove_pod(both, U1) == replace(only_two, nodes=static.remove_pod(both, U1).nodes)
    assert static.remove_pod(both, U1) == only_two
