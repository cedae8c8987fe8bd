"""A disk and a kernel that fail, or take the daemon down with them, at the k-th change asked of them."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from threading import RLock
from typing import TypeVar

from agent.cgroup.backend import NOTHING, EnforcementError, Problem
from agent.cgroup.fake import FakeCgroups
from agent.cgroup.layout import ROOT, CgroupDir, Kind
from agent.cgroup.tree import Observed
from agent.checkpoint.store import MemoryStore, StorageError
from agent.domain.topology import Topology
from tests.containermanager.node import Node, fake_cgroups, topology

T = TypeVar("T")


class Died(BaseException):
    """The process ends here: nothing of it runs any more."""


class Mode(Enum):
    """How the change fails."""

    DIE = "the daemon dies before it"
    ONCE = "it fails once"
    LATE = "it fails once, after it was done"
    LASTING = "it and all after it fail"


class Fuse:
    """Counts changes; `arm` lets one of them fail."""

    def __init__(self) -> None:
        self.count = 0
        self._at = -1
        self._mode = Mode.DIE

    def arm(self, k: int, mode: Mode) -> None:
        self.count, self._at, self._mode = 0, k, mode

    def disarm(self) -> None:
        self._at = -1

    def run(self, change: Callable[[], T], error: Exception) -> T:
        number, self.count = self.count, self.count + 1
        blows = self._at >= 0 and (number == self._at or (number > self._at and self._mode is Mode.LASTING))
        if not blows:
            return change()
        if self._mode is Mode.DIE:
            raise Died
        if self._mode is Mode.LATE:
            change()
        raise error


class FaultyStore(MemoryStore):
    def __init__(self, fuse: Fuse) -> None:
        super().__init__()
        self.fuse = fuse

    def write(self, name: str, data: bytes) -> None:
        self.fuse.run(lambda: MemoryStore.write(self, name, data), _full("write", name))

    def remove(self, name: str) -> None:
        self.fuse.run(lambda: MemoryStore.remove(self, name), _full("remove", name))

    def quarantine(self, name: str, now: str) -> Path:
        aside: list[Path] = []
        self.fuse.run(lambda: aside.append(MemoryStore.quarantine(self, name, now)), _full("set aside", name))
        return aside[0]


class FaultyCgroups(FakeCgroups):
    fuse: Fuse

    def make(self, directory: CgroupDir) -> None:
        self.fuse.run(lambda: FakeCgroups.make(self, directory), _busy(directory))

    def remove(self, directory: CgroupDir) -> None:
        self.fuse.run(lambda: FakeCgroups.remove(self, directory), _busy(directory))

    def write(self, directory: CgroupDir, file: str, text: str) -> Mapping[str, str]:
        return self.fuse.run(lambda: FakeCgroups.write(self, directory, file, text), _busy(directory))

    def enable(self, directory: CgroupDir, controllers: Sequence[str]) -> None:
        self.fuse.run(lambda: FakeCgroups.enable(self, directory, controllers), _busy(directory))

    def kill(self, directory: CgroupDir) -> None:
        self.fuse.run(lambda: FakeCgroups.kill(self, directory), _busy(directory))


class ThreadSafeCgroups(FakeCgroups):
    """As a kernel is: one change or look at a time."""

    turn: RLock

    def observe(self, top: CgroupDir = ROOT, leave_out: frozenset[Kind] = NOTHING) -> Observed:
        with self.turn:
            return super().observe(top, leave_out)

    def make(self, directory: CgroupDir) -> None:
        with self.turn:
            super().make(directory)

    def remove(self, directory: CgroupDir) -> None:
        with self.turn:
            super().remove(directory)

    def populated(self, directory: CgroupDir) -> bool:
        with self.turn:
            return super().populated(directory)


class NoCgroups(FakeCgroups):
    def preflight(self) -> tuple[Problem, ...]:
        return (
            Problem("no cgroup v2 here", "boot anew"),
            Problem("CPUAffinity= is reset", "restart units", blocking=False),
            Problem("nor there", "and again"),
        )


class Unreadable(MemoryStore):
    def read(self, name: str) -> bytes | None:
        raise StorageError("read", Path(name), OSError(errno.EIO, os.strerror(errno.EIO)))


def _full(operation: str, name: str) -> StorageError:
    return StorageError(operation, Path(name), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))


def _busy(directory: CgroupDir) -> EnforcementError:
    return EnforcementError(directory, "", "", "EBUSY", "the cgroup is in use", "stop what runs in it")


def thread_safe_cgroups(machine: Topology) -> FakeCgroups:
    cgroups = fake_cgroups(machine, ThreadSafeCgroups)
    assert isinstance(cgroups, ThreadSafeCgroups)
    cgroups.turn = RLock()
    return cgroups


def faulty_node() -> tuple[Node, Fuse]:
    fuse = Fuse()
    cgroups = fake_cgroups(topology(), FaultyCgroups)
    assert isinstance(cgroups, FaultyCgroups)
    cgroups.fuse = fuse
    return Node(store=FaultyStore(fuse), cgroups=cgroups), fuse
