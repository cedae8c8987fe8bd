"""A node on a disk and a kernel that stop at any chosen operation, and start again as they were left."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from agent.cgroup.layout import CgroupDir
from agent.checkpoint.store import StateDir
from agent.config import Config
from agent.containermanager import ContainerManager
from agent.domain.pod import PodUid
from tests.checkpoint.disk import Disk
from tests.containermanager.faults import Died, FaultyCgroups, Fuse, Mode
from tests.containermanager.node import Node, admitted_names, fake_cgroups, topology, unsound

ROOT = Path("/var/lib/numalet")
CPUS = 12
SHELL = {"", "besteffort", "burstable"}


class Stop(Enum):
    """What takes everything down."""

    KILL = "the daemon is killed"
    POWER_KEEPS_NAMES = "the power goes, unsynced names reached the disk"
    POWER_LOSES_NAMES = "the power goes, unsynced names are lost"


class World:
    """Every write, sync, rename, mkdir, unlink and cgroup operation counts as one on ``fuse``."""

    def __init__(self, config: Config | None = None) -> None:
        self.fuse = Fuse()
        self.of_disk: list[int] = []
        """The numbers of the operations that were the disk's."""
        self.disk = Disk(self._step)
        self.node = Node(config or Config(), topology(CPUS), cgroups=self._kernel())
        self.store = StateDir(ROOT, self.disk)
        self.owner: ContainerManager

    def _kernel(self) -> FaultyCgroups:
        cgroups = fake_cgroups(topology(CPUS), FaultyCgroups)
        assert isinstance(cgroups, FaultyCgroups)
        cgroups.fuse = self.fuse
        return cgroups

    def _step(self, _number: int) -> None:
        self.of_disk.append(self.fuse.count)
        self.fuse.run(lambda: None, OSError(errno.EIO, os.strerror(errno.EIO)))

    def start(self) -> None:
        """Start a daemon's owner on what is there."""
        self.store = StateDir(ROOT, self.disk)
        self.store.open()
        self.owner = self.node.stopped_owner(store=self.store)
        self.owner.start()

    def halt(self) -> None:
        """The daemon is no more."""
        self.store.close()
        self.disk.locked.clear()
        self.disk.open.clear()

    def configure(self, config: Config) -> None:
        """Another configuration for the next start."""
        boot, self.node = self.node.boot, self.node.configured(config)
        self.node.boot = boot

    def stop(self, how: Stop) -> None:
        """Everything that ran is gone; what is left is what `start` finds."""
        self.fuse.disarm()
        self.halt()
        if how is not Stop.KILL:
            kept = how is Stop.POWER_KEEPS_NAMES
            self.disk = self.disk.after_power_cut(names_reached_the_disk=kept)
            self.disk.fail = self._step
            self.node.cgroups = self._kernel()
            self.node.cgroups.online = self.node.topology.online
            self.node.boot += "+"

    def held(self, name: str) -> object:
        """What a pod holds."""
        uid, state = PodUid(f"uid-{name}"), self.owner.snapshot().state
        cpu, memory = state.cpu, state.memory
        return tuple(
            held.get(uid) for held in (cpu.entries, cpu.pod_entries, memory.entries, memory.pod_entries)
        )


@dataclass(frozen=True)
class History:
    """``work`` is stopped at each of its operations; ``recover`` is what is done about it.

    Then ``must`` are admitted, perhaps ``may``, nobody else, and the former hold what they held before,
    unless ``moves``.
    """

    name: str
    prepare: Callable[[], World]
    work: Callable[[World], None]
    must: frozenset[str]
    may: frozenset[str] = frozenset()
    recover: Callable[[World], None] = World.start
    moves: bool = False

    @property
    def kind(self) -> str:
        """What kind of work it is: the first word of its name."""
        return self.name.partition(" ")[0]

    def moments(self, how: Stop) -> list[int]:
        """Before which operations to stop, and after the last; of a kernel nothing survives the power."""
        world = self.prepare()
        world.fuse.count = 0
        world.of_disk.clear()
        self.work(world)
        every = range(world.fuse.count) if how is Stop.KILL else world.of_disk
        return [*every, world.fuse.count]

    def check(self, world: World, before: dict[str, object]) -> None:
        """Everything is as it should be, and nothing stays behind when the pods go."""
        names = set(admitted_names(world.owner))
        assert self.must <= names <= self.must | self.may
        assert world.owner.snapshot().failures == ()
        wrong = unsound(world.node, world.owner, world.store)
        assert not wrong, wrong
        if not self.moves:
            assert {name: world.held(name) for name in self.must} == before
        for name in sorted(names):
            world.owner.remove(PodUid(f"uid-{name}"), 0)
        fresh = Node(world.node.config, world.node.topology).owner().snapshot().state
        assert world.owner.snapshot().state == fresh, "every CPU and byte is back"
        assert set(world.node.cgroups.observe().dirs) == SHELL
        assert world.store.records().pods == ()


def stop_everywhere(history: History, how: Stop) -> int:
    """Stop the history before its first operation, between any two, and after the last; how often that was."""
    moments = history.moments(how)
    for k in moments:
        world = history.prepare()
        before = {name: world.held(name) for name in history.must}
        world.fuse.arm(k, Mode.DIE)
        with suppress(Died):
            history.work(world)
        world.stop(how)
        try:
            history.recover(world)
            history.check(world, before)
        except AssertionError as wrong:
            raise AssertionError(f"{history.name}, stopped after {k} of {moments[-1]} operations") from wrong
    return len(moments)


def process_in(world: World, directory: str) -> None:
    """Let a process run in a cgroup."""
    world.node.cgroups.add_process(CgroupDir(directory), world.node.cgroups.spawn())
