"""The host leaves exclusive CPUs before a pod has them, comes back after, and gets back what it had."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import pytest

from agent.cgroup.layout import CgroupDir
from agent.cgroup.toplevel import top_level_cpus
from agent.cgroup.tree import CPUS, Write
from agent.checkpoint.store import HOST_FILE, MemoryStore
from agent.config.model import HostIsolation
from agent.containermanager import ContainerManager
from agent.containermanager.hostisolation import Host, HostGates, LooseHost, check_place, host_with
from agent.containermanager.hostpartitions import HostPartitions
from agent.containermanager.hostslices import HostSlices
from agent.containermanager.hoststate import SLICES, Originals
from agent.containermanager.irqsteering import IrqSteering
from agent.containermanager.verdict import VerdictKind
from agent.domain.idset import NO_CPUS, CpuSet
from agent.domain.pod import PodUid
from agent.errors import ConfigError, StateError
from agent.irq.procirq import FakeInterrupts
from agent.systemdbus.fake import FakeSystemd
from agent.systemdbus.properties import ALLOWED_CPUS
from tests.containermanager.node import Node, pod

EVERYTHING = CpuSet.parse("0-7")
HELD = CpuSet.parse("2-3")
FREE = EVERYTHING - HELD
UNITS = ("init.scope", "system.slice", "user.slice")


class World:
    """A host with systemd and interrupts, both in memory, and what is remembered of it."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.systemd = FakeSystemd((*UNITS, "numalet.slice"))
        self.interrupts = FakeInterrupts({"1": EVERYTHING, "9": HELD, "30": CpuSet.parse("0")})
        self.store = store or MemoryStore()

    def cpus(self, unit: str) -> CpuSet:
        found = self.systemd.properties(unit)[ALLOWED_CPUS]
        assert isinstance(found, CpuSet)
        return found

    def everywhere(self) -> Mapping[str, CpuSet]:
        return {unit: self.cpus(unit) for unit in UNITS}

    def gates(self) -> HostGates:
        originals = Originals(self.store, "boot")
        return HostGates(
            slices=HostSlices(self.systemd, self.everywhere, originals, frozenset({"numalet.slice"})),
            irqs=IrqSteering(self.interrupts, originals, clock=lambda: 0.0),
            partitions=HostPartitions("/sys/fs/cgroup/test", originals),
        )

    def host(self, mode: HostIsolation = HostIsolation.SLICES, *, irq_affinity: bool = True) -> Host:
        return host_with(mode, self.gates(), EVERYTHING, irq_affinity=irq_affinity)

    def owner(self, node: Node) -> ContainerManager:
        owner = ContainerManager(
            machine=node.machine,
            store=node.store,
            cgroups=node.cgroups,
            cgroup_root="/sys/fs/cgroup/test",
            boot_id="boot",
            now=node.now,
            host=self.host(),
            binder=node.outside.binder(node.store, "boot"),
        )
        owner.start()
        return owner


def test_slices_leave_what_is_exclusive_and_come_back_when_it_is_free() -> None:
    world = World()
    host = world.host()
    host.leave(EVERYTHING, HELD)
    assert set(world.everywhere().values()) == {FREE}
    host.settle(EVERYTHING, HELD)
    assert world.interrupts.now == {"1": FREE, "9": FREE, "30": CpuSet.parse("0")}
    done = len(world.systemd.log)
    host.settle(EVERYTHING, HELD)
    assert len(world.systemd.log) == done
    host.leave(EVERYTHING, NO_CPUS)
    host.settle(EVERYTHING, NO_CPUS)
    assert set(world.everywhere().values()) == {EVERYTHING}
    assert world.interrupts.now["9"] == HELD


def test_leaving_never_grows_a_slice() -> None:
    world = World()
    host = world.host()
    host.leave(EVERYTHING, HELD)
    other = CpuSet.parse("4-5")
    host.leave(EVERYTHING, other)
    assert world.cpus("system.slice") == FREE - other
    host.settle(EVERYTHING, other)
    assert world.cpus("system.slice") == EVERYTHING - other


def test_what_somebody_else_set_is_put_right_and_told() -> None:
    world = World()
    host = world.host()
    host.leave(EVERYTHING, HELD)
    host.settle(EVERYTHING, HELD)
    assert host.repairs() == ()
    world.systemd.set_properties("user.slice", {ALLOWED_CPUS: EVERYTHING})
    host.leave(EVERYTHING, HELD)
    host.settle(EVERYTHING, HELD)
    assert world.cpus("user.slice") == FREE
    assert host.repairs() == ("user.slice had drifted and was put right: AllowedCPUs was 0-7",)
    assert host.repairs() == ()


def test_a_host_with_nothing_exclusive_is_not_touched() -> None:
    world = World()
    host = world.host()
    host.leave(EVERYTHING, NO_CPUS)
    host.settle(EVERYTHING, NO_CPUS)
    assert world.systemd.log == []
    assert world.store.files == {}


def test_what_somebody_had_set_is_honoured_never_widened_and_given_back() -> None:
    world = World()
    world.systemd.set_properties("system.slice", {ALLOWED_CPUS: CpuSet.parse("0-3")})
    host = world.host()
    host.leave(EVERYTHING, HELD)
    assert world.cpus("system.slice") == CpuSet.parse("0-1")
    host.leave(EVERYTHING, NO_CPUS)
    host.settle(EVERYTHING, NO_CPUS)
    assert world.cpus("system.slice") == CpuSet.parse("0-3")
    host.leave(EVERYTHING, HELD)
    world.host(HostIsolation.NONE)
    assert world.everywhere() == {
        "init.scope": NO_CPUS,
        "system.slice": CpuSet.parse("0-3"),
        "user.slice": NO_CPUS,
    }
    forgotten = [unit for what, unit, _ in world.systemd.log if what == "forget"]
    assert forgotten == ["init.scope", "user.slice"]


def test_a_slice_whose_own_cpus_are_all_exclusive_uses_what_is_free() -> None:
    world = World()
    world.systemd.set_properties("user.slice", {ALLOWED_CPUS: HELD})
    world.host().leave(EVERYTHING, HELD)
    assert world.cpus("user.slice") == FREE


def test_what_the_host_had_outlives_the_daemon_but_not_the_boot() -> None:
    world = World()
    world.host().leave(EVERYTHING, HELD)
    assert json.loads(world.store.files[HOST_FILE])["slices"] == dict.fromkeys(UNITS, "")
    again = world.host()
    again.leave(EVERYTHING, HELD)
    again.settle(EVERYTHING, HELD)
    world.host(HostIsolation.NONE, irq_affinity=False)
    assert set(world.everywhere().values()) == {NO_CPUS}
    assert world.interrupts.now == {"1": EVERYTHING, "9": HELD, "30": CpuSet.parse("0")}
    assert HOST_FILE not in world.store.files
    world.host().leave(EVERYTHING, HELD)
    assert Originals(world.store, "another boot").of(SLICES) == {}


@pytest.mark.parametrize("irq_affinity", [True, False])
def test_a_restart_takes_nothing_back_that_is_still_wanted(irq_affinity: bool) -> None:
    world = World()
    host = world.host(irq_affinity=irq_affinity)
    host.leave(EVERYTHING, HELD)
    host.settle(EVERYTHING, HELD)
    done, now = len(world.systemd.log), dict(world.interrupts.now)
    again = world.host(irq_affinity=irq_affinity)
    again.leave(EVERYTHING, HELD)
    again.settle(EVERYTHING, HELD)
    assert len(world.systemd.log) == done
    assert world.interrupts.now == now
    assert again.repairs() == ()


def test_what_is_turned_off_is_given_back_and_the_rest_is_kept() -> None:
    world = World()
    host = world.host()
    host.leave(EVERYTHING, HELD)
    host.settle(EVERYTHING, HELD)
    world.host(irq_affinity=False)
    assert world.interrupts.now["9"] == HELD
    assert world.cpus("user.slice") == FREE
    world.host(HostIsolation.NONE)
    assert world.cpus("user.slice") == NO_CPUS
    assert HOST_FILE not in world.store.files


def test_a_record_that_cannot_be_read_is_an_error_with_a_remedy() -> None:
    world = World()
    world.store.write(HOST_FILE, b"{")
    with pytest.raises(StateError, match=HOST_FILE) as caught:
        world.host().leave(EVERYTHING, HELD)
    assert caught.value.hint


def test_interrupts_that_cannot_move_are_told_once_tried() -> None:
    world = World()
    world.interrupts.immovable = frozenset({"9"})
    host = world.host()
    host.settle(EVERYTHING, HELD)
    assert world.interrupts.now["1"] == FREE
    (notice,) = host.notices(HELD)
    assert "interrupts 9 stay on exclusive CPUs" in notice
    world.interrupts.immovable = frozenset()
    host.settle(EVERYTHING, HELD)
    assert world.interrupts.now["9"] == HELD


def test_irqbalance_is_told_of_with_the_remedy() -> None:
    world = World()
    world.interrupts.balanced = True
    host = world.host()
    host.settle(EVERYTHING, HELD)
    (notice,) = host.notices(HELD)
    assert "IRQBALANCE_BANNED_CPULIST=2-3" in notice


def test_without_isolation_a_notice_says_so_once_cpus_are_exclusive() -> None:
    assert LooseHost().notices(NO_CPUS) == ()
    (notice,) = LooseHost().notices(HELD)
    assert "hostIsolation: slices" in notice


class TestUnderTheOwner:
    def test_the_host_has_left_before_the_pod_has_its_cpus(self) -> None:
        node, world = Node(), World()
        owner = world.owner(node)
        seen: list[CpuSet] = []
        make = node.cgroups.make

        def watched(directory: CgroupDir) -> None:
            seen.append(world.cpus("system.slice"))
            make(directory)

        node.cgroups.make = watched  # type: ignore[method-assign]
        assert owner.admit(pod("web"), "api").kind is VerdictKind.ADMITTED
        held = owner.snapshot().exclusive
        assert held
        assert seen
        assert all(cpus and cpus.isdisjoint(held) for cpus in seen)
        assert owner.snapshot().host_isolation == "slices"

    def test_the_host_comes_back_when_the_pod_is_gone(self) -> None:
        node, world = Node(), World()
        owner = world.owner(node)
        owner.admit(pod("web"), "api")
        owner.remove(PodUid("uid-web"), 0)
        assert set(world.everywhere().values()) == {EVERYTHING}

    def test_a_systemd_that_cannot_be_asked_refuses_the_pod_and_changes_nothing(self) -> None:
        node, world = Node(), World()
        owner = world.owner(node)
        world.systemd.broken = True
        verdict = owner.admit(pod("web"), "api")
        assert verdict.kind is VerdictKind.REJECTED
        assert "systemd" in verdict.message
        assert not owner.snapshot().exclusive
        assert not any(isinstance(op, Write) and op.file == CPUS for op in node.cgroups.log)

    def test_drift_is_mended_by_a_reconcile(self) -> None:
        node, world = Node(), World()
        owner = world.owner(node)
        owner.admit(pod("web"), "api")
        world.systemd.set_properties("user.slice", {ALLOWED_CPUS: EVERYTHING})
        owner.reconcile()
        assert world.cpus("user.slice").isdisjoint(owner.snapshot().exclusive)
        assert owner.reconcile() == 0


@pytest.mark.parametrize("root", ["system.slice/numalet.service/pods", "machine.slice/numalet"])
def test_pods_below_a_slice_that_would_be_confined_are_refused_with_the_way_out(root: str) -> None:
    mount = PurePosixPath("/sys/fs/cgroup")
    with pytest.raises(ConfigError, match="hostIsolation") as caught:
        check_place(HostIsolation.SLICES, mount / root, mount)
    assert "/sys/fs/cgroup/numalet" in caught.value.hint


def test_pods_in_a_cgroup_or_slice_of_their_own_are_fine() -> None:
    mount = PurePosixPath("/sys/fs/cgroup")
    check_place(HostIsolation.SLICES, mount / "numalet", mount)
    check_place(HostIsolation.SLICES, mount / "numalet.slice/pods", mount)
    check_place(HostIsolation.NONE, mount / "system.slice/numalet.service/pods", mount)
    check_place(HostIsolation.PARTITION, mount / "numalet", mount)


def test_partitions_below_a_cgroup_that_is_not_ours_are_refused_with_the_way_out() -> None:
    mount = PurePosixPath("/sys/fs/cgroup")
    with pytest.raises(ConfigError, match="right below /sys/fs/cgroup, not") as caught:
        check_place(HostIsolation.PARTITION, mount / "numalet.slice/pods", mount)
    assert "/sys/fs/cgroup/numalet" in caught.value.hint


def test_the_top_of_the_hierarchy_is_what_is_a_slice_and_init(tmp_path: Path) -> None:
    for name, text in (
        ("init.scope", "\n"),
        ("system.slice", "0-3\n"),
        ("numalet", "4\n"),
        ("dev.mount", "\n"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cpuset.cpus").write_text(text)
    (tmp_path / "user.slice").mkdir()
    assert top_level_cpus(tmp_path) == {
        "init.scope": NO_CPUS,
        "system.slice": CpuSet.parse("0-3"),
        "user.slice": NO_CPUS,
    }
