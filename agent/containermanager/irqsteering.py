"""Device interrupts off exclusive CPUs, and back when these are free again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from agent.containermanager.hoststate import IRQS, Originals
from agent.domain.idset import CpuSet
from agent.irq.affinity import DEFAULT, wanted
from agent.irq.procirq import Interrupts

_PERIOD: Final = 60.0
"""Seconds until interrupts are looked at again though nothing changed: there may be thousands."""


class IrqSteering:
    """Keeps the affinity of interrupts; what the kernel does not let move is in ``notices``."""

    def __init__(
        self, interrupts: Interrupts, originals: Originals, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._interrupts = interrupts
        self._originals = originals
        self._clock = clock
        self._immovable: frozenset[str] = frozenset()
        self._settled: tuple[CpuSet, CpuSet] | None = None
        self._due = 0.0
        self.notices: tuple[str, ...] = ()

    def settle(self, everything: CpuSet, held: CpuSet) -> None:
        """Let interrupts go to the CPUs that are nobody's. Raises HostError, StateError."""
        if self._settled == (everything, held) and self._clock() < self._due:
            return
        now = self._interrupts.affinities()
        free = everything - held
        changes = wanted(now, self._originals.of(IRQS), free)
        self._originals.remember(IRQS, {irq: now[irq] for irq in changes})
        stuck = {
            irq
            for irq, cpus in changes.items()
            if irq not in self._immovable and not self._interrupts.set_affinity(irq, cpus)
        }
        self._immovable = (self._immovable | stuck) & now.keys()
        self.notices = tuple(self._told(held))
        self._settled, self._due = (everything, held), self._clock() + _PERIOD

    def release(self) -> None:
        """Let every interrupt go where it went, and forget it."""
        taken = self._originals.of(IRQS)
        for irq, cpus in taken.items():
            self._interrupts.set_affinity(irq, cpus)
        if taken:
            self._originals.forget(IRQS)

    def _told(self, held: CpuSet) -> list[str]:
        told = []
        stuck = self._immovable - {DEFAULT}
        there = CpuSet.of(int(irq) for irq in stuck if not self._interrupts.serving(irq).isdisjoint(held))
        if there:
            told.append(
                f"interrupts {there} stay on exclusive CPUs: the kernel does not let them be moved"
                " (per-CPU or managed by their driver; fewer device queues or isolcpus=managed_irq may help)"
            )
        if held and self._interrupts.irqbalance():
            told.append(
                "irqbalance runs and moves interrupts, too: set IRQBALANCE_BANNED_CPULIST="
                f"{held} for it, or stop it (systemctl disable --now irqbalance)"
            )
        return told
