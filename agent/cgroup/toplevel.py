"""What else is at the top of the cgroup hierarchy: systemd's slices, looked at and never written."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from agent.cgroup.tree import CPUS
from agent.domain.idset import CpuSet


def top_level_cpus(mount: Path) -> Mapping[str, CpuSet]:
    """``cpuset.cpus`` of init.scope and the slices right below ``mount``; empty where nothing is set."""
    found: dict[str, CpuSet] = {}
    for directory in (mount / "init.scope", *sorted(mount.glob("*.slice"))):
        if directory.is_dir():
            found[directory.name] = CpuSet()
            with suppress(OSError, ValueError):  # no cpuset controller there yet
                found[directory.name] = CpuSet.parse((directory / CPUS).read_text())
    return found
