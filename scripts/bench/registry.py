"""The list of benchmarks. One is a function that prepares its input and returns what to time.

    @benchmark(aim=10)
    def eight_nodes() -> Callable[[], object]:
        '''What is timed, in a few words.'''
        ...
        return lambda: manager.merge(providers, "c")

Put it into a file ``bench_<subject>.py`` beside this one; its name becomes ``<subject>.eight_nodes``.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Undone:
    """Something to time, and what brings back the state before it, which is not timed."""

    work: Callable[[], object]
    undo: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Samples:
    """What was measured already, in the benchmark's own unit.

    ``quiet``: the part of what was tried during which the machine was quiet; None where nobody looked.
    """

    values: tuple[float, ...]
    quiet: float | None = None


Setup = Callable[[], Callable[[], object] | Undone | Samples]

_PREFIX = "bench_"


@dataclass(frozen=True, slots=True)
class Times:
    """An aim relative to another benchmark: ``factor`` times the median of ``name``."""

    factor: float
    name: str


Aim = float | Times | None
"""The median wanted, of times on one 2.4 GHz core; None: the figure is only reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """``setup`` is not timed, what it returns is. ``of_p99``: the aim is one for the 99th percentile."""

    name: str
    what: str
    aim: Aim
    unit: str
    of_p99: bool
    setup: Setup


_registered: list[Benchmark] = []


def benchmark(*, aim: Aim, unit: str = "ms", of_p99: bool = False) -> Callable[[Setup], Setup]:
    """Register the decorated function; the first line of its docstring tells what it times."""

    def register(setup: Setup) -> Setup:
        what = (inspect.getdoc(setup) or "").partition("\n")[0]
        subject = setup.__module__.rpartition(".")[2].removeprefix(_PREFIX)
        name = f"{subject}.{setup.__name__}"
        _registered.append(Benchmark(name=name, what=what, aim=aim, unit=unit, of_p99=of_p99, setup=setup))
        return setup

    return register


def all_benchmarks() -> list[Benchmark]:
    """Load every ``bench_*.py``; files by name, benchmarks in the order they are written in."""
    for path in sorted(Path(__file__).parent.glob(f"{_PREFIX}*.py")):
        importlib.import_module(f"scripts.bench.{path.stem}")
    return list(_registered)
