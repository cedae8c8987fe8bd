"""Topology hints: which sets of NUMA nodes could serve a request (KEP-693).

A provider's answer per resource is a `Wish`. Masks inside `Hints` are raw `NodeMask` bits: a
16-node machine has 65,535 of them per resource, far too many for objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, overload

from agent.domain.idset import NodeMask
from agent.domain.pod import ResourceName

ANY_NODE_BITS: Final = -1
"""The mask of a hint without affinity: all ones, the identity of AND."""


class AnyNode(Enum):
    """No affinity: every NUMA node will do."""

    ANY_NODE = "any"


ANY_NODE: Final = AnyNode.ANY_NODE
Affinity = NodeMask | AnyNode


@dataclass(frozen=True, slots=True)
class Hint:
    """One merged hint: where to allocate, and whether that is as narrow as it can be."""

    affinity: Affinity
    preferred: bool


class NoPreference(Enum):
    """The provider has no opinion about the resource."""

    NO_PREFERENCE = "no preference"


NO_PREFERENCE: Final = NoPreference.NO_PREFERENCE


@dataclass(frozen=True, slots=True)
class Impossible:
    """No set of NUMA nodes can serve the request; ``reason`` says why, for people."""

    reason: str


class Deferred(Sequence[int]):
    """Masks that are listed when first looked at; equal to a tuple of the same.

    Decisions seldom look at masks that nobody prefers, and 16 nodes have 65,535.
    """

    __slots__ = ("_masks",)

    def __init__(self, listing: Callable[[], Iterable[int]]) -> None:
        """``listing`` is pure."""
        self._masks: tuple[int, ...] | Callable[[], Iterable[int]] = listing

    def _listed(self) -> tuple[int, ...]:
        masks = self._masks
        if not isinstance(masks, tuple):
            self._masks = masks = tuple(masks())
        return masks

    def __iter__(self) -> Iterator[int]:
        return iter(self._listed())

    def __len__(self) -> int:
        return len(self._listed())

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[int, ...]: ...
    def __getitem__(self, place: int | slice) -> int | tuple[int, ...]:
        return self._listed()[place]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Deferred | tuple) and self._listed() == tuple(other)

    def __hash__(self) -> int:
        return hash(self._listed())

    def __repr__(self) -> str:
        return repr(self._listed())


@dataclass(frozen=True, slots=True)
class Hints:
    """Masks (raw bits, or `ANY_NODE_BITS`) that can serve a request; at least one of either kind.

    ``complete`` is False where the search over a machine with very many NUMA nodes was cut after
    the narrowest masks: ``preferred`` is still exact, ``other`` lacks the wider masks.
    """

    preferred: tuple[int, ...]
    other: tuple[int, ...] | Deferred = ()
    complete: bool = True


Wish = Hints | NoPreference | Impossible
Wishes = Mapping[ResourceName, Wish]
"""One provider's answers; empty means no opinion at all."""
