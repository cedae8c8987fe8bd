"""Which NUMA masks are the AND of one mask out of each of several lists.

Few combinations are tried one by one. Many are counted instead: for every mask S let f(S) be the
number of masks in a list that contain S. A tuple's AND contains S exactly if all its masks do, so
the product of the lists' f(S) counts the tuples whose AND contains S, and Möbius inversion over
supersets turns that into the number of tuples whose AND *is* S: S is reachable if it is not zero.
All numbers are exact and none is ever negative, also half way, so all 2^n of them live side by
side in one Python int and a step of either transform is a shift, a mask and an add (or subtract)
of whole integers: n steps, whatever the lists hold, in place of their cartesian product.

A list that has every mask is not counted: what it makes of the others' ANDs is all that is within one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import compress
from math import prod
from operator import and_, mul, or_
from struct import pack, unpack
from typing import Final

from agent.domain.hints import ANY_NODE_BITS
from agent.domain.idset import iter_bits
from agent.domain.maskspace import EXACT_NODES

_COUNT_BITS: Final = 16
"""A list has fewer than 2^16 different masks over at most `EXACT_NODES` nodes."""
_PRODUCT_BITS: Final = 64
_FEW_PAIRS: Final = 1 << 14
"""Below, trying them all is faster than any transform; it takes about a millisecond."""
_MOST_PAIRS: Final = 1 << 20
"""Where the transform is out of reach: some 50 ms, rather refuse than take longer."""


class OutOfReachError(Exception):
    """There are too many NUMA nodes to tell all reachable masks."""


@dataclass(frozen=True, slots=True)
class MaskList:
    """The masks of one list, `ANY_NODE_BITS` too; not ``complete`` where wide ones are missing."""

    masks: frozenset[int]
    complete: bool


def reachable(lists: Sequence[MaskList], nodes: int) -> set[int]:
    """The non-empty masks within ``nodes`` that are the AND of one mask of each list.

    Raises OutOfReachError where that cannot be told exactly.
    """
    # No AND leaves what a list's masks cover together: nodes outside of that don't count. The
    # masks that a cut list lacks may cover anything.
    covers = [_cover(held.masks) if held.complete else ANY_NODE_BITS for held in lists]
    nodes = reduce(and_, covers, nodes)
    if not nodes:
        return set()
    every = (1 << nodes.bit_count()) - 1
    lacking: list[frozenset[int]] = []
    for cover, held in zip(covers, lists, strict=True):
        if not held.complete and len(held.masks) >= every and _has_all_within(held.masks, nodes):
            continue
        masks = frozenset(mask & nodes for mask in held.masks) if cover & ~nodes else held.masks
        if 0 in masks:
            masks -= {0}
        if len(masks) < every:
            # What is missing adds nothing to a list that has every mask already, but may to this one.
            if not held.complete:
                raise OutOfReachError
            lacking.append(masks)
    found = _intersections(sorted(lacking, key=len), nodes)
    return found if len(lacking) == len(lists) else _below(found, nodes)


def _cover(masks: frozenset[int]) -> int:
    """All nodes of all masks; seen at once where one mask has them all."""
    if ANY_NODE_BITS in masks:
        return ANY_NODE_BITS
    widest = (1 << max(masks, default=0).bit_length()) - 1
    return widest if widest in masks else reduce(or_, masks, 0)


def _has_all_within(masks: frozenset[int], nodes: int) -> bool:
    """Whether every non-empty set within ``nodes`` is one of ``masks``."""
    subset = nodes
    while subset:
        if subset not in masks:
            return False
        subset = (subset - 1) & nodes
    return True


def _below(found: set[int], nodes: int) -> set[int]:
    """The ANDs with a list that has every mask: whatever is within one of ``found``."""
    ids = tuple(iter_bits(nodes))
    masks = _subsets(ids)
    if nodes in found:
        return set(masks[1:])
    counts = _superset_counts(bytes(map(found.__contains__, masks)), _halves(_COUNT_BITS, len(ids)))
    return set(compress(masks[1:], counts[1:]))


def _intersections(lists: list[frozenset[int]], nodes: int) -> set[int]:
    """The ANDs, less the empty one, over ``lists`` (shortest first, they are used up) of subsets of ``nodes``."""
    countable = nodes.bit_count() <= EXACT_NODES
    most = _FEW_PAIRS if countable else _MOST_PAIRS
    identity = {nodes}
    found = identity
    while lists and len(found) * len(lists[0]) <= most:
        masks = lists.pop(0)
        found = {one & other for one in found for other in masks} - {0}
    if lists and not countable:
        raise OutOfReachError
    while lists:
        group = [lists.pop(0)] if found == identity else [frozenset(found), lists.pop(0)]
        while lists and prod(map(len, (*group, lists[0]))) < 1 << _PRODUCT_BITS:
            group.append(lists.pop(0))
        found = _by_counting(group, nodes)
    return found


def _by_counting(lists: Sequence[frozenset[int]], nodes: int) -> set[int]:
    """The same over ``lists`` of non-empty masks with fewer than 2^64 combinations."""
    ids = tuple(iter_bits(nodes))
    masks = _subsets(ids)
    halves = _halves(_COUNT_BITS, len(ids))
    # Several resources often have the same masks.
    counts = {held: _superset_counts(bytes(map(held.__contains__, masks)), halves) for held in set(lists)}
    products: Iterable[int] = reduce(partial(map, mul), map(counts.__getitem__, lists))
    packed = int.from_bytes(pack(f"<{len(masks)}Q", *products), "little")
    for shift, low in _halves(_PRODUCT_BITS, len(ids)):
        packed -= (packed >> shift) & low
    tuples = unpack(f"<{len(masks)}Q", packed.to_bytes(8 * len(masks), "little"))
    return set(compress(masks[1:], tuples[1:]))


def _subsets(ids: tuple[int, ...]) -> list[int]:
    """All masks over ``ids``; a mask's position has a bit for each of its nodes."""
    masks = [0]
    for node in ids:
        masks += [mask | 1 << node for mask in masks]
    return masks


def _superset_counts(flags: bytes, halves: list[tuple[int, int]]) -> tuple[int, ...]:
    """For each index, how many flagged indices contain its bits."""
    fields = bytearray(2 * len(flags))
    fields[::2] = flags
    packed = int.from_bytes(fields, "little")
    for shift, low in halves:
        packed += (packed >> shift) & low
    return unpack(f"<{len(flags)}H", packed.to_bytes(len(fields), "little"))


def _halves(field: int, width: int) -> list[tuple[int, int]]:
    """Per bit of the index: the distance to the field that has the bit set, and all fields without it."""
    halves = []
    for bit in range(width):
        shift = field << bit
        low = (1 << shift) - 1
        for doubling in range(bit + 1, width):
            low |= low << (field << doubling)
        halves.append((shift, low))
    return halves
