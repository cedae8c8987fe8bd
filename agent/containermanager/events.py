"""What happened, in order: one sentence each, for the log and for whoever asks later.

Kept in memory only, the newest `CAPACITY`: a daemon that starts again counts from 1.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from threading import Condition
from typing import Final

from agent.domain.pod import Pod

log = logging.getLogger(__name__)

CAPACITY: Final = 1000


class EventKind(Enum):
    """What an event is about, in the form of Kubernetes event reasons."""

    STARTED = "Started"
    REBOOTED = "Rebooted"
    STATE_RECOVERED = "StateRecovered"
    ADMITTED = "Admitted"
    REJECTED = "Rejected"
    REMOVED = "Removed"
    ENDED = "Ended"
    CONTAINER_STARTED = "ContainerStarted"
    CONTAINER_EXITED = "ContainerExited"
    CONTAINER_RESTARTED = "ContainerRestarted"
    DEBUG = "Debug"
    DEGRADED = "Degraded"
    RECOVERED = "Recovered"
    UNKNOWN_POD = "UnknownPod"
    UNKNOWN_POD_GONE = "UnknownPodGone"
    DRIFT_REPAIRED = "DriftRepaired"
    LIMIT_PUT_OFF = "LimitPutOff"
    BINDING_FAILED = "BindingFailed"
    BINDING_MENDED = "BindingMended"
    HOST_ISOLATION = "HostIsolation"
    HOTPLUG = "Hotplug"
    NOT_READY = "NotReady"
    READY = "Ready"
    MANIFEST_PROBLEM = "ManifestProblem"
    CONFIGURATION_CHANGED = "ConfigurationChanged"
    CONFIGURATION_REFUSED = "ConfigurationRefused"


_ERRORS: Final = {EventKind.NOT_READY, EventKind.MANIFEST_PROBLEM, EventKind.CONFIGURATION_REFUSED}
_WARNINGS: Final = {
    EventKind.STATE_RECOVERED,
    EventKind.REJECTED,
    EventKind.DEGRADED,
    EventKind.UNKNOWN_POD,
    EventKind.DRIFT_REPAIRED,
    EventKind.LIMIT_PUT_OFF,
    EventKind.BINDING_FAILED,
    EventKind.HOST_ISOLATION,
    *_ERRORS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened; ``pod`` is NAMESPACE/NAME, empty where it concerns the node."""

    sequence: int
    time: str
    kind: EventKind
    pod: str
    text: str

    @property
    def type(self) -> str:
        """``Normal`` or ``Warning``, as in Kubernetes."""
        return "Warning" if self.kind in _WARNINGS else "Normal"


class Events:
    """The newest events, numbered from 1. Safe to call from several threads, whatever locks they hold."""

    def __init__(self, now: Callable[[], str]) -> None:
        self._now = now
        self._kept: deque[Event] = deque(maxlen=CAPACITY)
        self._last = 0
        self._added = Condition()
        self.run = now()
        """When this count began (RFC 3339): another value means that it began anew."""

    def add(self, kind: EventKind, text: str, pod: Pod | None = None) -> None:
        """Log the sentence ``text`` and remember it."""
        log.log(_level(kind), "%s", text)
        name = pod.full_name if pod is not None else ""
        with self._added:
            self._last += 1
            self._kept.append(Event(sequence=self._last, time=self._now(), kind=kind, pod=name, text=text))
            self._added.notify_all()

    def since(self, sequence: int, *, pod: str = "", wait: float = 0.0) -> tuple[Event, ...]:
        """The events after number ``sequence``, of one pod if ``pod`` names it (NAMESPACE/NAME).

        Waits up to ``wait`` seconds until there is one. Where the numbers after ``sequence`` do not follow
        on, older events are no longer kept.
        """
        with self._added:
            self._added.wait_for(lambda: self._after(sequence, pod), timeout=wait)
            return self._after(sequence, pod)

    def _after(self, sequence: int, pod: str) -> tuple[Event, ...]:
        newest = []
        for event in reversed(self._kept):
            if event.sequence <= sequence:
                break
            if pod in {"", event.pod}:
                newest.append(event)
        return tuple(reversed(newest))


def _level(kind: EventKind) -> int:
    if kind in _ERRORS:
        return logging.ERROR
    return logging.WARNING if kind in _WARNINGS else logging.INFO
