"""Draws the pods of one cell: when each comes, which one it is, how long it stays."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import exp, log
from typing import Protocol

from agent.simulate.fleet import Law, Lifetime, PodClass


class Randomness(Protocol):
    """What is used of `random.Random`."""

    def random(self) -> float:
        """A number from 0 up to, without, 1."""
        ...

    def gauss(self, mu: float, sigma: float) -> float:
        """Draw by the normal law."""
        ...


def arrivals(
    randomness: Randomness, classes: Sequence[PodClass], pods: int, horizon: float
) -> Iterator[tuple[float, int, float]]:
    """Yield time, class and end of each of exactly ``pods`` pods, ascending in time, within ``horizon``.

    A Poisson process of which the number of events is known: these are as many independent times, uniform
    over the horizon, in their order.
    """
    bounds = list(accumulate(one.weight for one in classes))
    now = 0.0
    for left in range(pods, 0, -1):
        # The least of `left` uniform times between now and the horizon.
        now += (horizon - now) * (1.0 - (1.0 - randomness.random()) ** (1.0 / left))
        kind = min(bisect(bounds, randomness.random() * bounds[-1]), len(classes) - 1)
        yield now, kind, now + _lasting(randomness, classes[kind].lifetime)


def _lasting(randomness: Randomness, lifetime: Lifetime) -> float:
    match lifetime.law:
        case Law.CONSTANT:
            return lifetime.seconds
        case Law.EXPONENTIAL:
            return -log(1.0 - randomness.random()) * lifetime.seconds
        case Law.LOGNORMAL:
            return lifetime.seconds * exp(randomness.gauss(0.0, lifetime.sigma))
