"""The sets of NUMA nodes that are searched, and sums over them."""

from __future__ import annotations

from itertools import combinations
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.domain.idset import NodeMask
from agent.domain.maskspace import EXACT_NODES, MAX_MASKS, MaskSpace


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 1 << 70)), unique_by=lambda pair: pair[0]))
def test_each_size_lists_all_its_sets_with_their_sums(pairs: list[tuple[int, int]]) -> None:
    pairs = sorted(pairs[:9])
    ids, weight = tuple(node for node, _ in pairs), dict(pairs)
    space = MaskSpace(ids)
    chosen = [list(combinations(ids, size)) for size in range(1, len(ids) + 1)]
    assert space.levels == tuple(tuple(NodeMask.of(one).bits for one in level) for level in chosen)
    assert list(space.sums([size for _, size in pairs])) == [
        [sum(map(weight.__getitem__, one)) for one in level] for level in chosen
    ]


@pytest.mark.parametrize(
    ("nodes", "widest"), [(0, 0), (1, 1), (EXACT_NODES, EXACT_NODES), (EXACT_NODES + 1, 8), (64, 3), (300, 2)]
)
def test_beyond_the_exact_number_of_nodes_only_whole_narrow_sizes_are_listed(nodes: int, widest: int) -> None:
    space = MaskSpace(tuple(range(nodes)))
    assert space.complete == (widest == nodes)
    assert [len(level) for level in space.levels] == [comb(nodes, size) for size in range(1, widest + 1)]
    assert len(set(space.masks)) == sum(map(len, space.levels)) <= MAX_MASKS
    assert all(mask.bit_count() == size for size, level in enumerate(space.levels, 1) for mask in level)
