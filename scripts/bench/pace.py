"""How fast the machine is just now, beside the fastest it was.

A virtual CPU shares its core with strangers, and while they work the same code takes up to twice as long. So a fixed
piece of work is timed before and after each few samples: if it took hardly longer than ever, the machine was quiet. Which
samples count is thus told without looking at them.
"""

from __future__ import annotations

import os
import time
from bisect import insort
from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain
from typing import Final

from scripts.bench.registry import Samples

_CPUS: Final = os.sched_getaffinity(0)
_TURNS: Final = 16_000
"""Of a loop that takes a millisecond at 2.4 GHz."""
_TOLERANCE: Final = 1.3
_LEARNING_SECONDS: Final = 5.0
_OUTLIERS: Final = 0.02
_LEAST_QUIET: Final = 5
_GROUP_SECONDS: Final = 0.005
"""Between two looks at the pace, which leave other things in the caches."""


def pin() -> None:
    """Run on one CPU from now on: another, idle until now, would begin with cold caches. Threads and processes that are made follow."""
    os.sched_setaffinity(0, {max(_CPUS)})


def unpin() -> None:
    """Run anywhere again."""
    os.sched_setaffinity(0, _CPUS)


def _nothing() -> None:
    pass


class Pace:
    """What the fixed work takes; how long it takes on a quiet machine is learnt at first, and ever after."""

    def __init__(self) -> None:
        self._taken: list[float] = []
        """All times so far, ascending."""
        end = time.monotonic() + _LEARNING_SECONDS
        while time.monotonic() < end:
            self.now()

    @property
    def best_ms(self) -> float:
        """The shortest time, less the few that nothing else is ever as quick as."""
        return self._taken[int(len(self._taken) * _OUTLIERS)]

    def now(self) -> float:
        """Milliseconds of CPU time that the fixed work takes."""
        start = time.thread_time_ns()
        total = 0
        for number in range(_TURNS):
            total += number * number & 7
        taken = (time.thread_time_ns() - start) / 1e6
        insort(self._taken, taken)
        return taken

    def is_quiet(self, taken: float) -> bool:
        """Whether work that took so long was hardly slowed down."""
        return taken <= self.best_ms * _TOLERANCE

    def sampled(
        self,
        sample: Callable[[], float],
        enough: Callable[[Sequence[float]], bool],
        prepare: Callable[[], object] = _nothing,
        patience: float = 10.0,
    ) -> Samples:
        """Samples, each after ``prepare``, until the quiet ones are ``enough`` or ``patience`` seconds are over.

        The quiet ones alone; all of them where they are too few to say anything.
        """
        taken: list[tuple[float, list[float]]] = []
        quiet: list[float] = []
        end = time.monotonic() + patience
        while not enough(quiet) and (len(taken) < _LEAST_QUIET or time.monotonic() < end):
            before, group = self.now(), list[float]()
            group_end = time.monotonic() + _GROUP_SECONDS
            while not group or time.monotonic() < group_end:
                prepare()
                group.append(sample())
            taken.append((max(before, self.now()), group))
            if self.is_quiet(taken[-1][0]):
                quiet += group
        # What was quiet at first may not be beside the fastest seen since.
        good = [group for slowest, group in taken if self.is_quiet(slowest)]
        quiet, every = list(chain(*good)), list(chain(*(group for _, group in taken)))
        values = quiet if len(quiet) >= _LEAST_QUIET else every
        return Samples(tuple(values), quiet=len(quiet) / len(every))


@cache
def pace() -> Pace:
    """The one of this process."""
    return Pace()
