"""The rule as the reference states it: every permutation, merged and compared in turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

from agent.domain.hints import ANY_NODE, ANY_NODE_BITS, Hint, Hints, Impossible, Wish, Wishes
from agent.domain.idset import NodeMask
from agent.domain.settings import TopologyPolicy

Distances = Mapping[int, Mapping[int, int]]
OneHint = tuple[int, bool]


def literal_merge(
    policy: TopologyPolicy, nodes: NodeMask, distances: Distances | None, providers: Sequence[Wishes]
) -> tuple[Hint, bool]:
    """The merged hint and whether it is admitted."""
    lists = [hints for wishes in providers for hints in provider_lists(wishes)]
    single = policy is TopologyPolicy.SINGLE_NUMA_NODE
    if single:
        lists = [[h for h in hints if h[1] and h[0].bit_count() == 1] for hints in lists]
    best = max((narrowest(hints) for hints in lists), default=0)
    current: OneHint | None = None
    for permutation in product(*lists):
        candidate = merge_permutation(nodes.bits, permutation)
        current = compare(current, candidate, best, None if single else distances)
    mask, preferred = current or (nodes.bits, False)
    any_node = single and mask == nodes.bits
    hint = Hint(ANY_NODE if any_node else NodeMask(mask), preferred)
    return hint, preferred or policy is TopologyPolicy.BEST_EFFORT


def provider_lists(wishes: Wishes) -> list[list[OneHint]]:
    return [hint_list(wish) for wish in wishes.values()] if wishes else [[(ANY_NODE_BITS, True)]]


def hint_list(wish: Wish) -> list[OneHint]:
    if isinstance(wish, Hints):
        return [(mask, True) for mask in wish.preferred] + [(mask, False) for mask in wish.other]
    return [(ANY_NODE_BITS, not isinstance(wish, Impossible))]


def narrowest(hints: list[OneHint]) -> int:
    return min((mask.bit_count() for mask, _ in hints if mask != ANY_NODE_BITS), default=0)


def merge_permutation(nodes: int, permutation: tuple[OneHint, ...]) -> OneHint:
    merged = nodes
    for mask, _ in permutation:
        merged &= mask
    alike = len({mask for mask, _ in permutation if mask != ANY_NODE_BITS}) <= 1
    return merged, alike and all(preferred for _, preferred in permutation)


def compare(  # noqa: PLR0911 - one return for each line of the reference's table
    current: OneHint | None, candidate: OneHint, best: int, distances: Distances | None
) -> OneHint | None:
    if candidate[0] == 0:
        return current
    if current is None:
        return candidate
    if current[1] != candidate[1]:
        return candidate if candidate[1] else current
    ours, theirs = current[0].bit_count(), candidate[0].bit_count()
    narrower = min(current, candidate, key=lambda hint: mask_order(hint[0], distances))
    if current[1] or ours > best:
        return narrower
    if ours == best:
        return narrower if theirs == best else current
    if theirs > best:
        return current
    if theirs == ours:
        return narrower
    return candidate if theirs == best or theirs > ours else current


def mask_order(mask: int, distances: Distances | None) -> tuple[int, float, int]:
    nodes = tuple(NodeMask(mask))
    mean = 0.0
    if distances is not None:
        mean = sum(distances[a][b] for a in nodes for b in nodes) / len(nodes) ** 2
    return len(nodes), mean, mask
