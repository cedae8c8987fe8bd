"""The pods that are drawn: as many as asked, in order, by their weights and lifetimes."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from statistics import mean, median

import pytest

from agent.simulate.fleet import Law, Lifetime, PodClass
from agent.simulate.stream import arrivals
from tests.simulate.fleets import seeded

HOUR = 3600.0


def classes(lifetime: Lifetime, *weights: float) -> list[PodClass]:
    return [
        PodClass(template="a", weight=weight, lifetime=lifetime, pods=(), request={}, exclusive=0)
        for weight in weights
    ]


def test_exactly_that_many_pods_come_in_order_within_the_horizon() -> None:
    lasting = Lifetime(law=Law.CONSTANT, seconds=5)
    times = [now for now, _, _ in arrivals(seeded(1), classes(lasting, 1), 5000, HOUR)]
    assert len(times) == 5000
    assert all(one <= other for one, other in pairwise([0.0, *times, HOUR]))


def test_they_come_evenly_as_a_poisson_process_does() -> None:
    """Per minute 1,000 on average, with the variance of a Poisson process, which is its mean."""
    lasting = Lifetime(law=Law.CONSTANT, seconds=5)
    minutes = Counter(int(now // 60) for now, _, _ in arrivals(seeded(2), classes(lasting, 1), 60_000, HOUR))
    variance = mean((minutes[minute] - 1000) ** 2 for minute in range(60))
    assert 500 < variance < 1600


def test_templates_come_by_their_weights() -> None:
    lasting = Lifetime(law=Law.CONSTANT, seconds=5)
    drawn = Counter(kind for _, kind, _ in arrivals(seeded(3), classes(lasting, 3, 1), 40_000, HOUR))
    assert drawn[0] / 40_000 == pytest.approx(0.75, abs=0.01)


@pytest.mark.parametrize(
    ("lifetime", "average", "middle"),
    [
        (Lifetime(law=Law.CONSTANT, seconds=60), 60, 60),
        (Lifetime(law=Law.EXPONENTIAL, seconds=60), 60, 41.59),  # ln 2
        (Lifetime(law=Law.LOGNORMAL, seconds=60, sigma=1), 98.92, 60),  # e to the half
    ],
)
def test_lifetimes_follow_their_law(lifetime: Lifetime, average: float, middle: float) -> None:
    lasting = [end - now for now, _, end in arrivals(seeded(4), classes(lifetime, 1), 40_000, HOUR)]
    assert mean(lasting) == pytest.approx(average, rel=0.03)
    assert median(lasting) == pytest.approx(middle, rel=0.03)
