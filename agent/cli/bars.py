"""Bars of text: which CPUs of a NUMA node are whose, and how full something is.

Each pool has a sign of its own beside its colour: colours may be off, or look alike to the reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import click

from agent.domain.idset import CpuSet

WIDTH: Final = 32
"""Characters, where a node has more CPUs than this; else a CPU is a character."""

_SIGNS: Final = (
    ("reserved", "▒", "R", "magenta"),
    ("exclusive", "█", "X", "red"),
    ("pod shared", "▓", "P", "yellow"),
    ("node shared", "░", ".", "green"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools:
    """How many online CPUs of a NUMA node are in which pool; each is counted once."""

    reserved: int
    exclusive: int
    pod_shared: int
    node_shared: int

    @classmethod
    def of(cls, node: dict[str, Any]) -> Self:
        """The pools of a NUMA node as the control API tells of it."""
        reserved, shared, exclusive, pod_shared = (
            CpuSet.parse(node[key]) for key in ("reserved", "shared", "exclusive", "podShared")
        )
        return cls(
            reserved=len(reserved),
            exclusive=len(exclusive - pod_shared - reserved),
            pod_shared=len(pod_shared - reserved),
            node_shared=len(shared - reserved),
        )

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """In the order of the bar."""
        return self.reserved, self.exclusive, self.pod_shared, self.node_shared

    def words(self) -> str:
        """``1 reserved, 2 exclusive, 1 pod shared, 4 node shared``; what is not there is left out."""
        told = (f"{count} {name}" for count, (name, *_) in zip(self.counts, _SIGNS, strict=True) if count)
        return ", ".join(told) or "no CPUs"


def legend(*, unicode: bool) -> str:
    """What the signs of `cpu_bar` mean."""
    return "  ".join(
        f"{click.style(sign if unicode else plain, fg=color)} {name}" for name, sign, plain, color in _SIGNS
    )


def cpu_bar(pools: Pools, *, unicode: bool) -> str:
    """A node's CPUs as a bar, a pool after the other."""
    cells = apportioned(pools.counts, min(sum(pools.counts), WIDTH))
    parts = (
        click.style((sign if unicode else plain) * count, fg=color)
        for count, (_, sign, plain, color) in zip(cells, _SIGNS, strict=True)
        if count
    )
    return "[" + "".join(parts) + " " * (WIDTH - sum(cells)) + "]"


def share_bar(part: float, whole: float, *, unicode: bool) -> str:
    """How much of something is taken."""
    full = min(WIDTH, round(WIDTH * part / whole)) if whole else 0
    full = max(full, 1) if part and whole else full
    return "[" + ("█" if unicode else "#") * full + ("░" if unicode else ".") * (WIDTH - full) + "]"


def apportioned(counts: Sequence[int], cells: int) -> list[int]:
    """Share ``cells`` out in proportion, at least one to each count that is not 0 (largest remainder)."""
    total = sum(counts)
    if not total or total == cells:
        return list(counts)
    given = [count * cells // total for count in counts]
    by_remainder = sorted(range(len(counts)), key=lambda i: (-(counts[i] * cells % total), i))
    for i in by_remainder[: cells - sum(given)]:
        given[i] += 1
    for i, count in enumerate(counts):
        if count and not given[i]:
            given[i] = 1
            given[given.index(max(given))] -= 1
    return given
