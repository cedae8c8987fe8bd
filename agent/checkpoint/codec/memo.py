"""What a writer may remember so that the next file renders only the pods that changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from agent.domain.pod import PodUid
from agent.domain.state import changed_pods

V = TypeVar("V")


class Memo:
    """What one writer of one file remembers from write to write; its results never depend on it.

    A pod whose value is the same object as at the previous write is not rendered again: the
    mappings of a state are never written to. Not to be shared between threads or files.
    """

    __slots__ = ("_texts",)

    def __init__(self) -> None:
        self._texts: dict[str, tuple[Mapping[PodUid, object], dict[PodUid, bytes]]] = {}

    def pieces(
        self, part: str, pods: Mapping[PodUid, V], render: Callable[[PodUid, V], bytes]
    ) -> list[bytes]:
        """``render`` each of ``pods`` in the order of their uids; ``part`` names the list."""
        last, texts = self._texts.get(part, ({}, {}))
        changed = changed_pods(last, pods)
        if changed:
            texts = texts | {uid: render(uid, pods[uid]) for uid in changed if uid in pods}
            for uid in changed - pods.keys():
                del texts[uid]
        self._texts[part] = pods, texts
        return list(map(texts.__getitem__, sorted(texts)))
