"""When partitions are made and dissolved, by example; `test_order.py` has the invariants."""

from __future__ import annotations

from dataclasses import replace

from agent.cgroup.backend import apply
from agent.cgroup.diff import deviations, diff
from agent.cgroup.facts import CgroupSettings
from agent.cgroup.fake import FakeCgroups
from agent.cgroup.layout import ROOT, CgroupDir
from agent.cgroup.partitionplan import exposed_of
from agent.cgroup.plan import plan_pod
from agent.cgroup.tree import CPUS, EXCLUSIVE, PARTITION, CgroupOp, MakeDir, RemoveDir, Write
from agent.domain.binding import Binding, BindingKind
from agent.domain.idset import CpuSet
from agent.domain.pod import PodUid
from tests.cgroup.worlds import World, app, init, machine, pinned, pod, prepared

POD, FAST = CgroupDir("podb"), CgroupDir("podb/fast")
UID = PodUid("b")
PARTITIONS = CgroupSettings(partitions=True)


def world(slice_: str = "2-3") -> World:
    return World(
        topology=machine(8, 1),
        pods={UID: pod("b", app("fast", pinned(str(len(CpuSet.parse(slice_))), "1Gi")))},
        cpus={UID: {"fast": CpuSet.parse(slice_)}},
        cgroup=PARTITIONS,
    )


def settled(wanted: World) -> FakeCgroups:
    fake = prepared(wanted.topology)
    apply(fake, diff(wanted.wanted(), fake.observe()))
    return fake


def of_partitions(ops: tuple[CgroupOp, ...]) -> list[tuple[str, str, str]]:
    """The writes that partitions are made of, in their order."""
    return [
        (op.directory, op.file.removeprefix(CPUS + "."), op.text)
        for op in ops
        if isinstance(op, Write) and op.file in {EXCLUSIVE, PARTITION}
    ]


def test_cpus_are_handed_down_from_the_top_and_the_partition_is_made_last() -> None:
    fake = settled(World(topology=machine(8, 1), cgroup=PARTITIONS))
    ops = diff(world().wanted(), fake.observe())
    assert of_partitions(ops) == [
        ("", "exclusive", "2-3"),
        ("podb", "exclusive", "2-3"),
        ("podb/fast", "exclusive", "2-3"),
        ("podb/fast", "partition", "root"),
    ]
    assert ops.index(Write(ROOT, EXCLUSIVE, "2-3")) < ops.index(MakeDir(POD))
    assert ops[-1] == Write(FAST, PARTITION, "root")


def test_a_partition_is_dissolved_before_its_cgroup_goes_and_then_its_cpus_go_back() -> None:
    fake = settled(world())
    assert diff(World(topology=machine(8, 1), cgroup=PARTITIONS).wanted(), fake.observe()) == (
        Write(FAST, PARTITION, "member"),
        RemoveDir(FAST),
        RemoveDir(POD),
        Write(ROOT, EXCLUSIVE, ""),
    )


def test_a_partition_whose_set_changes_stays_one() -> None:
    fake = settled(world("2-3"))
    ops = diff(world("3-4").wanted(), fake.observe())
    assert of_partitions(ops) == [
        ("podb/fast", "exclusive", "3"),
        ("podb", "exclusive", "3"),
        ("", "exclusive", "3"),
        ("", "exclusive", "3-4"),
        ("podb", "exclusive", "3-4"),
        ("podb/fast", "exclusive", "3-4"),
    ]
    for op in ops:
        apply(fake, [op])
        assert 3 not in fake.effective_cpus(ROOT), f"nobody else gets what it keeps: {op}"
    assert fake.read(FAST, PARTITION) == "root"
    assert fake.effective_cpus(ROOT) == CpuSet.parse("0-2,5-7")


def test_a_partition_that_keeps_none_of_its_cpus_is_dissolved_and_made_again() -> None:
    fake = settled(world("2-3"))
    ops = diff(world("4-5").wanted(), fake.observe())
    assert of_partitions(ops) == [
        ("podb/fast", "partition", "member"),
        ("podb/fast", "exclusive", ""),
        ("podb", "exclusive", ""),
        ("", "exclusive", ""),
        ("", "exclusive", "4-5"),
        ("podb", "exclusive", "4-5"),
        ("podb/fast", "exclusive", "4-5"),
        ("podb/fast", "partition", "root"),
    ]
    apply(fake, ops)
    assert fake.effective_cpus(ROOT) == CpuSet.parse("0-3,6-7")


def test_a_partition_that_became_invalid_gives_all_back_before_it_is_made_again() -> None:
    fake = settled(world())
    sibling = CgroupDir("podb/other")
    fake.make(sibling)
    fake.write(sibling, CPUS, "3")
    assert "root invalid" in fake.read(FAST, PARTITION)
    (said,) = (text for text in deviations(world().wanted(), fake.observe()) if PARTITION in text)
    assert (
        said
        == "podb/fast has cpuset.cpus.partition root invalid (Cpu list in cpuset.cpus not exclusive), wanted root"
    )
    ops = diff(world().wanted(), fake.observe())
    assert ops[0] == RemoveDir(sibling)
    assert of_partitions(ops) == [
        ("podb/fast", "partition", "member"),
        ("podb/fast", "exclusive", ""),
        ("podb/fast", "exclusive", "2-3"),
        ("podb/fast", "partition", "root"),
    ]
    apply(fake, ops)
    assert deviations(world().wanted(), fake.observe()) == ()


def test_only_the_kind_is_written_where_only_that_differs() -> None:
    fake = settled(world())
    isolated = world()
    isolated.pods = {UID: replace(isolated.pods[UID], annotations={"numalet/cpu-isolation": "isolated"})}
    assert diff(isolated.wanted(), fake.observe()) == (Write(FAST, PARTITION, "isolated"),)


def test_without_partitions_nothing_is_said_of_them_where_there_are_none() -> None:
    plain = replace(world(), cgroup=CgroupSettings())
    assert not of_partitions(diff(plain.wanted(), prepared(plain.topology).observe()))
    ops = diff(plain.wanted(), settled(world()).observe())
    assert of_partitions(ops) == [
        ("podb/fast", "partition", "member"),
        ("podb/fast", "exclusive", ""),
        ("podb", "exclusive", ""),
        ("", "exclusive", ""),
    ]


def test_a_container_scope_pod_whose_init_container_shares_with_the_node_keeps_its_slice() -> None:
    mixed = world()
    mixed.pods = {UID: pod("b", init("prepare"), *mixed.pods[UID].containers, budget=pinned("4", "2Gi"))}
    fake = settled(mixed)
    assert fake.read(FAST, PARTITION) == "root"
    assert fake.read(CgroupDir("podb/prepare"), PARTITION) == "member"
    assert fake.effective_cpus(CgroupDir("podb/prepare")) == CpuSet.parse("0-1,4-7")


def test_a_slice_that_is_bound_elsewhere_is_no_partition_which_would_keep_it_off() -> None:
    bound = world()
    bindings = {"fast": Binding(BindingKind.UNIT, "db.service")}
    bound.pods = {UID: replace(bound.pods[UID], bindings=bindings)}
    assert not of_partitions(diff(bound.wanted(), prepared(bound.topology).observe()))
    facts = bound.facts()
    assert exposed_of(facts, bound.pods[UID], plan_pod(facts, bound.pods[UID])) == CpuSet.parse("2-3")
