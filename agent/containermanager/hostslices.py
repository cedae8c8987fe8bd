"""Host processes off exclusive CPUs: AllowedCPUs of the slices that are not ours, through systemd.

The kernel's files say what holds, systemd is asked only where something is to change: it would undo
what is written behind its back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from agent.containermanager.hoststate import SLICES, Originals
from agent.domain.idset import NO_CPUS, CpuSet
from agent.errors import HostError
from agent.systemdbus.manager import SystemdManager
from agent.systemdbus.properties import ALLOWED_CPUS, LOAD_STATE

ALWAYS: Final = ("init.scope", "system.slice", "user.slice")
"""Confined even before they hold a process: user.slice comes with the first login."""
_PATIENCE: Final = 5.0
_PAUSE: Final = 0.002

Lent = Mapping[str, CpuSet]
"""Exclusive CPUs by the name of the slice that keeps them, for bound containers in it."""
NOTHING_LENT: Final[Lent] = {}

TopLevel = Callable[[], Mapping[str, CpuSet]]
"""``cpuset.cpus`` of init.scope and of each slice at the top of the hierarchy that exists."""


def allowed(original: CpuSet, everything: CpuSet, held: CpuSet) -> CpuSet:
    """What a slice may use while ``held`` is exclusive: of its own CPUs, if any is left."""
    free = everything - held
    return (original or everything) - held or free


class HostSlices:
    """Keeps top-level slices off exclusive CPUs, except those in ``spared``. Raises HostError, StateError."""

    def __init__(
        self,
        systemd: SystemdManager,
        top_level: TopLevel,
        originals: Originals,
        spared: frozenset[str] = frozenset(),
    ) -> None:
        self._systemd = systemd
        self._top_level = top_level
        self._originals = originals
        self._spared = spared
        self._set: dict[str, CpuSet] = {}
        self.repairs: list[str] = []
        """What others had changed, since somebody took it out."""

    def leave(self, everything: CpuSet, held: CpuSet, lent: Lent = NOTHING_LENT) -> None:
        """Let go of ``held`` before anybody is to have it for himself; nothing grows."""
        for name, now in self._now().items():
            off = held - self._lent(name, lent)
            if not now or not now.isdisjoint(off):
                self._bring(name, now, everything, off, growing=False)

    def settle(self, everything: CpuSet, held: CpuSet, lent: Lent = NOTHING_LENT) -> None:
        """Use all that is nobody's."""
        for name, now in self._now().items():
            self._bring(name, now, everything, held - self._lent(name, lent), growing=True)

    @staticmethod
    def _lent(name: str, lent: Lent) -> CpuSet:
        return NO_CPUS if name in ALWAYS else lent.get(name, NO_CPUS)

    def release(self, everything: CpuSet) -> None:
        """Give every slice back what it had, and forget it. Systemd is not asked where nothing was taken."""
        taken = self._originals.of(SLICES)
        for name, original in taken.items():
            # systemd 252 resets the property and leaves the kernel's file: first say it in full.
            self._set_cpus(name, original or everything)
            if not original:
                self._systemd.set_properties(name, {ALLOWED_CPUS: NO_CPUS})
        unset = sorted(name for name, original in taken.items() if not original)
        if unset:
            self._systemd.forget_property(unset, ALLOWED_CPUS)
        if taken:
            self._originals.forget(SLICES)

    def _now(self) -> dict[str, CpuSet]:
        """What each slice has; the empty set is all."""
        found = dict(self._top_level())
        absent = {name: self._set.get(name, NO_CPUS) for name in ALWAYS if name not in found}
        return {name: cpus for name, cpus in sorted((found | absent).items()) if name not in self._spared}

    def _bring(self, name: str, now: CpuSet, everything: CpuSet, held: CpuSet, *, growing: bool) -> None:
        known = self._originals.of(SLICES)
        if name not in known:
            if not held:
                return  # nothing to keep it off: leave it alone
            shown = self._systemd.properties(name)
            if shown[LOAD_STATE] != "loaded":
                return
            original = shown.get(ALLOWED_CPUS, NO_CPUS)
            assert isinstance(original, CpuSet)  # noqa: S101 - by its name
            self._originals.remember(SLICES, {name: original})
            known = self._originals.of(SLICES)
        target = allowed(known[name], everything, held)
        if not growing and now:
            target = now & target or target
        if now == target or (not now and target == everything):
            return
        if now and now != self._set.get(name, now):
            self.repairs.append(f"{name} had drifted and was put right: AllowedCPUs was {now}")
        self._set_cpus(name, target)

    def _set_cpus(self, name: str, cpus: CpuSet) -> None:
        """Set it and wait for the kernel: systemd answers before it has written."""
        self._systemd.set_properties(name, {ALLOWED_CPUS: cpus})
        self._set[name] = cpus
        deadline = time.monotonic() + _PATIENCE
        while (shown := self._top_level().get(name, cpus)) != cpus:
            if time.monotonic() > deadline:
                raise HostError(
                    f"systemd took AllowedCPUs={cpus} for {name}, but the kernel has {shown or 'nothing'} there",
                    hint=f"another program changes {name}, too: journalctl -b | grep {name}",
                )
            time.sleep(_PAUSE)
