"""What a simulation is asked: nodes, variants of their settings, a stream of pods, a scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import accumulate

from agent.domain.pod import Pod, ResourceName
from agent.domain.settings import Settings
from agent.domain.topology import Topology

Amounts = Mapping[ResourceName, int]
"""By resource: CPUs in thousandths, everything else in bytes."""


class Score(Enum):
    """Which of the nodes with room the scheduler takes (kube-scheduler's NodeResourcesFit)."""

    MOST_ALLOCATED = "most-allocated"
    LEAST_ALLOCATED = "least-allocated"
    RANDOM = "random"


class Law(Enum):
    """The distribution of a lifetime."""

    CONSTANT = "constant"
    EXPONENTIAL = "exponential"
    LOGNORMAL = "lognormal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetime:
    """``seconds`` is the constant, the mean of the exponential, the median of the lognormal law."""

    law: Law
    seconds: float
    sigma: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Nodes of one kind; ``most_pods`` is the kubelet's maxPods."""

    name: str
    count: int
    topology: Topology
    most_pods: int = 110


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One choice of settings; ``settings`` and ``allocatable`` by shape, in the fleet's order."""

    name: str
    settings: tuple[Settings, ...]
    allocatable: tuple[Amounts, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodClass:
    """One size of a template: all its pods are alike but for their names.

    ``pods`` is by variant, because feature gates change what a manifest means; ``request`` is what a
    scheduler counts, ``exclusive`` the CPUs it would have to itself.
    """

    template: str
    weight: float
    lifetime: Lifetime
    pods: tuple[Pod, ...]
    request: Amounts
    exclusive: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """A pod to try free CPUs with: has one NUMA node the CPUs and ordinary memory for it?"""

    name: str
    template: str
    cpus: int
    memory: int


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """The whole question. ``horizon`` is in seconds; ``demands`` are the smallest, median and large pod."""

    shapes: tuple[Shape, ...]
    variants: tuple[Variant, ...]
    classes: tuple[PodClass, ...]
    demands: tuple[Demand, ...]
    pods: int
    horizon: float
    score: Score = Score.MOST_ALLOCATED
    retries: int = 2
    cell_size: int = 100
    seed: int = 1

    @cached_property
    def nodes(self) -> int:
        """The nodes of all shapes."""
        return sum(shape.count for shape in self.shapes)

    @cached_property
    def cells(self) -> int:
        """Parts of the fleet that are scheduled for themselves."""
        return -(-self.nodes // self.cell_size)

    def cell_shapes(self, cell: int) -> tuple[int, ...]:
        """The shape of each node of a cell; every cell has its share of each shape."""
        starts = [0, *accumulate(shape.count for shape in self.shapes)]
        return tuple(
            shape
            for shape, start in enumerate(starts[:-1])
            for _ in range(start + (cell - start) % self.cells, starts[shape + 1], self.cells)
        )

    def cell_pods(self, cell: int) -> int:
        """The pods that come to a cell: in proportion to its nodes, and ``pods`` in all."""
        before = sum(len(self.cell_shapes(other)) for other in range(cell))
        through = before + len(self.cell_shapes(cell))
        return self.pods * through // self.nodes - self.pods * before // self.nodes
