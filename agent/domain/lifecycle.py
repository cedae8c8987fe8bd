"""What is known of a container's processes: values; the transitions are the owner's (containermanager)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class ContainerState(Enum):
    """The kubelet's words, but for `EXITED`: nobody tells us the exit status, so not whether it failed."""

    WAITING = "waiting"
    """Nothing has run in it yet."""
    RUNNING = "running"
    EXITED = "exited"
    """Something ran in it, and nothing does now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerLife:
    """``since`` is RFC 3339, empty for a container that waits since its pod was admitted."""

    state: ContainerState = ContainerState.WAITING
    since: str = ""
    restarts: int = 0


NOT_STARTED = ContainerLife()
Lives = Mapping[str, ContainerLife]
"""By container name; one that is missing has not started."""
