"""What a writer may remember so that the next file renders only the pods that changed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from agent.domain.pod import PodUid
from agent.domain.state import changed_pods

V = TypeVar("V")
P = TypeVar("P")


class Memo:
    """What one writer of one file remembers from write to write; its results never depend on it.

    A pod whose value is the same object as at the previous write is not rendered again: the
    mappings of a state are never written to. Not to be shared between threads or files.
    """

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: dict[str, tuple[Mapping[PodUid, object], list[PodUid], list[Any]]] = {}

    def pieces(self, part: str, pods: Mapping[PodUid, V], render: Callable[[PodUid, V], P]) -> tuple[P, ...]:
        """``render`` each of ``pods`` in the order of their uids; ``part`` names the list and what it is made of."""
        last, uids, pieces = self._parts.get(part, ({}, [], []))
        uids, pieces = uids.copy(), pieces.copy()  # should one not render, all is as before
        for uid in sorted(changed_pods(last, pods)):
            at = bisect_left(uids, uid)
            here = slice(at, at + (uids[at : at + 1] == [uid]))
            uids[here] = [uid] if uid in pods else []
            pieces[here] = [render(uid, pods[uid])] if uid in pods else []
        self._parts[part] = pods, uids, pieces
        return tuple(pieces)
