"""The fast merge against the literal one, and the machines that the literal one cannot do."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.domain.hints import (
    ANY_NODE,
    ANY_NODE_BITS,
    NO_PREFERENCE,
    Deferred,
    Hint,
    Hints,
    Impossible,
    Wish,
    Wishes,
)
from agent.domain.idset import NodeMask
from agent.domain.maskspace import mask_space
from agent.domain.pod import CPU, MEMORY, ResourceName
from agent.domain.settings import TopologyPolicy, TopologyScope
from agent.errors import AdmissionError
from agent.topologymanager.policy import TopologyManager
from tests.topologymanager.literal import Distances, literal_merge

POLICIES = (TopologyPolicy.BEST_EFFORT, TopologyPolicy.RESTRICTED, TopologyPolicy.SINGLE_NUMA_NODE)
NODE_IDS = (0, 1, 2, 3, 7, 8, 63, 64, 250, 255)


def manager_of(
    policy: TopologyPolicy, nodes: NodeMask, distances: Distances | None = None
) -> TopologyManager:
    single = policy is TopologyPolicy.SINGLE_NUMA_NODE
    return TopologyManager(
        policy=policy, scope=TopologyScope.POD, nodes=nodes, distances=None if single else distances
    )


@st.composite
def machines(draw: st.DrawFn, most: int) -> tuple[NodeMask, Distances | None]:
    ids = draw(st.lists(st.sampled_from(NODE_IDS), min_size=1, max_size=most, unique=True))
    # Few values, so that ties are common; not symmetric, as some firmware has it.
    distances = {a: {b: draw(st.sampled_from((10, 11, 20))) for b in ids} for a in ids}
    return NodeMask.of(ids), draw(st.sampled_from((None, distances)))


def wishes_on(nodes: NodeMask, longest: int) -> st.SearchStrategy[Wish]:
    inside = st.sets(st.sampled_from(tuple(nodes)), min_size=1).map(lambda ids: NodeMask.of(ids).bits)
    odd = st.sampled_from((ANY_NODE_BITS, 0, 1 << 5, nodes.bits | 1 << 5))
    masks = st.lists(inside | inside | inside | odd, max_size=longest).map(tuple)
    hints = st.builds(Hints, preferred=masks, other=masks)
    some = hints.filter(lambda h: bool(h.preferred or h.other))
    return some | some | some | st.sampled_from((NO_PREFERENCE, Impossible("full")))


def providers_on(nodes: NodeMask, lists: int, longest: int) -> st.SearchStrategy[list[Wishes]]:
    names = st.sampled_from((CPU, MEMORY, ResourceName("hugepages-2Mi"), ResourceName("example.com/dev")))
    one: st.SearchStrategy[Wishes] = st.dictionaries(names, wishes_on(nodes, longest), max_size=2)
    return st.lists(one, max_size=lists // 2)


@settings(deadline=None)
@given(st.data(), st.sampled_from(POLICIES))
def test_four_short_lists_merge_as_their_cartesian_product_does(
    data: st.DataObject, policy: TopologyPolicy
) -> None:
    nodes, distances = data.draw(machines(4))
    providers = data.draw(providers_on(nodes, 4, 4))
    merged = manager_of(policy, nodes, distances).merge(providers, "main")
    assert (merged.hint, merged.admitted) == literal_merge(policy, nodes, distances, providers)


@settings(deadline=None)
@given(st.data(), st.sampled_from(POLICIES))
def test_two_long_lists_merge_as_their_cartesian_product_does(
    data: st.DataObject, policy: TopologyPolicy
) -> None:
    nodes, distances = data.draw(machines(6))
    providers = data.draw(providers_on(nodes, 2, 30))
    merged = manager_of(policy, nodes, distances).merge(providers, "main")
    assert (merged.hint, merged.admitted) == literal_merge(policy, nodes, distances, providers)


@settings(deadline=None)
@given(st.data(), st.sampled_from(POLICIES), st.integers(1, 4))
def test_a_cut_list_gives_the_answer_of_the_whole_list_or_an_error(
    data: st.DataObject, policy: TopologyPolicy, width: int
) -> None:
    nodes, distances = data.draw(machines(5))
    masks = mask_space(tuple(nodes)).masks
    narrow = tuple(mask for mask in masks if mask.bit_count() <= width)
    preferred = tuple(data.draw(st.sets(st.sampled_from(narrow))))
    others = data.draw(st.sets(st.sampled_from(masks)) | st.just(set(masks)))
    kept = tuple(others.intersection(narrow))
    if not (preferred or kept):
        return
    whole: Wishes = {MEMORY: Hints(preferred, tuple(others))}
    cut: Wishes = {MEMORY: Hints(preferred, kept, complete=False)}
    rest = data.draw(providers_on(nodes, 4, 4))
    expected, admitted = literal_merge(policy, nodes, distances, [whole, *rest])
    manager = manager_of(policy, nodes, distances)
    try:
        merged = manager.merge([cut, *rest], "main")
    except AdmissionError:
        assert policy is TopologyPolicy.BEST_EFFORT
        assert not expected.preferred
        return
    assert merged.admitted == admitted
    assert merged.hint == expected or not admitted


def lists_on(ids: Sequence[int], prefers: Sequence[Callable[[int], bool]], least: int = 1) -> list[Wishes]:
    """One provider a resource with all masks of at least ``least`` nodes, some of them preferred."""
    space = mask_space(tuple(ids))
    masks = [mask for mask in space.masks if mask.bit_count() >= least]
    return [
        {
            ResourceName(f"example.com/r{number}"): Hints(
                preferred=tuple(filter(prefer, masks)),
                other=tuple(mask for mask in masks if not prefer(mask)),
                complete=space.complete,
            )
        }
        for number, prefer in enumerate(prefers)
    ]


def one_node(mask: int) -> bool:
    return mask.bit_count() == 1


def only(wanted: int) -> Callable[[int], bool]:
    return lambda mask: mask == wanted


@pytest.mark.parametrize("count", [8, 16], ids=["8 nodes (E1)", "16 nodes"])
def test_four_resources_with_all_masks_meet_on_the_first_node_that_all_prefer(count: int) -> None:
    nodes = NodeMask((1 << count) - 1)
    merged = manager_of(TopologyPolicy.RESTRICTED, nodes).merge(lists_on(range(count), [one_node] * 4), "c")
    assert (merged.hint, merged.admitted) == (Hint(NodeMask.of([0]), True), True)


@pytest.mark.parametrize("count", [8, 16], ids=["8 nodes (E1)", "16 nodes"])
@pytest.mark.parametrize("policy", POLICIES[:2], ids=lambda policy: policy.value)
def test_four_resources_that_prefer_different_nodes_get_one_node_unpreferred(
    count: int, policy: TopologyPolicy
) -> None:
    nodes = NodeMask((1 << count) - 1)
    providers = lists_on(range(count), [only(1 << number) for number in range(4)])
    merged = manager_of(policy, nodes).merge(providers, "c")
    assert merged.hint == Hint(NodeMask.of([0]), False)
    assert merged.admitted is (policy is TopologyPolicy.BEST_EFFORT)


@pytest.mark.parametrize(("closest", "expected"), [(False, "0-3"), (True, "8,250-252")])
def test_ties_of_wide_masks_on_sparse_nodes_go_to_the_lowest_or_the_closest(
    closest: bool, expected: str
) -> None:
    ids = (0, 1, 2, 3, 8, 250, 251, 252)
    near = {(a, b): 11 if min(a, b) >= 8 else 20 for a in ids for b in ids}
    distances = {a: {b: 10 if a == b else near[a, b] for b in ids} for a in ids}
    providers = lists_on(ids, [only(1 << a) for a in ids[:4]], least=4)
    manager = manager_of(TopologyPolicy.BEST_EFFORT, NodeMask.of(ids), distances if closest else None)
    assert manager.merge(providers, "c").hint == Hint(NodeMask.parse(expected), False)


def test_wider_hints_than_needed_do_not_win() -> None:
    """E3: a request for one device that offers `11` and `111` beside `1`, all preferred."""
    device: Wishes = {ResourceName("example.com/gpu"): Hints(preferred=(0b111, 0b11, 0b1))}
    manager = manager_of(TopologyPolicy.SINGLE_NUMA_NODE, NodeMask(0b1111))
    assert manager.merge([device], "c").hint == Hint(NodeMask(0b1), True)


GB200 = NodeMask((1 << 34) - 1)
"""E2: 34 NUMA nodes, CPUs on the first two only."""


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.value)
def test_34_nodes_of_which_two_have_cpus_place_a_container(policy: TopologyPolicy) -> None:
    cpu: Wishes = {CPU: Hints(preferred=(0b01, 0b10), other=(0b11,))}
    (memory,) = lists_on(range(34), [one_node])
    merged = manager_of(policy, GB200).merge([cpu, memory], "c")
    assert (merged.hint, merged.admitted) == (Hint(NodeMask(0b1), True), True)


def test_34_nodes_of_which_two_have_cpus_rank_what_nobody_prefers() -> None:
    """The missing wide masks of memory say nothing new about the two nodes with CPUs."""
    cpu: Wishes = {CPU: Hints(preferred=(0b11,))}
    (memory,) = lists_on(range(34), [one_node])
    merged = manager_of(TopologyPolicy.BEST_EFFORT, GB200).merge([cpu, memory], "c")
    assert (merged.hint, merged.admitted) == (Hint(NodeMask(0b11), False), True)


def test_best_effort_says_why_it_cannot_rank_placements_on_34_nodes() -> None:
    providers = lists_on(range(34), [only(0b1), only(0b10)])
    with pytest.raises(AdmissionError, match=r"34 NUMA nodes that hold example\.com/r1") as caught:
        manager_of(TopologyPolicy.BEST_EFFORT, GB200).merge(providers, "c")
    assert caught.value.reason == "TopologyAffinityError"
    assert "policy none" in caught.value.hint


def test_restricted_refuses_on_34_nodes_what_nobody_prefers() -> None:
    providers = lists_on(range(34), [only(0b1), only(0b10)])
    merged = manager_of(TopologyPolicy.RESTRICTED, GB200).merge(providers, "c")
    assert (merged.hint, merged.admitted) == (Hint(GB200, False), False)


@pytest.mark.parametrize("agree", [True, False], ids=["agreeing", "disagreeing"])
def test_64_nodes_work_under_single_numa_node(agree: bool) -> None:
    nodes = NodeMask((1 << 64) - 1)
    providers = lists_on(range(64), [one_node, one_node if agree else only(0b11)])
    merged = manager_of(TopologyPolicy.SINGLE_NUMA_NODE, nodes).merge(providers, "c")
    assert merged.hint == (Hint(NodeMask(1), True) if agree else Hint(ANY_NODE, False))
    assert merged.admitted is agree


def test_policy_none_admits_without_looking() -> None:
    merged = manager_of(TopologyPolicy.NONE, NodeMask(0b11)).merge([{CPU: Impossible("full")}], "main")
    assert (merged.container, merged.hint, merged.admitted) == ("main", Hint(ANY_NODE, False), True)


def test_a_refused_hint_is_merged_only_when_looked_at() -> None:
    listings = []

    def wider() -> list[int]:
        listings.append("listed")
        return [0b11]

    cpu: Wishes = {CPU: Hints(preferred=(0b01,), other=Deferred(wider))}
    memory: Wishes = {MEMORY: Hints(preferred=(0b10,), other=(0b11,))}
    manager = manager_of(TopologyPolicy.RESTRICTED, NodeMask(0b11))
    refused, again = (manager.merge([cpu, memory], "c") for _ in range(2))
    assert not refused.admitted
    assert not listings
    assert refused.hint == Hint(NodeMask(0b01), False)
    assert listings
    assert refused == again
    assert hash(refused) == hash(again)
    assert refused != manager.merge([cpu, memory], "d")
