"""The token bucket: so many in a burst, so many per second, whoever asks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.api.podresources.ratelimit import TokenBucket
from tests.podresources.serving import Clock


def test_a_full_bucket_lets_a_burst_through_and_fills_again_with_time() -> None:
    clock = Clock()
    bucket = TokenBucket(per_second=100, burst=10, clock=clock)
    assert [bucket.take() for _ in range(12)] == [True] * 10 + [False] * 2
    clock.now += 0.0101
    assert [bucket.take() for _ in range(2)] == [True, False]
    clock.now += 3600
    assert [bucket.take() for _ in range(12)] == [True] * 10 + [False] * 2


@given(st.lists(st.floats(0, 0.5), max_size=60))
def test_no_more_than_burst_and_rate_allow_get_through(pauses: list[float]) -> None:
    clock = Clock()
    bucket = TokenBucket(per_second=20, burst=5, clock=clock)
    start, passed = clock.now, 0
    for pause in pauses:
        clock.now += pause
        passed += bucket.take()
        assert passed <= 5 + (clock.now - start) * 20 + 1e-6
