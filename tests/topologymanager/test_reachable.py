"""Counting the ANDs of long lists against forming them one by one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.domain.hints import ANY_NODE_BITS
from agent.domain.idset import NodeMask, iter_bits
from agent.domain.maskspace import mask_space
from agent.topologymanager.reachable import MaskList, OutOfReachError, reachable

EIGHT = (0, 1, 2, 8, 63, 64, 250, 255)


def one_by_one(lists: list[set[int]], nodes: int) -> set[int]:
    found = {nodes}
    for masks in lists:
        found = {one & other for one in found for other in masks}
    return found - {0}


def complete(lists: list[set[int]]) -> list[MaskList]:
    return [MaskList(frozenset(masks), complete=True) for masks in lists]


def chosen(ids: tuple[int, ...], choice: int) -> set[int]:
    """The masks over ``ids`` at the positions of the one bits of ``choice``."""
    masks = mask_space(ids).masks
    return {masks[position] for position in iter_bits(choice)}


dense_lists = st.lists(st.integers(0, (1 << 255) - 1), min_size=2, max_size=4)


@settings(deadline=None)
@given(dense_lists)
def test_counting_finds_the_ands_of_every_combination(choices: list[int]) -> None:
    lists = [chosen(EIGHT, choice) for choice in choices]
    nodes = NodeMask.of(EIGHT).bits
    assert reachable(complete(lists), nodes) == one_by_one(lists, nodes)


@pytest.mark.parametrize("least", [1, 5, 8])
def test_many_lists_are_counted_in_groups(least: int) -> None:
    """Twelve lists have more combinations than fit 64 bits."""
    masks = {mask for mask in mask_space(EIGHT).masks if mask.bit_count() >= least}
    lists = [masks - {NodeMask.of(EIGHT[k:]).bits} if least == 1 else masks for k in range(8)] + [masks] * 4
    nodes = NodeMask.of(EIGHT).bits
    assert reachable(complete(lists), nodes) == one_by_one(lists, nodes)


@settings(deadline=None)
@given(dense_lists, st.booleans())
def test_a_list_with_every_mask_reaches_all_that_is_within_the_others_ands(
    choices: list[int], any_node: bool
) -> None:
    lists = [set(mask_space(EIGHT).masks), *(chosen(EIGHT, choice) for choice in choices)]
    if any_node:
        lists[1].add(ANY_NODE_BITS)
    nodes = NodeMask.of(EIGHT).bits
    assert reachable(complete(lists), nodes) == one_by_one(lists, nodes)


def test_nothing_is_reached_where_the_lists_have_no_node_in_common() -> None:
    assert reachable(complete([{0b01}, {0b10}]), 0b11) == set()


def test_five_full_lists_over_16_nodes_reach_every_mask() -> None:
    masks = set(mask_space(tuple(range(16))).masks)
    assert reachable(complete([masks | {0}] * 5), 0xFFFF) == masks


def test_more_than_16_nodes_are_done_one_by_one_while_they_are_few() -> None:
    pairs = {0b11 << shift for shift in range(39)}
    assert reachable(complete([pairs] * 3), (1 << 40) - 1) == one_by_one([pairs] * 3, (1 << 40) - 1)


def test_more_than_16_nodes_with_long_lists_are_out_of_reach() -> None:
    masks = {0b111111 << shift | 1 << other for shift in range(40) for other in range(50)}
    with pytest.raises(OutOfReachError):
        reachable(complete([masks] * 2), (1 << 50) - 1)


@settings(deadline=None)
@given(st.integers(0, (1 << 31) - 1), st.integers(1, 4), st.integers(1, 4))
def test_a_list_that_lacks_wide_masks_reaches_what_the_whole_one_does_or_nothing_can_be_told(
    choice: int, width: int, nodes_left: int
) -> None:
    """One list over the first few of five nodes, one over all of them, of which only the narrow masks are known."""
    every = set(mask_space(tuple(range(5))).masks)
    few = chosen(tuple(range(5)), choice) & set(mask_space(tuple(range(nodes_left))).masks)
    narrow = frozenset(mask for mask in every if mask.bit_count() <= width)
    lists = [MaskList(frozenset(few), complete=True), MaskList(narrow, complete=False)]
    if nodes_left <= width or not few:
        assert reachable(lists, 0b11111) == one_by_one([few, every], 0b11111)
    elif max(map(int.bit_count, few)) > width:
        with pytest.raises(OutOfReachError):
            reachable(lists, 0b11111)
