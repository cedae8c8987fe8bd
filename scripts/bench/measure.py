"""Timing one benchmark, and what the numbers depend on: machine, Python and commit.

CPU time of the process, not time on the clock, and only while the machine is quiet (see `pace`). What is measured
otherwise (other processes, bytes, counts) comes as samples.
"""

from __future__ import annotations

import gc
import platform
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from scripts.bench.pace import pace
from scripts.bench.registry import Benchmark, Samples, Undone

_MOST_RUNS = 1000
_LEAST_RUNS = 10
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """In ``unit``; ``p99`` is the nearest rank, so the largest of fewer than 100 runs."""

    name: str
    what: str
    unit: str
    least: float
    median: float
    p99: float
    runs: int
    quiet: float | None
    """See `Samples`."""


def measure(bench: Benchmark, seconds: float) -> Result:
    """Run ``bench`` for about ``seconds``, after one run that fills caches and is not counted."""
    prepared = bench.setup()
    samples = prepared if isinstance(prepared, Samples) else _times(prepared, seconds)
    values = sorted(samples.values)
    return Result(
        name=bench.name,
        what=bench.what,
        unit=bench.unit,
        least=round(values[0], 4),
        median=round(median(values), 4),
        p99=round(values[-(-len(values) * 99 // 100) - 1], 4),
        runs=len(values),
        quiet=samples.quiet,
    )


def _times(prepared: Callable[[], object] | Undone, seconds: float) -> Samples:
    """CPU times in milliseconds."""
    timed, undo = (prepared.work, prepared.undo) if isinstance(prepared, Undone) else (prepared, _nothing)

    def sample() -> float:
        start = time.process_time_ns()
        timed()
        return (time.process_time_ns() - start) / 1e6

    def enough(times: Sequence[float]) -> bool:
        return len(times) >= _LEAST_RUNS and (len(times) >= _MOST_RUNS or sum(times) >= seconds * 1e3)

    timed()
    gc.collect()
    return pace().sampled(sample, enough, prepare=undo)


def _nothing() -> None:
    pass


def as_json(results: Iterable[Result], aims: Mapping[str, float]) -> Mapping[str, object]:
    """The results and their aims with machine and commit, as JSON-able values."""
    return {
        "machine": {"cpu": _cpu_model(), "system": platform.platform(), "python": platform.python_version()},
        "commit": _commit(),
        "pace_ms": round(pace().best_ms, 3),
        "results": [{**asdict(result), "aim": aims.get(result.name)} for result in results],
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
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:  # no git here
        return "unknown"
    return done.stdout.strip() or "unknown"
