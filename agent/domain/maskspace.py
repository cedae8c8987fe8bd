"""All sets of NUMA nodes that a hint search looks at, with sums over each set.

Up to `EXACT_NODES` nodes these are all 2^n - 1 non-empty sets. Beyond, only the narrowest sets are
listed (as many whole sizes as fit `MAX_MASKS`) and the space is not ``complete``: an answer found
among them is exact, for a preferred hint is always of the narrowest size that can serve.

The sets of one size are listed in the order of their node tuples: first those whose lowest node is
the first, and so on. What follows that lowest node is one size smaller and stands, in the same
order, at the end of the list of that size: each list is made by adding to tails of the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from math import comb
from typing import Final

from agent.domain.hints import Deferred

EXACT_NODES: Final = 16
MAX_MASKS: Final = (1 << EXACT_NODES) - 1
FEW_NODES: Final = 2

Levels = Callable[[], Iterable[tuple[int, list[int]]]]
"""Sizes, ascending, with sets of as many nodes. Pure: called again, it searches again."""


class MaskSpace:
    """The sets of nodes over ``ids`` (ascending) as raw bits; ``levels[k]`` are those of k + 1 nodes."""

    __slots__ = ("complete", "ids", "levels", "masks")

    def __init__(self, ids: tuple[int, ...]) -> None:
        self.ids = ids
        self.complete = len(ids) <= EXACT_NODES
        lists = _sums_by_size([1 << node for node in ids], _widest(len(ids)))
        self.levels = tuple(map(tuple, lists))
        self.masks = tuple(chain.from_iterable(self.levels))

    def sums(self, weights: Sequence[int]) -> Iterator[list[int]]:
        """Level by level, for each mask the sum of its nodes' weights; ``weights[k]`` belongs to ``ids[k]``."""
        return _sums_by_size(weights, len(self.levels))


def _widest(count: int) -> int:
    """The size of the widest sets of ``count`` nodes that are listed."""
    if count <= EXACT_NODES:
        return count
    listed = size = 0
    while listed + comb(count, size + 1) <= MAX_MASKS:
        size += 1
        listed += comb(count, size)
    return size


def _sums_by_size(weights: Sequence[int], widest: int) -> Iterator[list[int]]:
    count, sums = len(weights), list(weights)
    for size in range(1, widest + 1):
        if size > 1:
            narrower, sums = sums, []
            for place in range(count - size + 1):
                tail = len(narrower) - comb(count - place - 1, size - 1)
                sums += map(weights[place].__add__, narrower[tail:])
        yield sums


def at_hand(space: MaskSpace, levels: Levels) -> Levels:
    """``levels``, searched at once where that costs less than to begin again later: `FEW_NODES`."""
    if len(space.ids) > FEW_NODES:
        return levels
    found = tuple(levels())
    return lambda: found


def of_other_sizes(space: MaskSpace, levels: Levels, size: int) -> tuple[int, ...] | Deferred:
    """The sets in ``levels`` that have more or fewer than ``size`` nodes; for few nodes listed at once."""
    if len(space.ids) > FEW_NODES:
        return Deferred(lambda: _of_other_sizes(levels, size))
    return tuple(_of_other_sizes(levels, size))


def _of_other_sizes(levels: Levels, size: int) -> list[int]:
    return [mask for other, masks in levels() if other != size for mask in masks]


@lru_cache(maxsize=16)
def mask_space(ids: tuple[int, ...]) -> MaskSpace:
    """The space over ``ids``; a pure function of them, so remembered."""
    return MaskSpace(ids)
