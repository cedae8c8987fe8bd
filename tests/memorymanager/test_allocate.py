"""Allocation and release of container memory (KEP-1769)."""

from __future__ import annotations

import pytest

from agent.domain.hints import ANY_NODE, Hint
from agent.domain.idset import NO_NODES
from agent.domain.outcome import Isolation
from agent.domain.pod import MEMORY, Container, Pod, PodUid, Resources
from agent.domain.quantity import Quantity, parse_quantity
from agent.domain.settings import Fidelity
from agent.domain.state import MemoryState
from agent.domain.trace import Kept, MemoryGranted, Pool, Shared
from agent.errors import AdmissionError
from agent.memorymanager.policy import NO_REUSE
from agent.memorymanager.policy_static import StaticMemoryManager
from tests.memorymanager.build import (
    HUGE_2MI,
    MIB,
    NO_AFFINITY_PREFERRED,
    NO_HINT,
    admit,
    app,
    block,
    entries,
    hint,
    manager,
    pod,
    reserved_and_assigned,
    resources,
    sharing,
)

U1 = PodUid("u1")


def _single(static: StaticMemoryManager, *taken: tuple[int, str]) -> MemoryState:
    """A state with pods ``t0``, ``t1``, … of the given size on the given nodes."""
    state = static.restore(MemoryState())
    for i, (size, nodes) in enumerate(taken):
        state = admit(static, state, pod(app("c", size), uid=f"t{i}"), hint(nodes))
    return state


CHOSEN = [
    pytest.param([10, 10], (), 5, NO_HINT, "0", id="default-is-the-lowest-preferred"),
    pytest.param([10, 10], ((8, "0"),), 5, NO_HINT, "1", id="default-goes-where-it-is-free"),
    pytest.param([10, 10], (), 15, NO_AFFINITY_PREFERRED, "0-1", id="default-as-wide-as-needed"),
    pytest.param([10, 10], (), 5, hint("1"), "1", id="affinity-is-followed"),
    pytest.param([10, 10], (), 5, hint("0-1"), "0-1", id="affinity-wider-than-needed-is-followed"),
    pytest.param([10, 10, 10], (), 15, hint("2"), "0,2", id="affinity-too-small-is-extended"),
    pytest.param([10, 10, 10], (), 5, hint(""), "0", id="empty-affinity-is-extended"),
]


@pytest.mark.parametrize(("memory", "taken", "size", "given", "expected"), CHOSEN)
def test_where_memory_is_allocated(
    memory: list[int], taken: tuple[tuple[int, str], ...], size: int, given: Hint, expected: str
) -> None:
    static = manager(memory)
    after = admit(static, _single(static, *taken), pod(app("a", size)), given)
    assert entries(after) == {"a": (block(expected, size),)}
    assert str(static.nodes_of(after, U1, "a")) == expected


REFUSED = [
    pytest.param(
        [10, 10],
        (),
        21,
        NO_HINT,
        "failed to get the default NUMA affinity, no NUMA nodes with enough memory is available",
        id="nowhere",
    ),
    pytest.param(
        [10, 10, 10],
        ((9, "0"), (15, "1-2")),
        5,
        NO_AFFINITY_PREFERRED,
        "failed to find the default preferred hint",
        id="default-only-wider-than-preferred",
    ),
    pytest.param(
        [10, 10, 10],
        ((9, "0"),),
        5,
        hint("0"),
        "failed to find NUMA nodes to extend the current topology hint",
        id="node-in-use-cannot-be-extended",
    ),
    pytest.param(
        [10, 10, 10],
        ((15, "0-1"),),
        6,
        hint("0"),
        "failed to find NUMA nodes to extend the current topology hint",
        id="no-group-with-room",
    ),
    pytest.param(
        [10, 10, 10],
        ((11, "0-1"),),
        5,
        hint("0"),
        "failed to find the extended preferred hint",
        id="extended-only-wider-than-preferred",
    ),
    pytest.param(
        [10, 10, 10],
        ((2, "0"),),
        5,
        hint("0-1"),
        "preferred hint violates NUMA node allocation",
        id="group-over-a-single-node",
    ),
    pytest.param(
        [10, 10, 10],
        ((12, "0-1"),),
        5,
        hint("1-2"),
        "preferred hint violates NUMA node allocation",
        id="group-across-another-group",
    ),
]


@pytest.mark.parametrize(("memory", "taken", "size", "given", "text"), REFUSED)
def test_refusals_in_the_kubelets_words(
    memory: list[int], taken: tuple[tuple[int, str], ...], size: int, given: Hint, text: str
) -> None:
    static = manager(memory)
    with pytest.raises(AdmissionError) as refused:
        admit(static, _single(static, *taken), pod(app("a", size)), given)
    assert refused.value.message == f"[memorymanager] {text}"
    assert refused.value.reason == "UnexpectedAdmissionError"


def test_a_refusal_says_what_each_node_has() -> None:
    static = manager([10, 10, 10])
    state = _single(static, (9, "0"), (15, "1-2"))
    with pytest.raises(AdmissionError) as refused:
        admit(static, state, pod(app("a", 8, 2)), hint("0"))
    assert refused.value.hint == (
        "requested hugepages-2Mi 2Mi, memory 8Mi;"
        " NUMA node 0: no hugepages-2Mi, memory 1Mi free of 10Mi, in use on its own;"
        " NUMA node 1: no hugepages-2Mi, memory 0 free of 10Mi, in use with the group 1-2;"
        " NUMA node 2: no hugepages-2Mi, memory 5Mi free of 10Mi, in use with the group 1-2"
    )


def test_a_fraction_of_a_byte_is_refused() -> None:
    stated = {**resources(1).requests, MEMORY: parse_quantity("1500m")}
    odd = pod(Container(name="a", resources=Resources(requests=stated, limits=stated)))
    static = manager([10])
    with pytest.raises(AdmissionError, match="failed to represent quantity as int64"):
        admit(static, static.restore(MemoryState()), odd)


def test_one_node_of_a_group_with_room_serves_alone_if_the_merged_hint_says_so() -> None:
    """The kubelet's check looks at multi-node masks only; another resource's hint can cut a group."""
    static = manager([10, 10], fidelity=Fidelity.KUBELET)
    state = _single(static, (9, "0-1"), (8, "0-1"))
    state = static.remove_pod(state, PodUid("t0"))
    after = admit(static, state, pod(app("a", 3)), hint("0"))
    assert reserved_and_assigned(after) == [(4, 2, "0"), (7, 1, "0-1")]


def test_by_default_the_whole_group_serves_where_the_merged_hint_names_one_of_its_nodes() -> None:
    static = manager([10, 10])
    state = _single(static, (12, "0-1"))
    after = admit(static, state, pod(app("a", 3)), hint("1", preferred=False))
    assert reserved_and_assigned(after) == [(10, 2, "0-1"), (5, 2, "0-1")]
    with pytest.raises(AdmissionError, match="failed to find the extended preferred hint"):
        admit(static, state, pod(app("a", 3)), hint("1"))


def test_each_type_counts_as_an_assignment_and_overflow_goes_to_the_next_node() -> None:
    static = manager([10, 10, 10], [5, 5, 5])
    after = admit(static, static.restore(MemoryState()), pod(app("a", 15, 12)), hint("0,2"))
    assert entries(after) == {"a": (block("0,2", 12, HUGE_2MI), block("0,2", 15))}
    assert reserved_and_assigned(after) == [(10, 2, "0,2"), (0, 0, "1"), (5, 2, "0,2")]
    assert reserved_and_assigned(after, HUGE_2MI) == [(10, 2, "0,2"), (0, 0, "1"), (2, 2, "0,2")]


def test_a_second_allocation_of_the_same_container_changes_nothing() -> None:
    static = manager([10, 10])
    one = pod(app("a", 5))
    after = admit(static, static.restore(MemoryState()), one)
    again = static.allocate(after, one, one.containers[0], hint("1"), NO_REUSE)
    assert again.state == after
    assert again.steps == (Kept("a", MEMORY),)


def test_release_gives_everything_back_and_dissolves_the_group() -> None:
    static = manager([10, 10, 10], [5, 5, 5])
    fresh = static.restore(MemoryState())
    state = admit(static, fresh, pod(app("a", 15, 12)), hint("0,2"))
    assert static.remove_container(state, U1, "a") == fresh
    assert static.remove_pod(state, U1) == fresh


def test_release_gives_back_from_the_lowest_node_of_the_group() -> None:
    static = manager([10, 10])
    state = admit(static, static.restore(MemoryState()), pod(app("a", 9), app("b", 8)), hint("0-1"))
    assert reserved_and_assigned(state) == [(10, 2, "0-1"), (7, 2, "0-1")]
    after = static.remove_container(state, U1, "a")
    assert reserved_and_assigned(after) == [(1, 1, "0-1"), (7, 1, "0-1")]


def test_removing_what_holds_nothing_changes_nothing() -> None:
    static = manager([10, 10])
    state = admit(static, static.restore(MemoryState()), pod(app("a", 9)))
    assert static.remove_container(state, U1, "nobody") == state
    assert static.remove_pod(state, PodUid("nobody")) == state
    assert static.nodes_of(state, U1, "nobody") == NO_NODES


def test_the_trace_says_what_was_granted_or_why_not() -> None:
    static = manager([10])
    state = static.restore(MemoryState())
    granted = pod(app("a", 5))
    outcome = static.allocate(state, granted, granted.containers[0], NO_HINT, NO_REUSE)
    assert outcome.steps == (MemoryGranted("a", (block("0", 5),), Pool.NODE),)
    burstable = pod(
        Container(name="b", resources=Resources(requests={MEMORY: Quantity.bytes(MIB)})),
    )
    outcome = static.allocate(state, burstable, burstable.containers[0], NO_HINT, NO_REUSE)
    assert outcome.steps == (
        Shared("b", MEMORY, Pool.NODE, "the pod is Burstable, only memory of Guaranteed pods is assigned"),
    )
    assert outcome.state == state


LEVELS = [
    pytest.param(pod(app("a", 5)), Isolation.CONTAINER, id="own-blocks"),
    pytest.param(
        pod(app("a", 5), budget=resources(20)), Isolation.CONTAINER, id="own-blocks-within-a-budget"
    ),
    pytest.param(pod(sharing("a"), budget=resources(20)), Isolation.HOST, id="nothing-held"),
]


@pytest.mark.parametrize(("one", "level"), LEVELS)
def test_isolation_in_container_scope(one: Pod, level: Isolation) -> None:
    static = manager([100])
    state = admit(static, static.restore(MemoryState()), one, Hint(ANY_NODE, preferred=False))
    assert static.isolation(state, one, one.containers[0]) is level
