"""How things look on a terminal: colours, which `click.echo` leaves out elsewhere, and when to draw."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import click

_COLOR_OF_STATE: Final[Mapping[str, str]] = {
    "Admitted": "green",
    "Degraded": "yellow",
    "Rejected": "red",
    "Succeeded": "green",
}


def draws_unicode() -> bool:
    """Whether the output is a terminal that shows more than ASCII."""
    return sys.stdout.isatty() and "utf" in (sys.stdout.encoding or "").lower()


def warned(text: str) -> str:
    """Something to look at."""
    return click.style(text, fg="yellow")


def failed(text: str) -> str:
    """Something that is wrong."""
    return click.style(text, fg="red", bold=True)


def well(text: str) -> str:
    """Something that is as it should be."""
    return click.style(text, fg="green")


def titled(text: str) -> str:
    """The name of what follows."""
    return click.style(text, bold=True)


def state_word(state: str) -> str:
    """A pod's state in its colour."""
    color = _COLOR_OF_STATE.get(state)
    return click.style(state, fg=color) if color else state


def local_time(text: str) -> str:
    """An RFC 3339 time on the clock of this machine, to the second."""
    return _parsed(text).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def age(text: str, now: datetime | None = None) -> str:
    """How long ago an RFC 3339 time was, in the two largest units that matter: ``3d4h``, ``5m``, ``12s``."""
    seconds = max(0, int(((now or datetime.now(UTC)) - _parsed(text)).total_seconds()))
    days, hours, minutes = seconds // 86400, seconds // 3600 % 24, seconds // 60 % 60
    if days:
        return f"{days}d{hours}h"
    if hours:
        return f"{hours}h{minutes}m"
    return f"{minutes}m{seconds % 60}s" if minutes else f"{seconds}s"


def _parsed(text: str) -> datetime:
    return datetime.fromisoformat(text)
