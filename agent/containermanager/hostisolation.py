"""Keeping the host off exclusive CPUs: who is made to leave, when, and what is to be said about it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final, Protocol

from agent.config.model import HostIsolation
from agent.containermanager.hostpartitions import HostPartitions
from agent.containermanager.hostslices import ALWAYS, NOTHING_LENT, HostSlices, Lent
from agent.containermanager.irqsteering import IrqSteering
from agent.domain.idset import CpuSet
from agent.errors import ConfigError

SHARED: Final = (
    "hostIsolation is none: host processes (sshd, cron, ...) may run on exclusive CPUs, too;"
    " hostIsolation: slices keeps them off (docs/isolation.md)"
)


class Host(Protocol):
    """What else runs on the machine.

    ``everything``: all CPUs there are; ``held``: those that are exclusive; ``lent``: those of them that bound
    containers in a top-level cgroup have, which therefore keeps them.
    """

    mode: HostIsolation
    """What holds: not always what was asked for."""
    problems: tuple[str, ...]

    @property
    def closed(self) -> frozenset[str]:
        """The top-level cgroups that are kept off every exclusive CPU: too many others run in them to lend any."""

    def give_up_partitions(self, why: str) -> None:
        """``mode`` was to be partition, and the kernel does not do it."""

    def leave(self, everything: CpuSet, held: CpuSet, lent: Lent = NOTHING_LENT) -> None:
        """Make the host let go of ``held``. Raises HostError, StateError."""

    def settle(self, everything: CpuSet, held: CpuSet, lent: Lent = NOTHING_LENT) -> None:
        """Let the host use all that is not ``held``. Raises HostError, StateError."""

    def repairs(self) -> tuple[str, ...]:
        """What others had changed and was put right since the last call, as sentences."""

    def notices(self, held: CpuSet) -> tuple[str, ...]:
        """What an operator should know about it, as sentences; nothing of it is an error."""


class LooseHost:
    """`Host` under hostIsolation: none. It does as it likes."""

    mode = HostIsolation.NONE
    closed: frozenset[str] = frozenset()
    problems: tuple[str, ...] = ()

    def give_up_partitions(self, why: str) -> None:
        """See `Host.give_up_partitions`: nobody asked for any."""

    def leave(self, everything: CpuSet, held: CpuSet, lent: Lent = NOTHING_LENT) -> None:
        """See `Host.leave`."""

    def settle(self, everything: CpuSet, held: CpuSet, lent: Lent = NOTHING_LENT) -> None:
        """See `Host.settle`."""

    def repairs(self) -> tuple[str, ...]:
        """See `Host.repairs`."""
        return ()

    def notices(self, held: CpuSet) -> tuple[str, ...]:
        """See `Host.notices`."""
        return (SHARED,) if held else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HostGates:
    """Everything that can keep the host off CPUs."""

    slices: HostSlices
    irqs: IrqSteering
    partitions: HostPartitions


class ConfinedHost:
    """`Host` that is kept off exclusive CPUs, its processes (``slices``), its interrupts (``irqs``) or both.

    Under partition the kernel keeps processes off, as soon as what is exclusive is a partition.
    """

    def __init__(
        self,
        mode: HostIsolation,
        slices: HostSlices | None = None,
        irqs: IrqSteering | None = None,
        partitions: HostPartitions | None = None,
    ) -> None:
        self.mode = mode
        self._partitions = partitions
        self.problems: tuple[str, ...] = ()
        self._slices = slices
        self._irqs = irqs

    def leave(self, everything: CpuSet, held: CpuSet, lent: Lent = NOTHING_LENT) -> None:
        """See `Host.leave`."""
        if self._slices and self.mode is HostIsolation.SLICES:
            self._slices.leave(everything, held, lent)
        if self._partitions and held and self.mode is HostIsolation.PARTITION:
            self._partitions.begin()

    @property
    def closed(self) -> frozenset[str]:
        """See `Host.closed`."""
        return frozenset(ALWAYS) if self._slices and self.mode is HostIsolation.SLICES else frozenset()

    def give_up_partitions(self, why: str) -> None:
        """See `Host.give_up_partitions`: slices take their place."""
        self.mode = HostIsolation.SLICES
        said = (
            f"hostIsolation: partition cannot be had, slices take its place: {why}; docs/isolation.md says what it"
            " needs, and hostIsolation: slices ends this message"
        )
        self.problems = (said,)

    def settle(self, everything: CpuSet, held: CpuSet, lent: Lent = NOTHING_LENT) -> None:
        """See `Host.settle`. Interrupts, too: they disturb, but break no promise while they are moved."""
        if self._slices and self.mode is HostIsolation.SLICES:
            self._slices.settle(everything, held, lent)
        elif self._slices:
            self._slices.release(everything)
        if self._irqs:
            self._irqs.settle(everything, held)

    def repairs(self) -> tuple[str, ...]:
        """See `Host.repairs`."""
        if self._slices is None:
            return ()
        done, self._slices.repairs = tuple(self._slices.repairs), []
        return done

    def notices(self, held: CpuSet) -> tuple[str, ...]:
        """See `Host.notices`."""
        loose = (SHARED,) if held and self._slices is None else ()
        return (*loose, *(self._irqs.notices if self._irqs else ()))


def host_with(mode: HostIsolation, gates: HostGates, everything: CpuSet, *, irq_affinity: bool) -> Host:
    """The host as it is wanted now; what an earlier configuration took and this one does not is given back.

    Raises HostError, StateError.
    """
    if mode is HostIsolation.NONE:
        gates.slices.release(everything)
    if not irq_affinity:
        gates.irqs.release()
    if mode is HostIsolation.NONE and not irq_affinity:
        return LooseHost()
    return ConfinedHost(
        mode,
        slices=None if mode is HostIsolation.NONE else gates.slices,
        irqs=gates.irqs if irq_affinity else None,
        partitions=gates.partitions,
    )


def spared_slice(cgroup_root: PurePosixPath, mount: PurePosixPath) -> str:
    """The cgroup at the top of the hierarchy that our subtree is in; it is never confined."""
    return cgroup_root.relative_to(mount).parts[0] if cgroup_root.is_relative_to(mount) else ""


def check_place(mode: HostIsolation, cgroup_root: PurePosixPath, mount: PurePosixPath) -> None:
    """Refuse to confine the host where pods live below what would be confined. Raises ConfigError."""
    top = spared_slice(cgroup_root, mount)
    if mode is HostIsolation.PARTITION and cgroup_root.parent != mount:
        raise ConfigError(
            f"$.hostIsolation: partition needs a cgroupRoot right below {mount}, not {cgroup_root}: every cgroup"
            " above a partition has to hand its CPUs down, and only cgroupRoot and what is below it is numalet's",
            hint=f"set cgroupRoot: {mount}/numalet, or hostIsolation: slices",
        )
    if mode is HostIsolation.NONE:
        return
    if top in {"init.scope", "system.slice", "user.slice", "machine.slice"}:
        raise ConfigError(
            f"$.hostIsolation: {mode.value} would take the pods their exclusive CPUs: cgroupRoot {cgroup_root} is inside"
            f" {top}, and a cgroup has no CPU that the one above it has not",
            hint=f"set cgroupRoot outside of it, e.g. {mount}/numalet or {mount}/numalet.slice,"
            " or hostIsolation: none",
        )
