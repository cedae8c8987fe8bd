"""What the gate does, and how its failures read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from agent.errors import HostError
from agent.systemdbus.properties import Properties

NO_BUS: Final = "NO-BUS"
"""The ``code`` of an error about a bus that cannot be reached or does not answer."""
JOB_FAILED: Final = "JOB-FAILED"
"""The ``code`` of an error about a unit that is not in the state it was asked into."""


UNIT_EXISTS: Final = "org.freedesktop.systemd1.UnitExists"
"""The ``code`` of an error about a transient unit that is there already."""


class SystemdError(HostError):
    """systemd did not do it. ``code`` is `NO_BUS`, `JOB_FAILED` or the D-Bus error's name."""

    def __init__(self, unit: str, message: str, code: str, *, hint: str = "") -> None:
        super().__init__(f"systemd: {unit}: {message}" if unit else f"systemd: {message}", hint=hint)
        self.unit = unit
        self.code = code


@dataclass(frozen=True, slots=True)
class ListedUnit:
    """A unit that systemd has loaded."""

    name: str
    load_state: str
    active_state: str


class SystemdManager(Protocol):
    """systemd's manager. Every method raises `SystemdError`; all block, for a bounded time."""

    def properties(self, unit: str) -> Properties:
        """The properties in `SIGNATURES` that the unit has. A unit without a file has LoadState "not-found"."""

    def properties_of(self, units: Sequence[str]) -> Mapping[str, Properties]:
        """`properties` of many units, asked for at once."""

    def set_properties(self, unit: str, properties: Properties) -> None:
        """Set them now and, by a drop-in below /run, after a daemon-reload, but not after a reboot."""

    def set_properties_of(self, changes: Mapping[str, Properties]) -> None:
        """`set_properties` of many units, told at once, in this order. Where one is refused the others may be set."""

    def forget_property(self, units: Sequence[str], name: str) -> None:
        """Take away the drop-ins that `set_properties` made for it, so that the units' own files hold again.

        Where /run/systemd may not be written they stay until the next boot.
        """

    def start_transient(self, unit: str, properties: Properties) -> None:
        """Make and start a slice or scope (a scope needs ``PIDs``); return when it is active."""

    def start_loaded(self, unit: str) -> None:
        """Start a unit that is loaded; return when it is active."""

    def stop(self, unit: str) -> None:
        """Stop a unit; return when it is. One that is not loaded is stopped."""

    def states(self, units: Sequence[str]) -> Mapping[str, str]:
        """The ActiveState of each; systemd has acted on all that it was told before."""

    def units(self, patterns: Sequence[str]) -> tuple[ListedUnit, ...]:
        """The loaded units whose name fits one of the globs, by name."""

    def close(self) -> None:
        """Give up the connection; the next call makes a new one."""
