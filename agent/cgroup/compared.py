"""One cgroup, file by file: what is wanted, what was written, what comes of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from agent.cgroup.tree import CPUS, CPUS_EFFECTIVE, MEMS, MEMS_EFFECTIVE, ObservedDir, WantedDir, cpus_in

_EFFECTIVE: Final = {CPUS: CPUS_EFFECTIVE, MEMS: MEMS_EFFECTIVE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One file. ``actual`` is empty where it is not there, ``effective`` where the kernel shows none.

    ``met``: the file says what is wanted, and that is what the kernel does.
    """

    file: str
    wanted: str
    actual: str
    effective: str
    met: bool


def compared(wanted: WantedDir, observed: ObservedDir) -> Iterator[Compared]:
    """Compare every file that a cgroup is wanted to have."""
    for file, setting in wanted.settings.items():
        actual = observed.files.get(file, "")
        effective = observed.files.get(_EFFECTIVE.get(file, ""), "")
        met = file in observed.files and setting.is_met(actual)
        if effective or file in _EFFECTIVE:
            met = met and cpus_in(effective) == cpus_in(setting.text)
        yield Compared(file=file, wanted=setting.text, actual=actual, effective=effective, met=met)
