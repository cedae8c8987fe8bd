"""What went wrong for other people when CPU sets and limits were written to the kernel: the cases F."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent.cgroup.backend import EnforcementError
from agent.cgroup.layout import ROOT, CgroupDir, Kind, kind_of
from agent.cgroup.preflight import preflight, require
from agent.cgroup.tree import CPUS, MEMS, MakeDir, Observed, RemoveDir, Write
from agent.containermanager import ContainerManager, VerdictKind
from agent.containermanager.events import EventKind
from agent.domain.idset import NodeMask
from agent.domain.pod import PodUid
from agent.domain.topology import NodeId
from tests.containermanager.node import (
    GIB,
    Node,
    best_effort,
    budgeted,
    fake_cgroups,
    parsed,
    pod,
    topology,
    unsound,
)

POD, MAIN = CgroupDir("poduid-a"), CgroupDir("poduid-a/main")
CONTROLLERS = ("cpu", "cpuset", "memory")


def cpuset_writes(node: Node, below: str = "") -> list[str]:
    """Where CPU sets were written since the log was cleared, in order."""
    writes = (op for op in node.cgroups.log if isinstance(op, Write) and op.file == CPUS)
    return [op.directory for op in writes if op.directory.startswith(below)]


def test_f1_children_shrink_before_their_parent_and_grow_after_it() -> None:
    node = Node()
    owner = node.owner()
    owner.admit(parsed(best_effort("b")), "api")
    node.cgroups.log.clear()
    owner.admit(pod("a"), "api")
    inside, around = "besteffort/poduid-b/shared.pool", "besteffort/poduid-b"
    assert cpuset_writes(node, "besteffort") == [inside, around]
    node.cgroups.log.clear()
    owner.remove(PodUid("uid-a"), 0)
    assert cpuset_writes(node, "besteffort") == [around, inside]


def test_f2_an_empty_cpu_set_is_never_written() -> None:
    node = Node()
    owner = node.owner()
    for document in (budgeted("a"), best_effort("b")):
        owner.admit(parsed(document), "api")
    owner.admit(pod("c", cpu="1"), "api")
    for offline in (range(1, 8), range(4, 8), range(0)):
        found = topology(offline=frozenset(offline))
        owner.hardware_changed(lambda found=found: node.plug(found))  # type: ignore[misc]
        assert unsound(node, owner) == []
    written = [op for op in node.cgroups.log if isinstance(op, Write) and op.file in {CPUS, MEMS}]
    assert len(written) > 10
    assert all(op.text for op in written)


def test_f4_controllers_are_passed_on_from_the_top_and_taken_back_if_nobody_uses_them() -> None:
    node = Node()
    prepared = node.cgroups.prepare()
    assert [set(CONTROLLERS) <= set(step.controllers) for step in prepared.enabled] == [True]
    node.cgroups.make(POD)
    with pytest.raises(EnforcementError, match=r"not available here.*ENOENT"):
        node.cgroups.enable(POD, CONTROLLERS)  # not before the root
    node.cgroups.enable(ROOT, CONTROLLERS)
    node.cgroups.enable(POD, CONTROLLERS)
    again = node.cgroups.prepare()
    assert (again.enabled, again.created) == ((), ())
    fresh = fake_cgroups(node.topology)
    fresh.restore(fresh.prepare())
    assert fresh.observe() == Observed()


def test_f6_processes_live_in_leaves_only() -> None:
    node = Node()
    owner = node.owner()
    owner.admit(parsed(budgeted("a")), "api")
    seen = node.cgroups.observe().dirs
    leaves = {d for d in seen if kind_of(d) in {Kind.CONTAINER, Kind.POOLED}}
    assert leaves == {MAIN, CgroupDir("poduid-a/shared.pool/helper")}
    assert set(owner.snapshot().pods[PodUid("uid-a")].directories.values()) == leaves
    for directory, found in seen.items():
        assert bool(found.subtree) == (directory not in leaves)
    with pytest.raises(EnforcementError, match="EBUSY") as caught:
        node.cgroups.add_process(POD, node.cgroups.spawn())
    assert caught.value.hint == "join a container's own cgroup, a leaf"


def test_f10_who_loses_its_cpu_affinity_by_our_controller_is_warned_of_before(tmp_path: Path) -> None:
    """Files as cgroup v2 shows them; the controllers are the kernel's, cpuset is not passed on yet."""
    for directory, passed_on in ((tmp_path, "cpu memory"), (tmp_path / "numalet", "")):
        directory.mkdir(exist_ok=True)
        (directory / "cgroup.controllers").write_text("cpuset cpu memory")
        (directory / "cgroup.subtree_control").write_text(passed_on)
        (directory / "cgroup.procs").write_text("")
        (directory / "cgroup.type").write_text("domain")
    (problem,) = preflight(tmp_path / "numalet")
    assert "resets CPUAffinity= of what already runs below it" in problem.text
    assert "AllowedCPUs=" in problem.remedy
    require([problem])  # a warning, no obstacle
    assert (tmp_path / "cgroup.subtree_control").read_text() == "cpu memory"


def with_usage(amount: int) -> tuple[Node, ContainerManager]:
    """A pod whose memory limit somebody has lifted, and that uses so much by now."""
    node = Node()
    owner = node.owner()
    owner.admit(pod("a"), "api")
    with node.cgroups.somebody_else():
        node.cgroups.write(MAIN, "memory.max", "max")
    node.cgroups.use_memory(MAIN, amount)
    return node, owner


def test_f11_a_limit_below_what_is_in_use_is_put_off_with_the_figures_and_set_later() -> None:
    node, owner = with_usage(GIB + 1)
    node.cgroups.log.clear()
    for _ in range(3):
        assert owner.repair_drift() == 0
    assert node.cgroups.log == []
    assert node.cgroups.read(MAIN, "memory.max") == "max"
    (event,) = (event for event in owner.events.since(0) if event.kind is EventKind.LIMIT_PUT_OFF)
    assert (event.type, event.pod) == ("Warning", "default/a")
    assert f"{GIB + 1} bytes are in use, so the kernel would kill processes" in event.text
    assert owner.deviations() == (f"{MAIN} has memory.max max, wanted {GIB}",)
    node.cgroups.use_memory(MAIN, GIB)
    assert owner.repair_drift() == 1
    assert owner.deviations() == ()
    assert owner.snapshot().drift_repairs == {"memory.max": 1}
    assert unsound(node, owner) == []


def test_f11_a_limit_that_is_put_off_holds_nobody_else_up() -> None:
    node, owner = with_usage(GIB + 1)
    assert owner.admit(pod("b"), "api").kind is VerdictKind.ADMITTED
    assert owner.snapshot().failures == ()
    owner.remove(PodUid("uid-b"), 0)
    assert [event.kind for event in owner.events.since(0)].count(EventKind.LIMIT_PUT_OFF) == 1
    owner.remove(PodUid("uid-a"), 0)
    assert owner.admit(pod("a"), "api").kind is VerdictKind.ADMITTED
    assert node.cgroups.read(MAIN, "memory.max") == str(GIB)


def test_f12_only_what_differs_is_written_however_many_pods_there_are() -> None:
    node = Node(machine=topology(64, 2))
    owner = node.owner()
    for number in range(100):
        owner.admit(parsed(best_effort(f"b{number}")), "api")
    node.cgroups.log.clear()
    assert owner.reconcile() == 0
    owner.admit(parsed(best_effort("new")), "api")
    assert {op.directory.split("/")[1] for op in node.cgroups.log} == {"poduid-new"}
    node.cgroups.log.clear()
    owner.admit(pod("a"), "api")
    assert len(cpuset_writes(node, "besteffort")) == 2 * 101
    assert all(op.directory.startswith("poduid-a") or isinstance(op, Write) for op in node.cgroups.log)


def test_f13_what_a_crash_left_is_taken_over_or_removed() -> None:
    node = Node()
    node.cgroups.prepare()
    node.cgroups.enable(ROOT, CONTROLLERS)
    for directory in (POD, MAIN, CgroupDir("poduid-gone")):
        node.cgroups.make(directory)
    node.cgroups.write(POD, CPUS, "7")
    owner = node.owner()
    assert not node.cgroups.exists(CgroupDir("poduid-gone"))
    for directory in (POD, MAIN):
        node.cgroups.make(directory)  # between two looks of ours
    owner.admit(pod("a"), "api")
    assert unsound(node, owner) == []
    assert MakeDir(POD) in node.cgroups.log
    assert RemoveDir(CgroupDir("poduid-gone")) in node.cgroups.log


def test_f17_memory_is_bound_only_to_nodes_that_hold_all_of_the_limit() -> None:
    node = Node()
    owner = node.owner()
    owner.admit(parsed(budgeted("a")), "api")
    owner.admit(parsed(best_effort("b")), "api")
    state = owner.snapshot().state.memory
    for uid, held in state.entries.items():
        for name, blocks in held.items():
            directory = owner.snapshot().pods[uid].directories[name]
            limit = node.cgroups.read(directory, "memory.max")
            if limit != "max":
                assert int(limit) <= sum(block.size for block in blocks)
    everywhere = str(NodeMask(node.topology.all_nodes.bits))
    assert node.cgroups.read(CgroupDir("besteffort/poduid-b/shared.pool"), MEMS) == everywhere


def test_f17_memory_that_shrinks_below_what_is_bound_to_it_is_told() -> None:
    node = Node()
    owner = node.owner()
    owner.admit(pod("a", memory="3Gi"), "api")
    (block,) = owner.snapshot().state.memory.entries[PodUid("uid-a")]["main"]
    (home,) = (NodeId(n) for n in block.nodes)
    nodes = tuple(replace(one, memory=2 * GIB) if one.id == home else one for one in node.topology.nodes)
    owner.hardware_changed(lambda: node.plug(replace(node.topology, nodes=nodes)))
    (reasons,) = owner.snapshot().degraded.values()
    assert f"NUMA nodes {home} have" in reasons[0]
    assert "which hold 3Gi" in reasons[0]
