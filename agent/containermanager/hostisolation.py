"""Keeping the host off exclusive CPUs: who is made to leave, when, and what is to be said about it."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Final, Protocol

from agent.config.model import HostIsolation
from agent.containermanager.hostslices import HostSlices
from agent.containermanager.hoststate import Originals
from agent.containermanager.irqsteering import IrqSteering
from agent.domain.idset import CpuSet
from agent.errors import ConfigError

SHARED: Final = (
    "hostIsolation is none: host processes (sshd, cron, ...) may run on exclusive CPUs, too;"
    " hostIsolation: slices keeps them off (docs/isolation.md)"
)


class Host(Protocol):
    """What else runs on the machine. ``everything``: all CPUs there are; ``held``: those that are exclusive."""

    mode: HostIsolation

    def leave(self, everything: CpuSet, held: CpuSet) -> int:
        """Make the host let go of ``held``; returns the number of changes. Raises HostError, StateError."""

    def settle(self, everything: CpuSet, held: CpuSet) -> int:
        """Let the host use all that is not ``held``; returns the number of changes. Raises HostError, StateError."""

    def notices(self, held: CpuSet) -> tuple[str, ...]:
        """What an operator should know about it, as sentences; nothing of it is an error."""


class LooseHost:
    """`Host` under hostIsolation: none. It does as it likes."""

    mode = HostIsolation.NONE

    def leave(self, _everything: CpuSet, _held: CpuSet) -> int:
        """See `Host.leave`."""
        return 0

    def settle(self, _everything: CpuSet, _held: CpuSet) -> int:
        """See `Host.settle`."""
        return 0

    def notices(self, held: CpuSet) -> tuple[str, ...]:
        """See `Host.notices`."""
        return (SHARED,) if held else ()


class ConfinedHost:
    """`Host` that is kept off exclusive CPUs, its processes (``slices``), its interrupts (``irqs``) or both."""

    def __init__(
        self, mode: HostIsolation, originals: Originals, slices: HostSlices | None, irqs: IrqSteering | None
    ) -> None:
        self.mode = mode
        self._originals = originals
        self._slices = slices
        self._irqs = irqs

    def leave(self, everything: CpuSet, held: CpuSet) -> int:
        """See `Host.leave`."""
        return self._slices.leave(everything, held) if self._slices else 0

    def settle(self, everything: CpuSet, held: CpuSet) -> int:
        """See `Host.settle`. Interrupts, too: they disturb, but break no promise while they are moved."""
        changes = self._slices.settle(everything, held) if self._slices else 0
        return changes + (self._irqs.settle(everything, held) if self._irqs else 0)

    def notices(self, held: CpuSet) -> tuple[str, ...]:
        """See `Host.notices`."""
        loose = (SHARED,) if held and self._slices is None else ()
        return (*loose, *(self._irqs.notices if self._irqs else ()))

    def release(self, everything: CpuSet) -> None:
        """Give the host back all that was its own, and forget it. Raises HostError, StateError."""
        if self._slices:
            self._slices.release(everything)
        if self._irqs:
            self._irqs.release()
        self._originals.forget()


def spared_slice(cgroup_root: PurePosixPath, mount: PurePosixPath) -> str:
    """The cgroup at the top of the hierarchy that our subtree is in; it is never confined."""
    return cgroup_root.relative_to(mount).parts[0] if cgroup_root.is_relative_to(mount) else ""


def check_place(cgroup_root: PurePosixPath, mount: PurePosixPath) -> None:
    """Refuse to confine the host where pods live below what would be confined. Raises ConfigError."""
    top = spared_slice(cgroup_root, mount)
    if top in {"init.scope", "system.slice", "user.slice", "machine.slice"}:
        raise ConfigError(
            f"$.hostIsolation: slices would take the pods their exclusive CPUs: cgroupRoot {cgroup_root} is inside"
            f" {top}, and a cgroup has no CPU that the one above it has not",
            hint=f"set cgroupRoot outside of it, e.g. {mount}/numalet or {mount}/numalet.slice,"
            " or hostIsolation: none",
        )
