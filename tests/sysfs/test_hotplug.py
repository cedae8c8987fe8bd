"""Hotplug: a burst of uevents is one event, and a host without uevents is watched in vain."""

from __future__ import annotations

import logging
import os
import select
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from agent.sysfs.hotplug import LONGEST_BURST_SECONDS, UdevHotplug, UeventSource, watch_hotplug


@dataclass(frozen=True, slots=True)
class Event:
    subsystem: str


class FakeSource:
    """Events come from a list; each costs a tenth of a second of its clock."""

    def __init__(self, events: list[str | OSError]) -> None:
        self.events = events
        self.now = 0.0
        self.filters: list[str] = []
        self.started = False

    def filter_by(self, subsystem: str) -> None:
        self.filters.append(subsystem)

    def start(self) -> None:
        self.started = True

    def fileno(self) -> int:
        return 42

    def poll(self, timeout: float) -> Event | None:
        self.now += 0.1
        if not self.events:
            return None
        event = self.events.pop(0)
        if isinstance(event, OSError):
            raise event
        return Event(event)


def _watch(source: FakeSource) -> UdevHotplug:
    return UdevHotplug(source, clock=lambda: source.now)


def test_a_burst_is_one_event() -> None:
    watch = _watch(FakeSource(["cpu", "cpu", "node", "cpu"]))
    assert watch.drain() == {"cpu", "node"}
    assert watch.drain() == frozenset()


def test_a_burst_without_end_is_reported_in_parts() -> None:
    source = FakeSource(["memory"] * 100)
    watch = _watch(source)
    assert watch.drain() == {"memory"}
    assert source.now <= LONGEST_BURST_SECONDS + 0.2
    assert len(source.events) > 80


def test_lost_events_mean_that_anything_may_have_changed(caplog: pytest.LogCaptureFixture) -> None:
    watch = _watch(FakeSource(["cpu", OSError("no buffer space")]))
    assert watch.drain() == {"cpu", "memory", "node"}
    assert "no buffer space" in caplog.text


def test_cpus_memory_and_nodes_are_watched() -> None:
    source = FakeSource([])
    watch = watch_hotplug(lambda: source)
    assert source.filters == ["cpu", "memory", "node"]
    assert source.started
    assert watch.fileno() == 42


def _no_libudev() -> UeventSource:
    raise ImportError("no library named udev")


def _no_netlink() -> UeventSource:
    raise OSError("netlink is not allowed")


@pytest.fixture(params=[_no_libudev, _no_netlink])
def without_uevents(request: pytest.FixtureRequest) -> Callable[[], UeventSource]:
    source: Callable[[], UeventSource] = request.param
    return source


def test_a_host_without_uevents_is_said_once_and_has_no_events(
    without_uevents: Callable[[], UeventSource], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        watch = watch_hotplug(without_uevents)
    assert len(caplog.records) == 1
    assert watch.drain() == frozenset()
    assert select.select([watch.fileno()], [], [], 0)[0] == []
    descriptor = watch.fileno()
    watch.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_the_running_host_can_be_watched() -> None:
    watch = watch_hotplug()
    assert os.fstat(watch.fileno())
    assert watch.drain() <= {"cpu", "memory", "node"}
    watch.close()
