"""One cgroup, file by file: what is wanted, what was written, what comes of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from agent.cgroup.partition import is_granted
from agent.cgroup.tree import EFFECTIVE, ObservedDir, WantedDir


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
        effective = observed.files.get(EFFECTIVE.get(file, ""), "")
        met = file in observed.files and setting.is_met(actual)
        if file in EFFECTIVE:
            met = met and is_granted(file, setting.text, observed.files)
        yield Compared(file=file, wanted=setting.text, actual=actual, effective=effective, met=met)
