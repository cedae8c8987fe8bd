"""The gate to /proc/irq."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from agent.domain.idset import NO_CPUS, CpuSet
from agent.errors import HostError
from agent.irq.affinity import DEFAULT, Affinities, mask_text

_IMMOVABLE: Final = frozenset({errno.EIO, errno.EPERM, errno.ENOSPC})
"""A managed interrupt (its driver spread it over the CPUs), a per-CPU one, or no vector free on these CPUs.

EPERM since Linux 6.2 (EIO before) if the interrupt's affinity is not user space's to set.
"""


class Interrupts(Protocol):
    """The machine's interrupts by number, and `DEFAULT`."""

    def affinities(self) -> Affinities:
        """The CPUs that each may go to."""

    def serving(self, irq: str) -> CpuSet:
        """The CPUs that it is delivered to: of those it may go to, mostly one."""

    def set_affinity(self, irq: str, cpus: CpuSet) -> bool:
        """Let it go to ``cpus``; False if the kernel does not let it be moved. Raises HostError."""

    def irqbalance(self) -> bool:
        """Tell whether irqbalance runs, which moves interrupts, too."""


class ProcIrq:
    """`Interrupts` of the machine whose file system is at ``root``."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._irqs = root / "proc/irq"
        self._run = root / "run/irqbalance"

    def affinities(self) -> Affinities:
        """See `Interrupts.affinities`. An interrupt that vanishes meanwhile is left out."""
        found: dict[str, CpuSet] = {}
        for directory in sorted(self._irqs.glob("[0-9]*")):
            with suppress(OSError, ValueError):
                found[directory.name] = CpuSet.parse((directory / "smp_affinity_list").read_text())
        with suppress(OSError, ValueError):
            found[DEFAULT] = CpuSet.parse_mask((self._irqs / "default_smp_affinity").read_text())
        return found

    def serving(self, irq: str) -> CpuSet:
        """See `Interrupts.serving`. One that is gone, or was never used, is delivered nowhere."""
        for file in ("effective_affinity_list", "smp_affinity_list"):  # not every architecture has the former
            with suppress(OSError, ValueError):
                return CpuSet.parse((self._irqs / irq / file).read_text())
        return NO_CPUS

    def set_affinity(self, irq: str, cpus: CpuSet) -> bool:
        """See `Interrupts.set_affinity`. One that is gone counts as moved."""
        if irq == DEFAULT:
            file, text = self._irqs / "default_smp_affinity", mask_text(cpus)
        else:
            file, text = self._irqs / irq / "smp_affinity_list", str(cpus)
        try:
            descriptor = os.open(file, os.O_WRONLY | os.O_TRUNC)  # never made where it is not
            with os.fdopen(descriptor, "w") as stream:
                stream.write(text)
        except FileNotFoundError:
            return True
        except OSError as error:
            if error.errno in _IMMOVABLE:
                return False
            hint = "numalet must run as root with /proc/irq writable (not ProtectKernelTunables=yes)"
            raise HostError(f"cannot write {text!r} to {file}: {error.strerror}", hint=hint) from error
        return True

    def irqbalance(self) -> bool:
        """See `Interrupts.irqbalance`: it has its socket there while it runs."""
        return any(self._run.glob("irqbalance*.sock"))


class FakeInterrupts:
    """`Interrupts` in memory; those in ``immovable`` stay where they are."""

    def __init__(self, affinities: Affinities, immovable: frozenset[str] = frozenset()) -> None:
        self.now = dict(affinities)
        self.immovable = immovable
        self.balanced = False

    def affinities(self) -> Affinities:
        """See `Interrupts.affinities`."""
        return dict(self.now)

    def serving(self, irq: str) -> CpuSet:
        """See `Interrupts.serving`: all that it may go to."""
        return self.now[irq]

    def set_affinity(self, irq: str, cpus: CpuSet) -> bool:
        """See `Interrupts.set_affinity`."""
        if irq in self.immovable:
            return False
        if irq in self.now:
            self.now[irq] = cpus
        return True

    def irqbalance(self) -> bool:
        """See `Interrupts.irqbalance`."""
        return self.balanced
