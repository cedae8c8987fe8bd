"""The order of operations, by example; `test_order.py` has the invariants."""

import errno

import pytest

from agent.cgroup.backend import ApplyError, apply
from agent.cgroup.diff import deviations, diff
from agent.cgroup.fake import FakeCgroups
from agent.cgroup.layout import ROOT, CgroupDir
from agent.cgroup.tree import (
    CPUS,
    CPUS_EFFECTIVE,
    EnableControllers,
    MakeDir,
    Observed,
    ObservedDir,
    RemoveDir,
    Setting,
    Wanted,
    WantedDir,
    Write,
)
from agent.domain.idset import CpuSet, NodeMask
from agent.domain.pod import MEMORY, PodUid
from agent.domain.state import Block
from tests.cgroup.worlds import World, app, machine, pinned, pod, prepared

A, B = PodUid("a"), PodUid("b")
POOL_A = CgroupDir("besteffort/poda/shared.pool")


def shared_only() -> World:
    return World(topology=machine(4, 1), pods={A: pod("a", app("web"))})


def with_exclusive() -> World:
    world = shared_only()
    world.pods[B] = pod("b", app("fast", pinned("2", "1Gi")))
    world.cpus = {B: {"fast": CpuSet.parse("2-3")}}
    return world


def settled(world: World) -> FakeCgroups:
    fake = prepared(world.topology)
    apply(fake, diff(world.wanted(), fake.observe()))
    fake.log.clear()
    return fake


def test_every_other_cgroup_has_left_the_slice_before_the_exclusive_containers_cgroup_exists() -> None:
    fake = settled(shared_only())
    ops = diff(with_exclusive().wanted(), fake.observe())
    shrink = ops.index(Write(POOL_A, "cpuset.cpus", "0-1"))
    enclosing = ops.index(Write(CgroupDir("besteffort/poda"), "cpuset.cpus", "0-1"))
    made = ops.index(MakeDir(CgroupDir("podb")))
    assert shrink < enclosing < made
    assert ops[made + 1] == Write(CgroupDir("podb"), "cpuset.cpus", "2-3")
    fast = ops.index(MakeDir(CgroupDir("podb/fast")))
    assert ops[fast + 1] == Write(CgroupDir("podb/fast"), "cpuset.cpus", "2-3")


def test_the_pool_grows_only_after_the_exclusive_cgroup_is_gone_parents_first() -> None:
    fake = settled(with_exclusive())
    ops = diff(shared_only().wanted(), fake.observe())
    assert ops == (
        RemoveDir(CgroupDir("podb/fast")),
        RemoveDir(CgroupDir("podb")),
        Write(CgroupDir("besteffort/poda"), "cpuset.cpus", "0-3"),
        Write(POOL_A, "cpuset.cpus", "0-3"),
    )


def test_only_differences_are_written() -> None:
    world = with_exclusive()
    fake = settled(world)
    fake.write(CgroupDir("podb/fast"), "cpu.weight", "50")
    assert diff(world.wanted(), fake.observe()) == (Write(CgroupDir("podb/fast"), "cpu.weight", "174"),)


def test_a_weight_by_the_other_formula_is_not_rewritten() -> None:
    world = with_exclusive()
    fake = settled(world)
    fake.write(CgroupDir("podb/fast"), "cpu.weight", "79")
    assert diff(world.wanted(), fake.observe()) == ()
    assert deviations(world.wanted(), fake.observe()) == ()


def test_a_failed_shrink_stops_everything_before_the_exclusive_cgroup_exists() -> None:
    fake = settled(shared_only())
    fake.fail(POOL_A, "cpuset.cpus", errno.EACCES)
    with pytest.raises(ApplyError) as caught:
        apply(fake, diff(with_exclusive().wanted(), fake.observe()))
    assert caught.value.op == Write(POOL_A, "cpuset.cpus", "0-1")
    assert not fake.exists(CgroupDir("podb"))


def test_a_half_applied_admission_is_undone_by_planning_the_earlier_tree() -> None:
    before = shared_only().wanted()
    fake = settled(shared_only())
    start = fake.observe()
    fake.fail(CgroupDir("podb/fast"), "memory.max", errno.EIO)
    with pytest.raises(ApplyError):
        apply(fake, diff(with_exclusive().wanted(), fake.observe()))
    fake.mend()
    apply(fake, diff(before, fake.observe()))
    assert fake.observe() == start


def test_controllers_that_were_taken_away_come_back_before_any_set_is_written() -> None:
    world = with_exclusive()
    fake = settled(world)
    start = fake.observe()
    fake.disable(ROOT, ("cpuset",))
    ops = diff(world.wanted(), fake.observe())
    assert ops[0] == EnableControllers(ROOT, ("cpuset",))
    apply(fake, ops)
    assert fake.observe() == start


def test_what_was_narrowed_above_the_pods_is_opened_first_and_nothing_in_it_is_written() -> None:
    world = with_exclusive()
    fake = settled(world)
    for directory in (ROOT, CgroupDir("besteffort")):
        fake.write(directory, "cpuset.cpus", "1")
    assert deviations(world.wanted(), fake.observe())[:3] == (
        "the root cgroup has cpuset.cpus 1, wanted 0-3",
        "besteffort has cpuset.cpus 1, wanted 0-3",
        "besteffort/poda asks for cpuset.cpus 0-1 and gets 1",
    )
    ops = diff(world.wanted(), fake.observe())
    assert ops == (
        Write(ROOT, "cpuset.cpus", "0-3"),
        Write(CgroupDir("besteffort"), "cpuset.cpus", "0-3"),
    )
    apply(fake, ops)
    assert deviations(world.wanted(), fake.observe()) == ()


def test_a_pool_has_its_memory_nodes_back_before_a_container_in_it_is_made_anew() -> None:
    world = World(topology=machine(4, 2), pods={A: pod("a", app("main", pinned("1", "1Mi")))})
    world.blocks[A] = {"main": (Block(NodeMask.of([0]), MEMORY, 1 << 20),)}
    fake = settled(world)
    pool, main = CgroupDir("poda/shared.pool"), CgroupDir("poda/shared.pool/main")
    fake.write(pool, "cpuset.mems", "1")
    fake.remove(main)
    ops = diff(world.wanted(), fake.observe())
    assert ops[:2] == (Write(pool, "cpuset.mems", "0-1"), MakeDir(main))
    apply(fake, ops)
    assert fake.read(main, "cpuset.mems.effective") == "0"
    assert deviations(world.wanted(), fake.observe()) == ()


def test_a_pool_that_was_narrowed_from_above_leaves_a_new_slice_before_that_is_made() -> None:
    fake = settled(shared_only())
    fake.write(ROOT, "cpuset.cpus", "1")
    ops = diff(with_exclusive().wanted(), fake.observe())
    opened = ops.index(Write(ROOT, "cpuset.cpus", "0-3"))
    shrunk = ops.index(Write(POOL_A, "cpuset.cpus", "0-1"))
    assert opened < shrunk < ops.index(MakeDir(CgroupDir("podb")))
    apply(fake, ops)
    assert deviations(with_exclusive().wanted(), fake.observe()) == ()


def test_a_cgroup_left_half_made_by_a_crash_is_confined() -> None:
    fake = settled(shared_only())
    fake.make(CgroupDir("podb"))
    fake.enable(CgroupDir("podb"), ("cpu", "cpuset", "memory"))
    fake.make(CgroupDir("podb/fast"))
    world = with_exclusive()
    apply(fake, diff(world.wanted(), fake.observe()))
    assert deviations(world.wanted(), fake.observe()) == ()


def test_cgroups_that_are_not_ours_stay() -> None:
    world = shared_only()
    fake = settled(world)
    fake.make(CgroupDir("numalet.service"))
    fake.make(CgroupDir("numalet.service/inner"))
    fake.make(CgroupDir("besteffort/other"))
    assert diff(world.wanted(), fake.observe()) == ()
    apply(fake, diff(Wanted(), fake.observe()))
    assert set(fake.observe().dirs) == {"", "numalet.service", "besteffort", "besteffort/other"}
    assert deviations(world.wanted(), fake.observe())[-2:] == (
        "besteffort/other (not ours) is not in the plan",
        "numalet.service (not ours) is not in the plan",
    )


def test_what_a_workload_made_below_its_container_stays_with_it_and_goes_with_it() -> None:
    world = with_exclusive()
    fake = settled(world)
    fake.make(CgroupDir("podb/fast/inner"))
    fake.make(CgroupDir("podb/fast/inner/most"))
    assert diff(world.wanted(), fake.observe()) == ()
    assert deviations(world.wanted(), fake.observe()) == ()
    apply(fake, diff(shared_only().wanted(), fake.observe()))
    assert not fake.exists(CgroupDir("podb"))


def test_processes_in_a_pod_that_stays_are_never_killed() -> None:
    world = with_exclusive()
    fake = settled(world)
    stray = CgroupDir("podb/old")
    fake.make(stray)
    fake.make(CgroupDir("podb/empty"))
    fake.add_process(stray, fake.spawn())
    assert diff(world.wanted(), fake.observe()) == (RemoveDir(CgroupDir("podb/empty")),)
    assert deviations(world.wanted(), fake.observe()) == (
        "podb/empty (container of its own) is not in the plan and is empty",
        "podb/old (container of its own) is not in the plan and holds processes",
    )


def test_a_cgroup_held_for_want_of_cpus_is_neither_changed_nor_removed() -> None:
    world = with_exclusive()
    fake = settled(world)
    world.topology = machine(2, 1)
    fake.online = world.topology.online
    other = pod("c", app("wide", pinned("2", "1Gi")))
    world.pods[other.uid], world.cpus[other.uid] = other, {"wide": CpuSet.parse("0-1")}
    wanted = world.wanted()
    assert wanted.held
    assert all("podb" not in op.directory for op in diff(wanted, fake.observe()))
    told = deviations(wanted, fake.observe())
    assert any(text.startswith("podb: cpuset.cpus would be empty") for text in told)


def test_a_set_that_shares_nothing_with_the_old_one_moves_within_a_widened_pod() -> None:
    world = with_exclusive()
    fake = settled(world)
    world.cpus = {B: {"fast": CpuSet.parse("0-1")}}
    ops = diff(world.wanted(), fake.observe())
    apply(fake, ops)
    assert deviations(world.wanted(), fake.observe()) == ()
    widened = ops.index(Write(CgroupDir("podb"), "cpuset.cpus", "0-3"))
    moved = ops.index(Write(CgroupDir("podb/fast"), "cpuset.cpus", "0-1"))
    narrowed = ops.index(Write(CgroupDir("podb"), "cpuset.cpus", "0-1"))
    assert widened < moved < narrowed


def test_each_deviation_is_a_sentence() -> None:
    world = with_exclusive()
    fake = settled(world)
    fake.write(CgroupDir("podb/fast"), "cpu.max", "1000 100000")
    fake.online = CpuSet.parse("0-2")
    fake.remove(CgroupDir("besteffort/poda/shared.pool/web"))
    fake.disable(CgroupDir("podb"), ("memory",))
    assert deviations(world.wanted(), fake.observe()) == (
        "besteffort/poda/shared.pool/web does not exist",
        "podb does not give its children memory",
        "podb asks for cpuset.cpus 2-3 and gets 2",
        "podb/fast asks for cpuset.cpus 2-3 and gets 2",
        "podb/fast has cpu.max 1000 100000, wanted max 100000",
        "podb/fast has no memory.max, wanted 1073741824",
        "podb/fast has no memory.oom.group, wanted 1",
    )


def test_processes_in_the_pod_cgroup_of_a_stranger_leave_before_a_slice_moves_to_where_they_are() -> None:
    stray, pod_a, main = CgroupDir("podx"), CgroupDir("poda"), CgroupDir("poda/main")

    def confined(cpus: str, *, populated: bool = False) -> ObservedDir:
        return ObservedDir(files={CPUS: cpus, CPUS_EFFECTIVE: cpus}, populated=populated)

    wanted = Wanted(
        dirs={directory: WantedDir(settings={CPUS: Setting("2")}) for directory in (pod_a, main)},
        shared=CpuSet.parse("0"),
    )
    observed = Observed(
        dirs={pod_a: confined("1"), main: confined("1"), stray: confined("0-3", populated=True)}
    )
    ops = diff(wanted, observed)
    assert ops.index(Write(stray, CPUS, "0")) < ops.index(Write(main, CPUS, "2"))


def test_a_stranger_is_confined_with_the_controller_that_somebody_had_taken_from_it() -> None:
    stray = CgroupDir("podx")
    wanted = Wanted(dirs={ROOT: WantedDir(subtree=frozenset({"cpuset"}))}, shared=CpuSet.parse("0"))
    observed = Observed(dirs={ROOT: ObservedDir(), stray: ObservedDir(populated=True)})
    assert diff(wanted, observed) == (EnableControllers(ROOT, ("cpuset",)), Write(stray, CPUS, "0"))
