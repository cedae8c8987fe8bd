"""What cgroups and CPUs use: the difference of two looks, from cgroup files and /proc/stat.

Fields are those of https://docs.kernel.org/admin-guide/cgroup-v2.html (cpu.stat, memory.current).
"""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil

from agent.domain.idset import CpuSet

Json = dict[str, Any]

_MICRO: Final = 1_000_000
_BUSY: Final = ("user", "nice", "system", "irq", "softirq", "steal")
"""Of /proc/stat; guest time is in user already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One cgroup at one moment; ``limit`` in bytes, None for no limit."""

    usage_usec: int
    periods: int
    throttled: int
    throttled_usec: int
    memory: int
    limit: int | None
    processes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """All cgroups and CPUs at one moment; ``at`` in seconds of a monotonic clock."""

    at: float
    pods: Sequence[Json]
    cgroups: Mapping[str, Reading]
    cpus: Mapping[int, Mapping[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """A cgroup between two looks.

    ``cpus`` is how many CPUs' time it used, ``throttled`` the share of its periods in which it was held
    back, ``throttled_seconds`` how long, per second, all its CPUs together.
    """

    cpus: float
    throttled: float
    throttled_seconds: float
    memory: int
    limit: int | None
    processes: int


def look(pods: Sequence[Json], online: CpuSet) -> Look:
    """Look at the pods' cgroups, and at the online CPUs; what is not there is left out."""
    paths = {c["cgroup"] for pod in pods for c in (pod, *containers_of(pod)) if "cgroup" in c}
    readings = ((path, read_cgroup(Path(path))) for path in sorted(paths))
    return Look(
        at=time.monotonic(),
        pods=pods,
        cgroups={path: reading for path, reading in readings if reading},
        cpus=_cpu_times(online),
    )


def containers_of(pod: Json) -> tuple[Json, ...]:
    """All containers of a pod that have a cgroup."""
    return (*pod["containers"], *pod["ephemeralContainers"])


def read_cgroup(directory: Path) -> Reading | None:
    """Read one cgroup, None if it is not there (any more)."""
    try:
        stat = _flat_keyed((directory / "cpu.stat").read_text("ascii"))
        limit = (directory / "memory.max").read_text("ascii").strip()
        return Reading(
            usage_usec=stat["usage_usec"],
            periods=stat.get("nr_periods", 0),
            throttled=stat.get("nr_throttled", 0),
            throttled_usec=stat.get("throttled_usec", 0),
            memory=int((directory / "memory.current").read_text("ascii")),
            limit=None if limit == "max" else int(limit),
            processes=_processes(directory),
        )
    except (FileNotFoundError, ProcessLookupError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno == errno.ENODEV:  # removed between open and read
            return None
        raise


def _processes(directory: Path) -> int:
    try:
        return int((directory / "pids.current").read_text("ascii"))
    except FileNotFoundError:  # a kernel without the pids controller
        return len((directory / "cgroup.procs").read_text("ascii").split())


def _flat_keyed(text: str) -> dict[str, int]:
    return {key: int(value) for key, value in (line.split() for line in text.splitlines())}


def _cpu_times(online: CpuSet) -> Mapping[int, Mapping[str, float]]:
    """Seconds by state of each CPU: /proc/stat lists the online ones in order."""
    times = [one._asdict() for one in psutil.cpu_times(percpu=True)]
    return dict(zip(online, times, strict=True)) if len(times) == len(online) else {}


def use_between(before: Look, after: Look) -> Mapping[str, Use]:
    """What each cgroup used that was there both times."""
    seconds = after.at - before.at
    return {
        path: _use(before.cgroups[path], now, seconds)
        for path, now in after.cgroups.items()
        if path in before.cgroups
    }


def _use(before: Reading, now: Reading, seconds: float) -> Use:
    periods = now.periods - before.periods
    return Use(
        cpus=max(0, now.usage_usec - before.usage_usec) / _MICRO / seconds,
        throttled=max(0, now.throttled - before.throttled) / periods if periods > 0 else 0.0,
        throttled_seconds=max(0, now.throttled_usec - before.throttled_usec) / _MICRO / seconds,
        memory=now.memory,
        limit=now.limit,
        processes=now.processes,
    )


def cpu_shares(before: Look, after: Look) -> Iterator[tuple[int, Mapping[str, float]]]:
    """Each CPU's time by state between two looks, as shares of 1, and ``busy``, their sum without idle."""
    for cpu, now in after.cpus.items():
        if cpu not in before.cpus:
            continue
        spent = {name: max(0.0, value - before.cpus[cpu].get(name, 0.0)) for name, value in now.items()}
        whole = sum(spent.get(name, 0.0) for name in (*_BUSY, "idle", "iowait"))
        shares = {name: (spent.get(name, 0.0) / whole if whole else 0.0) for name in _BUSY}
        yield cpu, {**shares, "busy": min(1.0, sum(shares.values()))}
