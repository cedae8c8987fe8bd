"""What happened in a cell under one variant: whole numbers, so that the order of adding does not matter."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

SAMPLES: Final = 100
"""Looks at the fleet, evenly over the horizon; means are over the later half, when it has filled."""

UNSCHEDULABLE: Final = "Unschedulable"
"""No node had room by the numbers that a scheduler knows: no node was asked."""

Place = tuple[int, int]
"""A shape's place in the fleet, and the id of a NUMA node."""


@dataclass(slots=True, kw_only=True)
class Free:
    """Free CPUs of NUMA nodes, summed over looks; ``useless`` by demand: free where it has no room."""

    looks: int = 0
    cpus: int = 0
    useless: Counter[int] = field(default_factory=Counter)

    def add(self, other: Free) -> None:
        """Add another's sums."""
        self.looks += other.looks
        self.cpus += other.cpus
        self.useless.update(other.useless)


@dataclass(slots=True, kw_only=True)
class Look:
    """The nodes at one moment: ``requested`` and ``allocatable`` in thousandths of a CPU, as schedulers count.

    ``exclusive`` CPUs are held by somebody alone.
    """

    requested: int = 0
    allocatable: int = 0
    exclusive: int = 0
    free: Free = field(default_factory=Free)

    def add(self, other: Look) -> None:
        """Add other nodes at the same moment."""
        self.requested += other.requested
        self.allocatable += other.allocatable
        self.exclusive += other.exclusive
        self.free.add(other.free)


@dataclass(slots=True, kw_only=True)
class Result:
    """``refusals`` counts refusals of nodes by reason, ``lost`` pods that found no node, by the last reason.

    ``remembered`` of the refusals were the same node's in the same state for the same pod, not decided anew.
    """

    cells: int = 0
    running: int = 0
    ended: int = 0
    remembered: int = 0
    arrived: Counter[int] = field(default_factory=Counter)
    admitted: Counter[int] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    looks: list[Look] = field(default_factory=lambda: [Look() for _ in range(SAMPLES)])
    places: dict[Place, Free] = field(default_factory=dict)

    def add(self, other: Result) -> None:
        """Add another cell's."""
        for name in ("cells", "running", "ended", "remembered"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("arrived", "admitted", "refusals", "lost"):
            getattr(self, name).update(getattr(other, name))
        for look, more in zip(self.looks, other.looks, strict=True):
            look.add(more)
        for place, free in other.places.items():
            self.places.setdefault(place, Free()).add(free)
