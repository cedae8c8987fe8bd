"""All sets of NUMA nodes that a hint search looks at, with sums over each set.

Up to `EXACT_NODES` nodes these are all 2^n - 1 non-empty sets. Beyond, only the narrowest sets are
listed (as many whole sizes as fit `MAX_MASKS`) and the space is not ``complete``: an answer found
among them is exact, for a preferred hint is always of the narrowest size that can serve.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import Final

EXACT_NODES: Final = 16
MAX_MASKS: Final = (1 << EXACT_NODES) - 1


class MaskSpace:
    """The sets of nodes over ``ids`` (ascending): ``masks[i]`` as raw bits, ``sizes[i]`` its nodes."""

    __slots__ = ("complete", "ids", "masks", "sizes")

    def __init__(self, ids: tuple[int, ...]) -> None:
        self.ids = ids
        self.complete = len(ids) <= EXACT_NODES
        self.masks = tuple(self._all_masks() if self.complete else self._narrow_masks())
        self.sizes = tuple(map(int.bit_count, self.masks))

    def _all_masks(self) -> list[int]:
        return _doubled([1 << node for node in self.ids])

    def _narrow_masks(self) -> list[int]:
        return [sum(1 << node for node in chosen) for chosen in self._narrow()]

    def _narrow(self) -> list[tuple[int, ...]]:
        """The node tuples of the narrowest sizes, size by size."""
        chosen: list[tuple[int, ...]] = []
        for size in range(1, len(self.ids) + 1):
            if len(chosen) + comb(len(self.ids), size) > MAX_MASKS:
                break
            chosen.extend(combinations(self.ids, size))
        return chosen

    def sums(self, weights: Sequence[int]) -> list[int]:
        """For each mask the sum of its nodes' weights; ``weights[k]`` belongs to ``ids[k]``."""
        if self.complete:
            return _doubled(weights)
        weight = dict(zip(self.ids, weights, strict=True))
        return [sum(weight[node] for node in chosen) for chosen in self._narrow()]


def _doubled(weights: Sequence[int]) -> list[int]:
    """Sums over all non-empty subsets, subset k of the weights at index k - 1."""
    sums = [0]
    for weight in weights:
        sums += [partial + weight for partial in sums]
    del sums[0]
    return sums


@lru_cache(maxsize=16)
def mask_space(ids: tuple[int, ...]) -> MaskSpace:
    """The space over ``ids``; a pure function of them, so remembered."""
    return MaskSpace(ids)
