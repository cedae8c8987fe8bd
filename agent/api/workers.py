"""Threads for what may take its time, as many as there is at once; one that is done waits for the next."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Final

SPARE: Final = 4
"""The threads that are kept when none has anything to do: starting one costs more than most of what they do."""

_Work = Callable[[], object]


class Workers:
    """Threads called ``name``. The methods are for one thread to call, which waits for none of them."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._idle: list[SimpleQueue[_Work]] = []
        """Where each of the threads that have nothing to do waits for something."""
        self._ended = False

    def run(self, work: _Work) -> None:
        """Let a thread do ``work`` at once."""
        if self._idle:
            inbox = self._idle.pop()
        else:
            inbox = SimpleQueue()
            Thread(target=self._serve, args=(inbox,), name=self._name, daemon=True).start()
        inbox.put(work)

    def end(self) -> None:
        """Let each thread end as soon as it has nothing to do."""
        self._ended = True
        while self._idle:
            self._idle.pop().put(_nothing)

    def _serve(self, inbox: SimpleQueue[_Work]) -> None:
        inbox.get()()
        while len(self._idle) < SPARE:
            self._idle.append(inbox)
            if self._ended:  # perhaps after `end` had looked
                return
            inbox.get()()


def _nothing() -> None:
    pass
