"""Samples which CPUs the kernel lets managed processes run on, beside the exclusive slices there are.

A program of its own, so that it does not wait for whoever makes the pods come and go:

    python -SE overlap.py ROOT SAMPLES SLICES

A round is: which slices exist, where may every process run. A slice is one from the moment its cgroup has a
cpuset: its container may run then. A process that may run on another's slice is a violation if the slice is
still there, the same as before the process was looked at: so it was there at that moment.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path


@dataclass(frozen=True)
class Slice:
    """The CPUs of an exclusive container; ``inode`` is its cgroup's id, which is never used again."""

    cgroup: str
    inode: int
    cpus: frozenset[int]

    def is_there(self) -> bool:
        """Whether it is still this one, with these CPUs."""
        try:
            inode = os.stat(self.cgroup).st_ino  # noqa: PTH116 - as everything here: to be quick
            return inode == self.inode and cpus_of(_read(f"{self.cgroup}/cpuset.cpus")) == self.cpus
        except OSError:
            return False


@dataclass
class Counts:
    """What was seen. A sample is one process, looked at once beside all slices that are not its own."""

    samples: int = 0
    rounds: int = 0
    slices: int = 0
    newborn: int = 0
    violations: list[str] = field(default_factory=list)


def sample(root: Path, wanted: int, slices_wanted: int = 1) -> Counts:
    """Sample the processes below ``root`` until there are as many samples as wanted, beside as many slices."""
    counts, known, seen = Counts(), set[int](), set[int]()
    while counts.samples < wanted or len(seen) < slices_wanted:
        slices, cgroups = look(str(root))
        listed: set[int] = set()
        for cgroup in cgroups:
            others = [one for one in slices if one.cgroup != cgroup]
            forbidden = frozenset(chain.from_iterable(one.cpus for one in others))
            for pid, cpus in processes_in(cgroup):
                listed.add(pid)
                counts.samples += 1
                hit = [] if forbidden.isdisjoint(cpus) else [one for one in others if one.cpus & cpus]
                for one in hit:
                    if not one.is_there():
                        continue
                    if pid not in known and settles(pid, one):
                        counts.newborn += 1
                    else:
                        counts.violations.append(f"{pid} of {cgroup} may run on {sorted(cpus)}: {one}")
        known = listed
        seen.update(one.inode for one in slices)
        counts.rounds += 1
    counts.slices = len(seen)
    return counts


def settles(pid: int, one: Slice) -> bool:
    """Whether a process that was listed for the first time leaves a slice, or that ends, within a second.

    The kernel lists a process that is being forked or moved before it has set where that may run:
    `cgroup_post_fork` and `cgroup_migrate_execute` link it first. A forked one does not run until then.
    """
    deadline = time.monotonic() + 1
    while time.monotonic() < deadline:
        try:
            if one.cpus.isdisjoint(os.sched_getaffinity(pid)):
                return True
        except ProcessLookupError:
            return True
        if not one.is_there():
            return True
        time.sleep(0.001)
    return False


def look(root: str) -> tuple[list[Slice], list[str]]:
    """The exclusive containers that may run, and the cgroups of all containers.

    Exclusive are here those that stand apart: the pods have no init containers.
    """
    slices: list[Slice] = []
    cgroups: list[str] = []
    pods: list[str] = []
    for path, _ in _directories(root):
        word = word_of(path)
        if word in {"burstable", "besteffort"}:
            pods += [pod for pod, _ in _directories(path)]
        elif word.startswith("pod"):
            pods.append(path)
    for path, inode in [found for pod in pods for found in _directories(pod)]:
        if word_of(path) == "shared.pool":
            cgroups += [container for container, _ in _directories(path)]
            continue
        try:
            cpus = cpus_of(_read(f"{path}/cpuset.cpus"))
        except OSError:
            continue  # removed meanwhile
        cgroups.append(path)
        if cpus:
            slices.append(Slice(path, inode, cpus))
    return slices, cgroups


def word_of(path: str) -> str:
    """What the layout calls the cgroup; a slice has the names of those above it in front."""
    name = path.rpartition("/")[2]
    return name.removesuffix(".slice").rpartition("-")[2] if name.endswith(".slice") else name


def processes_in(cgroup: str) -> Iterator[tuple[int, set[int]]]:
    """The processes of a cgroup, and where each may run."""
    try:
        pids = _read(f"{cgroup}/cgroup.procs").split()
    except OSError:
        return  # removed meanwhile
    for pid in map(int, pids):
        try:
            yield pid, os.sched_getaffinity(pid)
        except ProcessLookupError:
            continue


def _directories(path: str) -> list[tuple[str, int]]:
    try:
        with os.scandir(path) as entries:
            return [(entry.path, entry.inode()) for entry in entries if entry.is_dir()]
    except OSError:
        return []


def _read(path: str) -> str:
    with open(path) as file:  # noqa: PTH123
        return file.read()


def cpus_of(text: str) -> frozenset[int]:
    """A list in the kernel's format."""
    ends = [part.split("-") for part in text.strip().split(",") if part]
    return frozenset(cpu for part in ends for cpu in range(int(part[0]), int(part[-1]) + 1))


if __name__ == "__main__":
    print(json.dumps(vars(sample(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))))  # noqa: T201 - its output
