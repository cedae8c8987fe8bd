"""distribute-cpus-across-numa as the kubelet literally searches, to compare the fast search with.

Its recursion appends to shared arrays, as Go slices do, so that a remembered combination changes
while the search goes on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass
class Slice:
    """A length over an array that others may append to as well."""

    array: list[int] = field(default_factory=list)
    capacity: int = 0
    length: int = 0

    def append(self, value: int) -> Slice:
        array, capacity = self.array, self.capacity
        if self.length == capacity:
            array = array[: self.length]
            capacity = max(1, 2 * capacity)
        array[self.length :] = [value, *array[self.length + 1 :]]
        return Slice(array, capacity, self.length + 1)

    def items(self) -> list[int]:
        return self.array[: self.length]


def each_combination(pool: Sequence[int], size: int, visit: Callable[[Slice], bool]) -> None:
    """Visit combinations in order until ``visit`` returns False."""

    def step(left: int, start: int, so_far: Slice) -> bool:
        if left == 0:
            return visit(so_far)
        return all(
            step(left - 1, at + 1, so_far.append(pool[at])) for at in range(start, len(pool) - left + 1)
        )

    step(size, 0, Slice())


def deviation(values: Sequence[int]) -> float:
    mean = math.floor(sum(values) / len(values) * 1000 + 0.5) / 1000
    spread = math.sqrt(sum((x - mean) ** 2 for x in values) / len(values))
    return math.floor(spread * 1000 + 0.5) / 1000


def hand_out(left: list[int], givers: Sequence[int], n: int, group: int) -> bool:
    """Take ``n`` CPUs from ``givers`` in turns; False where they have not enough."""
    while n:
        before = n
        for node in givers:
            if n and left[node] >= group:
                left[node] -= group
                n -= group
        if n == before:
            return False
    return True


def distribute(free: Sequence[int], widths: Sequence[int], n: int, group: int) -> list[int] | None:
    """How many CPUs each node gives; None if no combination fits."""
    for width in widths:
        found = _Best()
        share = n // width // group * group

        def visit(combination: Slice, share: int = share, found: _Best = found) -> bool:
            if found.score == 0:
                return False
            _score(found, free, combination, share, n, group)
            return True

        each_combination(range(len(free)), width, visit)
        if found.combination is None:
            continue
        left = list(free)
        rest = n - share * width
        for node in found.combination.items():
            left[node] -= share
        if min(left) >= 0 and hand_out(left, found.remainder.items(), rest, group):
            return [a - b for a, b in zip(free, left, strict=True)]
        return found.given
    return None


@dataclass
class _Best:
    score: float = math.inf
    combination: Slice | None = None
    remainder: Slice = field(default_factory=Slice)
    given: list[int] = field(default_factory=list)


def _score(found: _Best, free: Sequence[int], combination: Slice, share: int, n: int, group: int) -> None:
    nodes = combination.items()
    left = [x - share * (node in nodes) for node, x in enumerate(free)]
    rest = n - share * len(nodes)
    if min(left) < 0 or sum(free[node] // group for node in nodes) * group < n:
        return
    local = _Best()
    if rest == 0:
        local.score = deviation(left)
        local.given = [a - b for a, b in zip(free, left, strict=True)]
    able = [node for node in nodes if left[node] >= group]

    def visit(subset: Slice) -> bool:
        after = list(left)
        if hand_out(after, subset.items(), rest, group) and deviation(after) < local.score:
            local.score, local.remainder = deviation(after), subset
            local.given = [a - b for a, b in zip(free, after, strict=True)]
        return True

    for size in range(len(able) if rest else 0, 0, -1):
        each_combination(able, size, visit)
    if local.score < found.score:
        found.score, found.combination = local.score, combination
        found.remainder, found.given = local.remainder, local.given
