"""Threads that do what takes its time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from queue import SimpleQueue

import pytest

from agent.api.workers import SPARE, Workers

NAME = "worker-of-a-test"


@pytest.fixture
def workers() -> Iterator[Workers]:
    found = Workers(NAME)
    yield found
    found.end()
    settle(0)


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == NAME]


def settle(most: int) -> None:
    """Wait until there are at most so many threads."""
    deadline = time.monotonic() + 20
    while len(threads()) > most and time.monotonic() < deadline:
        time.sleep(0.001)
    assert len(threads()) <= most


def idle(workers: Workers, count: int) -> None:
    while len(workers._idle) < count:
        time.sleep(0.001)


def test_a_thread_that_is_done_does_the_next_work(workers: Workers) -> None:
    done = SimpleQueue[int]()
    for _ in range(20):
        workers.run(lambda: done.put(threading.get_ident()))
        done.get(timeout=20)
        idle(workers, 1)
    assert len(threads()) == 1


def test_nobody_waits_for_another_and_few_threads_stay(workers: Workers) -> None:
    together = threading.Barrier(50)
    for _ in range(49):
        workers.run(together.wait)
    together.wait(timeout=20)
    settle(SPARE)
    done = SimpleQueue[None]()
    for _ in range(SPARE * 2):
        workers.run(lambda: done.put(None))
    for _ in range(SPARE * 2):
        done.get(timeout=20)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_work_that_fails_takes_no_other_with_it(workers: Workers) -> None:
    def fail() -> None:
        raise SystemExit

    done = SimpleQueue[None]()
    for _ in range(SPARE + 1):
        workers.run(fail)
        workers.run(lambda: done.put(None))
        done.get(timeout=20)


def test_at_the_end_who_is_idle_ends_and_who_is_busy_ends_later() -> None:
    workers, go_on, done = Workers(NAME), threading.Event(), SimpleQueue[None]()
    workers.run(go_on.wait)
    workers.run(lambda: done.put(None))
    done.get(timeout=20)
    workers.end()
    settle(1)
    go_on.set()
    settle(0)
