"""Listing the sets of NUMA nodes that a hint search looks at, and what each can give."""

from __future__ import annotations

from collections.abc import Callable

from agent.domain.maskspace import MaskSpace
from scripts.bench.registry import benchmark


def _listing(nodes: int) -> Callable[[], object]:
    ids = tuple(range(nodes))
    return lambda: MaskSpace(ids)


def _sums(nodes: int) -> Callable[[], object]:
    space, free = MaskSpace(tuple(range(nodes))), [(node + 1) << 30 for node in range(nodes)]
    return lambda: list(space.sums(free))


@benchmark(aim=30)
def listing_16_nodes() -> Callable[[], object]:
    """All 65,535 sets of 16 nodes (once a machine)."""
    return _listing(16)


@benchmark(aim=100)
def listing_64_nodes() -> Callable[[], object]:
    """The narrowest sets of 64 nodes (once a machine)."""
    return _listing(64)


@benchmark(aim=1)
def sums_8_nodes() -> Callable[[], object]:
    """Free bytes in each set of 8 nodes."""
    return _sums(8)


@benchmark(aim=20)
def sums_16_nodes() -> Callable[[], object]:
    """Free bytes in each set of 16 nodes."""
    return _sums(16)


@benchmark(aim=50)
def sums_64_nodes() -> Callable[[], object]:
    """Free bytes in each listed set of 64 nodes."""
    return _sums(64)
