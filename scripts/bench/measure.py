"""Timing one benchmark, and what the numbers depend on: machine, Python and commit.

CPU time of the process, not time on the clock: other work on the machine counts little.
"""

from __future__ import annotations

import gc
import platform
import subprocess
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from scripts.bench.registry import Benchmark, Undone

_MOST_RUNS = 1000
_LEAST_RUNS = 10
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """CPU times in milliseconds; ``p99_ms`` is the nearest rank, so the slowest of fewer than 100 runs."""

    name: str
    what: str
    median_ms: float
    p99_ms: float
    runs: int


def measure(bench: Benchmark, seconds: float) -> Result:
    """Run ``bench`` for about ``seconds``, after one run that fills caches and is not counted."""
    prepared = bench.setup()
    timed, undo = (prepared.work, prepared.undo) if isinstance(prepared, Undone) else (prepared, _nothing)
    timed()
    undo()
    gc.collect()
    times: list[int] = []
    end = time.process_time_ns() + int(seconds * 1e9)
    while len(times) < _LEAST_RUNS or (len(times) < _MOST_RUNS and time.process_time_ns() < end):
        start = time.process_time_ns()
        timed()
        times.append(time.process_time_ns() - start)
        undo()
    times.sort()
    return Result(
        name=bench.name,
        what=bench.what,
        median_ms=round(median(times) / 1e6, 4),
        p99_ms=round(times[-(-len(times) * 99 // 100) - 1] / 1e6, 4),
        runs=len(times),
    )


def _nothing() -> None:
    pass


def as_json(results: Iterable[Result], aims: Mapping[str, float]) -> Mapping[str, object]:
    """The results and their aims with machine and commit, as JSON-able values."""
    return {
        "machine": {"cpu": _cpu_model(), "system": platform.platform(), "python": platform.python_version()},
        "commit": _commit(),
        "results": [{**asdict(result), "aim_ms": aims.get(result.name)} for result in results],
    }


def _cpu_model() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    # Only x86 has the name here; other architectures are named by the machine type.
    return next(
        (line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine()
    )


def _commit() -> str:
    """The commit, with ``-dirty`` where the tree differs; "unknown" outside of a repository."""
    command = ["git", "-C", str(_ROOT), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
