"""A node on a disk and a kernel that stop at any chosen operation, and start again as they were left."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from agent.cgroup.layout import CgroupDir
from agent.checkpoint.store import LOCK_FILE, StateDir
from agent.config import Config
from agent.config.model import HostIsolation
from agent.containermanager import ContainerManager
from agent.containermanager.hostisolation import ConfinedHost
from agent.domain.pod import PodUid
from agent.domain.state import NodeState
from tests.checkpoint.disk import Disk
from tests.containermanager.faults import Died, FaultyCgroups, Fuse, Mode
from tests.containermanager.node import Node, admitted_names, fake_cgroups, topology, unsound

ROOT = Path("/var/lib/numalet")
CPUS = 12
SHELL = {"", "besteffort", "burstable"}


class World:
    """Every write, sync, rename, mkdir, unlink and cgroup operation counts as one on ``fuse``."""

    def __init__(self, config: Config | None = None) -> None:
        self.fuse = Fuse()
        self.disks: list[Disk] | None = None
        """Collects what a power cut before each operation of the disk would have left."""
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
        if self.disks is not None:
            self.disks += self.cut_disks()
        self.fuse.run(lambda: None, OSError(errno.EIO, os.strerror(errno.EIO)))

    def cut_disks(self) -> list[Disk]:
        """What a power cut leaves: unsynced names reached the disk, or not."""
        return [self.disk.after_power_cut(names_reached_the_disk=kept) for kept in (True, False)]

    def start(self) -> None:
        """Start a daemon's owner on what is there."""
        self.store = StateDir(ROOT, self.disk)
        self.store.open()
        if self.node.config.host_isolation is HostIsolation.PARTITION:
            self.node.host = ConfinedHost(HostIsolation.PARTITION)
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

    def kill(self) -> None:
        """The daemon is no more, disk and kernel are as they were."""
        self.fuse.disarm()
        self.halt()

    def power_on(self, disk: Disk) -> None:
        """Another boot, with this disk."""
        self.halt()
        self.disk = disk
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
        assert world.owner.snapshot().state == _unused(world.node), "every CPU and byte is back"
        assert set(world.node.cgroups.observe().dirs) == SHELL
        assert world.store.records().pods == ()


def kill_everywhere(history: History) -> int:
    """Kill the daemon before its first operation, between any two, and after the last; how often that was."""
    world = history.prepare()
    world.fuse.count = 0
    history.work(world)
    last = world.fuse.count
    for k in range(last + 1):
        world = history.prepare()
        before = {name: world.held(name) for name in history.must}
        world.fuse.arm(k, Mode.DIE)
        with suppress(Died):
            history.work(world)
        world.kill()
        _recover(history, world, before, f"killed after {k} of {last} operations")
    return last + 1


def cut_power_everywhere(history: History) -> int:
    """Start from every different disk that a power cut could leave; returns how many these are."""
    world = history.prepare()
    before = {name: world.held(name) for name in history.must}
    found: list[Disk] = []
    world.disks = found
    history.work(world)
    world.disks = None
    disks = {_state_on(disk): disk for disk in (*found, *world.cut_disks())}
    for disk in disks.values():
        world.power_on(disk)
        _recover(history, world, before, f"power cut with {sorted(map(str, disk.contents()))}")
    return len(disks)


def _recover(history: History, world: World, before: dict[str, object], when: str) -> None:
    try:
        history.recover(world)
        history.check(world, before)
    except AssertionError as wrong:
        raise AssertionError(f"{history.name}, {when}") from wrong


def _state_on(disk: Disk) -> frozenset[tuple[Path, bytes]]:
    """The files there; that of the lock says nothing, only whether it is locked does."""
    return frozenset(item for item in disk.contents().items() if item[0].name != LOCK_FILE)


_UNUSED: dict[tuple[str, str], NodeState] = {}


def _unused(node: Node) -> NodeState:
    """The state of such a node without pods."""
    key = repr(node.config), str(node.topology.online)
    if key not in _UNUSED:
        _UNUSED[key] = Node(node.config, node.topology).owner().snapshot().state
    return _UNUSED[key]


def process_in(world: World, directory: str) -> None:
    """Let a process run in a cgroup."""
    world.node.cgroups.add_process(CgroupDir(directory), world.node.cgroups.spawn())
