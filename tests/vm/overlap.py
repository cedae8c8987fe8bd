"""Samples which CPUs the kernel lets managed processes run on, beside the exclusive slices there are.

A program of its own, so that it does not wait for whoever makes the pods come and go:

    python -SE overlap.py ROOT SAMPLES

A round is: which slices exist, where may every process run, which slices exist. Only a slice that both
looks show counts, and it is one from the moment its cgroup has a cpuset: its container may run then.
So what is counted as a violation was one at the moment the process was looked at.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

Slice = tuple[str, int]
"""The cgroup of an exclusive container and its id, which is never used again."""
Slices = dict[Slice, frozenset[int]]
"""The CPUs of each exclusive container."""


@dataclass
class Counts:
    """What was seen. A sample is one process, looked at once beside all slices that are not its own."""

    samples: int = 0
    rounds: int = 0
    slices: int = 0
    newborn: int = 0
    violations: list[str] = field(default_factory=list)


def sample(root: Path, wanted: int) -> Counts:
    """Sample the processes below ``root`` until there are as many samples as wanted."""
    counts, known, seen = Counts(), frozenset[int](), set[Slice]()
    while counts.samples < wanted:
        before = slices_in(root)
        allowed = {pid: (cgroup, cpus) for cgroup, pid, cpus in processes_in(root)}
        after = slices_in(root)
        stable = {key: cpus for key, cpus in before.items() if after.get(key) == cpus}
        for pid, (cgroup, cpus) in allowed.items():
            counts.samples += 1
            hit = [key for key, theirs in stable.items() if key[0] != cgroup and not cpus.isdisjoint(theirs)]
            if hit and pid not in known and settles(pid, root, hit[0], stable[hit[0]]):
                counts.newborn += 1
            elif hit:
                counts.violations.append(f"{pid} of {cgroup} may run on {sorted(cpus)}: slices {hit}")
        seen |= stable.keys()
        known = frozenset(allowed)
        counts.rounds += 1
    counts.slices = len(seen)
    return counts


def settles(pid: int, root: Path, key: Slice, theirs: frozenset[int]) -> bool:
    """Whether a process that was listed for the first time leaves a slice, or that ends, within a second.

    The kernel lists a process that is being forked or moved before it has set where that may run:
    `cgroup_post_fork` and `cgroup_migrate_execute` link it first. A forked one does not run until then.
    """
    deadline = time.monotonic() + 1
    while time.monotonic() < deadline:
        try:
            if theirs.isdisjoint(os.sched_getaffinity(pid)):
                return True
        except ProcessLookupError:
            return True
        if slices_in(root).get(key) != theirs:
            return True
        time.sleep(0.001)
    return False


def slices_in(root: Path) -> Slices:
    """The exclusive containers that may run."""
    found: Slices = {}
    for cgroup in _apart(root):
        try:
            inode = os.stat(cgroup).st_ino  # noqa: PTH116 - this is the hot path
            cpus = cpus_of(_read(f"{cgroup}/cpuset.cpus"))
        except OSError:
            continue  # removed meanwhile
        if cpus:
            found[cgroup, inode] = cpus
    return found


def processes_in(root: Path) -> Iterator[tuple[str, int, frozenset[int]]]:
    """Every managed process: its cgroup, its id, and where it may run."""
    for cgroup in [*_apart(root), *_sharing(root)]:
        try:
            pids = _read(f"{cgroup}/cgroup.procs").split()
        except OSError:
            continue
        for pid in map(int, pids):
            try:
                yield cgroup, pid, frozenset(os.sched_getaffinity(pid))
            except ProcessLookupError:
                continue


def _apart(root: Path) -> list[str]:
    """Cgroups of containers that stand apart: here the exclusive ones."""
    return [path for pod in _pods(root) for path in _directories(pod) if not path.endswith("/shared.pool")]


def _sharing(root: Path) -> list[str]:
    pools = [f"{pod}/shared.pool" for pod in _pods(root)]
    return [path for pool in pools for path in _directories(pool)]


def _pods(root: Path) -> list[str]:
    classes = (str(root), f"{root}/burstable", f"{root}/besteffort")
    return [path for one in classes for path in _directories(one) if "/pod" in path]


def _directories(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return [entry.path for entry in entries if entry.is_dir()]
    except OSError:
        return []


def _read(path: str) -> str:
    with open(path) as file:  # noqa: PTH123 - this is the hot path
        return file.read()


def cpus_of(text: str) -> frozenset[int]:
    """A list in the kernel's format."""
    ends = [part.split("-") for part in text.strip().split(",") if part]
    return frozenset(cpu for part in ends for cpu in range(int(part[0]), int(part[-1]) + 1))


if __name__ == "__main__":
    print(json.dumps(vars(sample(Path(sys.argv[1]), int(sys.argv[2])))))  # noqa: T201 - its output
