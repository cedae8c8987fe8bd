"""CPU and memory hotplug: the kernel's uevents, a burst of them folded into one event.

The daemon waits for ``fileno()`` beside its other work, then asks `HotplugWatch.drain` and
discovers the machine anew: the event says that something changed, sysfs says what.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import Final, Protocol, Self

import pyudev

log = logging.getLogger(__name__)

SUBSYSTEMS: Final = ("cpu", "memory", "node")
QUIET_SECONDS: Final = 0.1
"""A burst is over when nothing has come for this long."""
LONGEST_BURST_SECONDS: Final = 1.0
"""A burst that goes on is reported after this long; the rest makes the next event."""

Changed = frozenset[str]
"""The subsystems (`SUBSYSTEMS`) of a burst; empty: nothing happened."""


class Uevent(Protocol):
    """What we use of ``pyudev.Device``."""

    @property
    def subsystem(self) -> str:
        """The kernel's subsystem, such as ``cpu``."""
        ...


class UeventSource(Protocol):
    """What we use of ``pyudev.Monitor``."""

    def filter_by(self, subsystem: str) -> None:
        """Let events of ``subsystem`` through, beside those let through before."""
        ...

    def start(self) -> None:
        """Begin to queue events. Raises OSError."""
        ...

    def fileno(self) -> int:
        """The descriptor that is readable when an event is queued."""
        ...

    def poll(self, timeout: float) -> Uevent | None:
        """The next event, or None after ``timeout`` seconds. Raises OSError, e.g. on an overflow."""
        ...


class HotplugWatch(Protocol):
    """Tells the daemon that CPUs, memory or NUMA nodes came or went."""

    def fileno(self) -> int:
        """A descriptor that becomes readable with an event."""
        ...

    def drain(self) -> Changed:
        """Take the burst that has begun; waits for its end, at most about a second."""
        ...

    def close(self) -> None:
        """Give the descriptor back."""
        ...


class UdevHotplug:
    """A `HotplugWatch` over an open source of uevents."""

    __slots__ = ("_clock", "_source")

    def __init__(self, source: UeventSource, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._clock = clock

    @classmethod
    def open(cls, source: UeventSource) -> Self:
        """Begin to watch ``source``. Raises OSError."""
        for subsystem in SUBSYSTEMS:
            source.filter_by(subsystem)
        source.start()
        return cls(source)

    def fileno(self) -> int:
        """See `HotplugWatch.fileno`."""
        return self._source.fileno()

    def drain(self) -> Changed:
        """See `HotplugWatch.drain`."""
        changed: set[str] = set()
        end = self._clock() + LONGEST_BURST_SECONDS
        try:
            event = self._source.poll(0)
            while event is not None:
                changed.add(event.subsystem)
                event = self._source.poll(QUIET_SECONDS) if self._clock() < end else None
        except OSError as error:
            # The queue overflowed (ENOBUFS): events are lost, so anything may have changed.
            log.warning("uevents were lost, looking at the whole machine: error=%s", error)
            return frozenset(SUBSYSTEMS)
        return frozenset(changed)

    def close(self) -> None:
        """See `HotplugWatch.close`."""
        # pyudev closes its socket with the last reference.
        del self._source


class NoHotplug:
    """A `HotplugWatch` that never has an event: its descriptor never becomes readable."""

    __slots__ = ("_fd",)

    def __init__(self) -> None:
        self._fd = os.eventfd(0)

    def fileno(self) -> int:
        """See `HotplugWatch.fileno`."""
        return self._fd

    def drain(self) -> Changed:
        """See `HotplugWatch.drain`."""
        return frozenset()

    def close(self) -> None:
        """See `HotplugWatch.close`."""
        os.close(self._fd)


def kernel_uevents() -> UeventSource:
    """The kernel's own uevents. Raises ImportError without libudev, OSError without netlink."""
    # Not udev's: sysfs is right as soon as the kernel speaks, and no udevd needs to run.
    monitor: UeventSource = pyudev.Monitor.from_netlink(pyudev.Context(), source="kernel")
    return monitor


def watch_hotplug(open_source: Callable[[], UeventSource] = kernel_uevents) -> HotplugWatch:
    """Watch for hotplug; where the host has no uevents, say so once and watch nothing."""
    try:
        return UdevHotplug.open(open_source())
    except (ImportError, OSError) as error:
        log.warning("hotplug is not watched, changes show at the next restart: error=%s", error)
        return NoHotplug()
