"""A token bucket, as the kubelet has one before its PodResources API."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock


class TokenBucket:
    """Lets ``per_second`` calls through in the long run, ``burst`` at once; from any thread.

    ``clock`` tells seconds and never runs backwards.
    """

    def __init__(self, *, per_second: float, burst: int, clock: Callable[[], float]) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._clock = clock
        self._lock = Lock()
        self._tokens = self._burst
        self._filled_at = clock()

    def take(self) -> bool:
        """Take a token if there is one."""
        with self._lock:
            now = self._clock()
            self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._per_second)
            self._filled_at = now
            if self._tokens < 1:
                return False
            self._tokens -= 1
            return True
