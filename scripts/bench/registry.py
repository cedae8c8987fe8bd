"""The list of benchmarks. One is a function that prepares its input and returns what to time.

    @benchmark(aim_ms=10)
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


Setup = Callable[[], Callable[[], object] | Undone]

_PREFIX = "bench_"


@dataclass(frozen=True, slots=True)
class Times:
    """An aim relative to another benchmark: ``factor`` times the median of ``name``."""

    factor: float
    name: str


Aim = float | Times | None
"""The median wanted, in ms, on one 2.4 GHz core; None: the time is only reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """``setup`` is not timed, what it returns is."""

    name: str
    what: str
    aim_ms: Aim
    setup: Setup


_registered: list[Benchmark] = []


def benchmark(*, aim_ms: Aim) -> Callable[[Setup], Setup]:
    """Register the decorated function; the first line of its docstring tells what it times."""

    def register(setup: Setup) -> Setup:
        what = (inspect.getdoc(setup) or "").partition("\n")[0]
        subject = setup.__module__.rpartition(".")[2].removeprefix(_PREFIX)
        name = f"{subject}.{setup.__name__}"
        _registered.append(Benchmark(name=name, what=what, aim_ms=aim_ms, setup=setup))
        return setup

    return register


def all_benchmarks() -> list[Benchmark]:
    """Load every ``bench_*.py``; files by name, benchmarks in the order they are written in."""
    for path in sorted(Path(__file__).parent.glob(f"{_PREFIX}*.py")):
        importlib.import_module(f"scripts.bench.{path.stem}")
    return list(_registered)
