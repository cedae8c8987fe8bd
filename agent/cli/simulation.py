"""Runs a simulation in processes: each takes cells, the sums do not depend on who took which."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from agent.simulate.cell import Cell, NodeKind, node_kinds
from agent.simulate.fleet import Fleet
from agent.simulate.result import Result

Task = tuple[int, int]
"""A cell, and a variant."""


@dataclass(slots=True)
class Outcome:
    """The sums by variant, over the cells that are done under every one of them."""

    results: tuple[Result, ...]
    cells: int
    interrupted: bool


@dataclass(slots=True)
class _Worker:
    """What a process keeps between cells."""

    fleet: Fleet
    kinds: dict[int, tuple[NodeKind, ...]] = field(default_factory=dict)

    def run(self, task: Task) -> tuple[Task, Result]:
        """Every variant gets the same pods, and the same luck of a scheduler that picks at random."""
        fleet, (cell, variant) = self.fleet, task
        if variant not in self.kinds:
            self.kinds[variant] = node_kinds(fleet, fleet.variants[variant])
        picking, stream = (random.Random(f"{fleet.seed} {cell} {use}") for use in ("nodes", "pods"))  # noqa: S311 - no secret
        return task, Cell(fleet, variant, cell, self.kinds[variant], picking).run(stream)


_worker: _Worker | None = None
"""This process's own, if it is one of the pool."""


def _begin(fleet: Fleet) -> None:
    global _worker  # noqa: PLW0603 - how multiprocessing hands something to every task
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops us
    _worker = _Worker(fleet)


def _run(task: Task) -> tuple[Task, Result]:
    assert _worker  # noqa: S101 - _begin was here
    return _worker.run(task)


def processors() -> int:
    """The CPUs this process may use."""
    return len(os.sched_getaffinity(0))


def tasks(fleet: Fleet) -> int:
    """How often `simulate` tells of something done."""
    return fleet.cells * len(fleet.variants)


def simulate(fleet: Fleet, jobs: int, done: Callable[[int], object]) -> Outcome:
    """Run all cells in ``jobs`` processes, ``done`` told after each; Ctrl-C ends it with what is finished."""
    variants = range(len(fleet.variants))
    finished: dict[Task, Result] = {}
    interrupted = False
    try:
        with _finishing(
            fleet, [(cell, one) for cell in range(fleet.cells) for one in variants], jobs
        ) as results:
            for task, result in results:
                finished[task] = result
                done(1)
    except KeyboardInterrupt:
        interrupted = True
    whole = [cell for cell in range(fleet.cells) if all((cell, one) in finished for one in variants)]
    sums = tuple(Result() for _ in variants)
    for one in variants:
        for cell in whole:
            sums[one].add(finished[cell, one])
    return Outcome(sums, len(whole), interrupted)


@contextmanager
def _finishing(fleet: Fleet, todo: Sequence[Task], jobs: int) -> Iterator[Iterator[tuple[Task, Result]]]:
    if min(jobs, len(todo)) == 1:
        yield map(_Worker(fleet).run, todo)
        return
    # Spawned, not forked: whoever calls may have threads.
    with multiprocessing.get_context("spawn").Pool(min(jobs, len(todo)), _begin, (fleet,)) as pool:
        yield pool.imap_unordered(_run, todo)
