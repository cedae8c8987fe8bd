"""distribute-cpus-across-numa (KEP-2902): an even share of each of as few NUMA nodes as possible.

For a growing number of nodes k, each combination of k nodes could give an even share and some
subset of it the remaining groups of CPUs, one group a node, round and round. The best is the most
balanced outcome: the smallest standard deviation, to 3 decimals, of the free CPUs left per node;
of equals the first, combinations in node order, subsets from the widest to single nodes.

The sum of what is left is the same for all of them, so the deviation grows with the sum of squares
alone. That makes a lower bound cheap: take each remaining group from the node that has most left.
Only where this bound beats the best outcome so far are the subsets tried one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import sqrt
from typing import Final

from agent.cpumanager.packed import Packed, Taken, not_enough, take_packed
from agent.cpumanager.tables import CpuTables
from agent.domain.idset import CpuSet, union
from agent.domain.trace import Pick, Rule

_WORST: Final = 1 << 62
"""Above any balance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Distributed:
    """CPUs are handed out ``group_size`` at a time: a core's threads with full-pcpus-only, else 1."""

    group_size: int = 1
    spread: bool = False


Places = tuple[int, ...]
"""Ascending places in a list: of nodes, or of the nodes that can give more than their share."""


def take_distributed(tables: CpuTables, available: CpuSet, n: int, how: Distributed) -> Taken:
    """Choose ``n`` of ``available``; packed where no even distribution fits."""
    packed = Packed(spread=how.spread)
    free = available.bits & tables.online
    if n % how.group_size or n < 1:
        return take_packed(tables, available, n, packed)
    if n > free.bit_count():
        raise not_enough(n, available)
    nodes = [free & node.cpus for node in tables.node_order(free)]
    for width in _widths(tables, len(nodes), n, how.group_size):
        search = _Search([cpus.bit_count() for cpus in nodes], n, how.group_size, width)
        picks = tuple(
            Pick(Rule.DISTRIBUTED, _from_node(tables, CpuSet(nodes[place]), sizes, packed))
            for place, sizes in search.run()
        )
        if picks:
            return Taken(union(pick.cpus for pick in picks), picks)
    return take_packed(tables, available, n, packed)


def _from_node(tables: CpuTables, cpus: CpuSet, sizes: Sequence[int], packed: Packed) -> CpuSet:
    """Take ``sizes`` CPUs one after the other: the even share, then group by group."""
    taken = CpuSet()
    for n in sizes:
        taken |= take_packed(tables, cpus - taken, n, packed).cpus
    return taken


def _widths(tables: CpuTables, nodes_available: int, n: int, group: int) -> range:
    """How many nodes to try: from what an empty machine would need to one group a node."""
    groups = -(-tables.online.bit_count() // group)
    groups_per_node = -(-groups // tables.node_count)
    return range(-(-(n // group) // groups_per_node), min(n // group, nodes_available) + 1)


class _Search:
    """The search over all combinations of ``width`` nodes; places count in node order.

    ``left`` are the free CPUs per node, ``share`` what each chosen node gives, ``groups`` how many
    groups of CPUs remain to be given after that.
    """

    def __init__(self, left: Sequence[int], n: int, group: int, width: int) -> None:
        self.left = left
        self.group = group
        self.width = width
        self.share = n // width // group * group
        self.groups = (n - self.share * width) // group
        self.balance = _Balance(sum(left) - n, len(left))
        self.best = _WORST
        self.chosen: Places = ()
        self.givers: Places = ()
        self.subset: Places = ()

    def run(self) -> Iterator[tuple[int, Sequence[int]]]:
        """Yield place and sizes to take, of the best outcome; nothing where none fits."""
        left, share = self.left, self.share
        squares = sum(x * x for x in left)
        cost = [(x - share) ** 2 - x * x for x in left]
        spare = [(x - share) // self.group for x in left]
        capable = [place for place, x in enumerate(left) if x >= share]
        for combination in combinations(capable, self.width):
            if sum([spare[place] for place in combination]) >= self.groups:
                self._try(combination, squares + sum([cost[place] for place in combination]))
            if self.best == 0:
                break
        if self.chosen:
            yield from self._plan()

    def _try(self, combination: Places, base: int) -> None:
        after = [self.left[place] - self.share for place in combination]
        bound = self.balance(base + self._lowest_cost(after))
        if bound >= self.best:
            return
        able = [at for at, x in enumerate(after) if x >= self.group]
        for subset in _subsets(len(able), self.groups):
            given = _round_robin(after, [able[at] for at in subset], self.groups, self.group)
            if given is None:
                continue
            balance = self.balance(base + self._cost(after, given))
            if balance < self.best:
                self.best = balance
                self.chosen, self.subset = combination, subset
                self.givers = tuple(combination[at] for at in able)
                if balance == bound:
                    return

    def _lowest_cost(self, after: Sequence[int]) -> int:
        """How the sum of squares changes if each group comes from the node with most left."""
        left = list(after)
        for _ in range(self.groups):
            left[left.index(max(left))] -= self.group
        return sum(x * x for x in left) - sum(x * x for x in after)

    def _cost(self, after: Sequence[int], given: Sequence[int]) -> int:
        """How the sum of squares changes if the nodes give as many groups."""
        group = self.group
        return sum((x - k * group) ** 2 - x * x for x, k in zip(after, given, strict=True) if k)

    def _plan(self) -> Iterator[tuple[int, Sequence[int]]]:
        """What the best outcome takes from each node, as the kubelet remembers it."""
        places = len(self.left)
        # A perfect balance ends the search, at the combination after it.
        last = _next_combination(self.chosen, places) if self.best == 0 else ()
        remembered = _overwritten(self.chosen, places, last)
        subset = _overwritten(self.subset, len(self.givers), ())
        given = self._given(remembered, subset)
        if given is None:
            remembered = self.chosen
            given = self._given(remembered, self.subset)
        for place, groups in enumerate(given or ()):
            share = (self.share,) if place in remembered else ()
            if share or groups:
                yield place, (*share, *(self.group,) * groups)

    def _given(self, combination: Places, subset: Places) -> Sequence[int] | None:
        """Groups each node gives; None where a node has not enough."""
        after = [x - self.share if place in combination else x for place, x in enumerate(self.left)]
        if min(after) < 0:
            return None
        return _round_robin(after, [self.givers[at] for at in subset], self.groups, self.group)


def _round_robin(
    after: Sequence[int], givers: Sequence[int], groups: int, group: int
) -> Sequence[int] | None:
    """How many of ``groups`` each node gives if ``givers`` take turns; None if they have not enough."""
    given = [0] * len(after)
    missing = groups
    while missing:
        before = missing
        for at in givers:
            if missing and after[at] - given[at] * group >= group:
                given[at] += 1
                missing -= 1
        if missing == before:
            return None
    return given


def _overwritten(chosen: Places, size: int, last: Places) -> Places:
    """What is left of ``chosen``, a combination out of ``range(size)``, when the search is over.

    The kubelet remembers a slice, and goes on appending later combinations into the same array
    for as long as its capacity (a power of two) lasts: those with equal first places overwrite the
    rest. ``last`` is where the search broke off, empty if it ran to the end.
    """
    count = len(chosen)
    if count < 2:
        return chosen
    kept = 1 + (1 << ((count - 1).bit_length() - 1))
    if last[:kept] == chosen[:kept]:
        return last
    return (*chosen[:kept], *range(size - count + kept, size))


def _next_combination(chosen: Places, size: int) -> Places:
    """The combination of ``range(size)`` that follows ``chosen``; empty after the last one."""
    count = len(chosen)
    for at in reversed(range(count)):
        if chosen[at] < size - count + at:
            return (*chosen[:at], *range(chosen[at] + 1, chosen[at] + 1 + count - at))
    return ()


class _Balance:
    """Standard deviation in thousandths, from the sum of squares; the mean is known beforehand."""

    __slots__ = ("count", "mean", "total")

    def __init__(self, total: int, count: int) -> None:
        self.total = total
        self.count = count
        # The mean itself counts with 3 decimals only.
        self.mean = (2000 * total + count) // (2 * count)

    def __call__(self, squares: int) -> int:
        variance = squares * 1_000_000 - 2000 * self.mean * self.total + self.count * self.mean**2
        return int(sqrt(variance / self.count) + 0.5)


@lru_cache(maxsize=512)
def _subsets(size: int, groups: int) -> tuple[tuple[int, ...], ...]:
    """The subsets of ``size`` nodes that differ in what they give, in the order they are tried.

    Of a subset with more nodes than groups only the first give anything: the subset that ends
    there stands for all of them, at the place of the widest one.
    """
    if groups == 0:
        return ((),)
    wide = (
        (*head, *range(last, size))
        for last in range(groups - 1, size)
        for head in combinations(range(last), groups - 1)
    )
    narrow = (
        subset for width in range(min(groups - 1, size), 0, -1) for subset in combinations(range(size), width)
    )
    return (*wide, *narrow)
