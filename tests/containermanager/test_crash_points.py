"""Stopped at every operation of disk and kernel, in every kind of work: the next start has it all, or none of it.

The summary of a test run tells how many points that were: operations before which the daemon was killed, and
different disks that a power cut could leave.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agent.cgroup.layout import CgroupDir
from agent.checkpoint.convert import convert_cpu, convert_memory
from agent.checkpoint.reading import CpuFile, MemoryFile, read_stored
from agent.checkpoint.store import CPU_FILE, MEMORY_FILE, StorageError
from agent.config import Config
from agent.config.model import HostIsolation
from agent.domain.pod import Pod, PodUid
from agent.domain.settings import CpuPolicy, MemoryPolicy
from tests.containermanager.crashes import (
    CPUS,
    History,
    World,
    cut_power_everywhere,
    kill_everywhere,
    process_in,
)
from tests.containermanager.faults import Mode
from tests.containermanager.node import best_effort, budgeted, parsed, pod, topology

NONE = Config(cpu_policy=CpuPolicy.NONE, memory_policy=MemoryPolicy.NONE)
STATIC = Config()
PARTITION = Config(host_isolation=HostIsolation.PARTITION)
SETTLED = frozenset({"old", "team", "guest"})


def settled(config: Config | None = None) -> World:
    """A slice, a pod with a budget and a process in its slice, and a pod that shares."""
    world = World(config)
    world.start()
    for new in (pod("old"), parsed(budgeted("team")), parsed(best_effort("guest"))):
        assert world.owner.admit(new, "api").kind.value == "admitted"
    for directory in world.owner.snapshot().pods[PodUid("uid-team")].directories.values():
        process_in(world, directory)
    return world


def partitioned() -> World:
    return settled(PARTITION)


def admits(new: Pod) -> Callable[[World], None]:
    return lambda world: _none(world.owner.admit(new, "api"))


def _none(_: object) -> None:
    return None


def removes(name: str) -> Callable[[World], None]:
    return lambda world: world.owner.remove(PodUid(f"uid-{name}"), 0)


def drifted(config: Config | None = None) -> World:
    """A cgroup is gone, others are wrong, one is nobody's, and the disk lacks a state that could not be written."""
    world = settled(config)
    world.fuse.arm(0, Mode.LASTING)
    with pytest.raises(StorageError):
        world.owner.remove(PodUid("uid-guest"), 0)
    world.fuse.disarm()
    cgroups = world.node.cgroups
    cgroups.remove(CgroupDir("poduid-old/main"))
    cgroups.write(CgroupDir("poduid-team/main"), "cpu.weight", "7")
    cgroups.write(CgroupDir("besteffort/poduid-guest/shared.pool"), "cpu.weight", "7")
    cgroups.write(CgroupDir("besteffort"), "cpuset.cpus", "1")
    cgroups.make(CgroupDir("podnobodys"))
    return world


def dissolved() -> World:
    """As `drifted`, and somebody has made a partition a member and taken back what was handed down."""
    world = drifted(PARTITION)
    world.node.cgroups.write(CgroupDir("poduid-team/main"), "cpuset.cpus.partition", "member")
    world.node.cgroups.write(CgroupDir(""), "cpuset.cpus.exclusive", "0")
    return world


def damaged() -> World:
    """A pod without a record, a checkpoint that is damaged, and an empty cgroup that is nobody's."""
    world = settled()
    world.owner.admit(pod("ghost", cpu="1", memory="64Mi"), "api")
    world.store.remove("pods/uid-ghost.json")
    world.store.write(MEMORY_FILE, b"{}")
    world.node.cgroups.make(CgroupDir("podnobodys"))
    world.halt()
    return world


def older(world: World, cpu: int, memory: int) -> None:
    """Rewrite the checkpoints as an older kubelet or numalet had them."""
    files = {name: read_stored(world.store.read(name) or b"") for name in (CPU_FILE, MEMORY_FILE)}
    assert isinstance(files[CPU_FILE], CpuFile)
    assert isinstance(files[MEMORY_FILE], MemoryFile)
    world.store.write(CPU_FILE, convert_cpu(files[CPU_FILE], cpu).raw)
    world.store.write(MEMORY_FILE, convert_memory(files[MEMORY_FILE], memory).raw)


def of_version(cpu: int, memory: int) -> Callable[[], World]:
    def prepare() -> World:
        world = settled()
        older(world, cpu, memory)
        world.halt()
        return world

    return prepare


def reconfigured(before: Config, after: Config) -> Callable[[], World]:
    def prepare() -> World:
        world = settled(before)
        world.halt()
        world.configure(after)
        return world

    return prepare


def rebooted() -> World:
    world = settled()
    world.power_on(world.disk.after_power_cut(names_reached_the_disk=True))
    return world


def loses_cpus(world: World) -> None:
    machine = topology(CPUS, offline=frozenset({3, 5}))
    world.owner.hardware_changed(lambda: world.node.plug(machine))


NEW = frozenset({"new"})
HISTORIES = [
    History("start on an empty disk", World, World.start, frozenset()),
    History("admission of a slice", settled, admits(pod("new", cpu="1")), SETTLED, NEW),
    History("admission of a budget", settled, admits(parsed(budgeted("new", "4", "2Gi"))), SETTLED, NEW),
    History("admission of a pod that shares", settled, admits(parsed(best_effort("new"))), SETTLED, NEW),
    History("removal of a slice", settled, removes("old"), SETTLED - {"old"}, frozenset({"old"})),
    History("removal of a pod that runs", settled, removes("team"), SETTLED - {"team"}, frozenset({"team"})),
    History(
        "removal of a pod that shares", settled, removes("guest"), SETTLED - {"guest"}, frozenset({"guest"})
    ),
    History("reconcile", drifted, lambda world: _none(world.owner.reconcile()), SETTLED),
    History("start on damage", damaged, World.start, SETTLED),
    History("start after a reboot", rebooted, World.start, SETTLED),
    History("migration none to static", reconfigured(NONE, STATIC), World.start, SETTLED, moves=True),
    History("migration static to none", reconfigured(STATIC, NONE), World.start, SETTLED, moves=True),
    History("migration from checkpoints V3 and V2", of_version(3, 2), World.start, SETTLED),
    History("migration from checkpoints V2 and V1", of_version(2, 1), World.start, SETTLED),
    History("hotplug", settled, loses_cpus, SETTLED),
    History("partitions at start", lambda: World(PARTITION), World.start, frozenset()),
    History(
        "partitions at admission", partitioned, admits(parsed(budgeted("new", "4", "2Gi"))), SETTLED, NEW
    ),
    History("partitions at removal", partitioned, removes("team"), SETTLED - {"team"}, frozenset({"team"})),
    History("partitions at reconcile", dissolved, lambda world: _none(world.owner.reconcile()), SETTLED),
    History("partitions at hotplug", partitioned, loses_cpus, SETTLED),
    History("partitions at their begin", reconfigured(STATIC, PARTITION), World.start, SETTLED),
    History("partitions at their end", reconfigured(PARTITION, STATIC), World.start, SETTLED),
]


@pytest.mark.parametrize("stop_everywhere", [kill_everywhere, cut_power_everywhere])
@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.name)
def test_stopped_at_any_operation_the_next_start_has_all_of_it_or_none(
    history: History,
    stop_everywhere: Callable[[History], int],
    record_property: Callable[[str, object], None],
) -> None:
    points = stop_everywhere(history)
    assert points > 1
    record_property(f"crash points of {history.kind}", points)
