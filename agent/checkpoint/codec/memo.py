"""What a writer may remember so that the next file renders only the pods that changed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from agent.domain.pod import PodUid
from agent.domain.state import changed_pods

V = TypeVar("V")


@dataclass(slots=True)
class _Part:
    """The ``texts`` of ``pods``, one after the other by uid; ``sizes`` are what each pod has of each text."""

    pods: Mapping[PodUid, object]
    uids: list[PodUid]
    sizes: list[list[int]]
    texts: list[bytes]

    def put(self, uid: PodUid, new: Sequence[bytes]) -> None:
        """Let ``new`` stand where the pod's own is, or is to be; empty texts take it out."""
        at = bisect_left(self.uids, uid)
        here = slice(at, at + (self.uids[at : at + 1] == [uid]))
        stays = any(new)
        self.uids[here] = [uid] if stays else []
        for column, text in enumerate(new):
            sizes, whole = self.sizes[column], memoryview(self.texts[column])
            start = sum(sizes[:at])
            self.texts[column] = b"".join((whole[:start], text, whole[start + sum(sizes[here]) :]))
            sizes[here] = [len(text)] if stays else []


class Memo:
    """What one writer of one file remembers from write to write; its results never depend on it.

    A pod whose value is the same object as at the previous write is not rendered again: the
    mappings of a state are never written to. Not to be shared between threads or files.
    """

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: dict[str, _Part] = {}

    def joined(
        self, name: str, pods: Mapping[PodUid, V], render: Callable[[PodUid, V], Sequence[bytes]], width: int
    ) -> tuple[bytes, ...]:
        """The ``width`` texts that ``render`` makes of each of ``pods``, joined in the order of their uids.

        ``name`` is the list's, and stands for what it is made of. No pod's texts are all empty.
        """
        last = self._parts.get(name)
        changed = sorted(changed_pods(last.pods if last else {}, pods))
        made = {uid: render(uid, pods[uid]) for uid in changed if uid in pods}
        if last is None:
            columns = [[texts[column] for texts in made.values()] for column in range(width)]
            sizes = [list(map(len, column)) for column in columns]
            last = self._parts[name] = _Part(pods, changed, sizes, [b"".join(column) for column in columns])
        else:  # should one not render, all is as before
            for uid in changed:
                last.put(uid, made.get(uid, (b"",) * width))
            last.pods = pods
        return tuple(last.texts)
