"""Topology hints: which sets of NUMA nodes could serve a request (KEP-693).

A provider's answer per resource is a `Wish`. Masks inside `Hints` are raw `NodeMask` bits: a
16-node machine has 65,535 of them per resource, far too many for objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

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


@dataclass(frozen=True, slots=True)
class Hints:
    """Masks (raw bits, or `ANY_NODE_BITS`) that can serve a request; at least one of either kind.

    ``complete`` is False where the search over a machine with very many NUMA nodes was cut after
    the narrowest masks: ``preferred`` is still exact, ``other`` lacks the wider masks.
    """

    preferred: tuple[int, ...]
    other: tuple[int, ...] = ()
    complete: bool = True


Wish = Hints | NoPreference | Impossible
Wishes = Mapping[ResourceName, Wish]
"""One provider's answers; empty means no opinion at all."""
