"""How fast the machine is just now, beside the fastest it was.

A virtual CPU shares its core with strangers, and while they work the same code takes up to twice as long. So a fixed
piece of work is timed before and after each sample: if it took hardly longer than ever, the machine was quiet. Which
samples count is thus told without looking at them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

from scripts.bench.registry import Samples

PATIENCE_SECONDS: Final = 30.0
_TURNS: Final = 16_000
"""Of a loop that takes a millisecond at 2.4 GHz."""
_TOLERANCE: Final = 1.3
_LEARNING_SECONDS: Final = 2.0
_LEAST_QUIET: Final = 5


def _nothing() -> None:
    pass


class Pace:
    """The fastest that the fixed work ever was; it is learnt at first, and whenever it is faster."""

    def __init__(self) -> None:
        self.best_ms = float("inf")
        end = time.monotonic() + _LEARNING_SECONDS
        while time.monotonic() < end:
            self.now()

    def now(self) -> float:
        """Milliseconds of CPU time that the fixed work takes."""
        start = time.thread_time_ns()
        total = 0
        for number in range(_TURNS):
            total += number * number & 7
        taken = (time.thread_time_ns() - start) / 1e6
        self.best_ms = min(self.best_ms, taken)
        return taken

    def is_quiet(self, taken: float) -> bool:
        """Whether work that took so long was hardly slowed down."""
        return taken <= self.best_ms * _TOLERANCE

    def sampled(
        self,
        sample: Callable[[], float],
        enough: Callable[[Sequence[float]], bool],
        prepare: Callable[[], object] = _nothing,
    ) -> Samples:
        """Samples, each after ``prepare``, until the quiet ones are ``enough`` or `PATIENCE_SECONDS` are over.

        The quiet ones alone; all of them where they are too few to say anything.
        """
        taken: list[tuple[float, float]] = []
        quiet: list[float] = []
        end = time.monotonic() + PATIENCE_SECONDS
        while not enough(quiet) and (len(taken) < _LEAST_QUIET or time.monotonic() < end):
            prepare()
            before = self.now()
            value = sample()
            slowest = max(before, self.now())
            taken.append((slowest, value))
            if self.is_quiet(slowest):
                quiet.append(value)
        # What was quiet at first may not be beside the fastest seen since.
        quiet = [value for slowest, value in taken if self.is_quiet(slowest)]
        values = quiet if len(quiet) >= _LEAST_QUIET else [value for _, value in taken]
        return Samples(tuple(values), quiet=len(quiet) / len(taken))


@cache
def pace() -> Pace:
    """The one of this process."""
    return Pace()
