"""Cgroups under our root whose pod nobody knows, at start and while running."""

from __future__ import annotations

import errno
import logging

import pytest

from agent.cgroup.fake import FakeCgroups
from agent.cgroup.layout import CgroupDir
from agent.checkpoint.store import CPU_FILE, MEMORY_FILE
from agent.containermanager import ContainerManager, VerdictKind
from agent.domain.idset import CpuSet
from agent.domain.pod import Pod, PodUid
from tests.containermanager.node import (
    Node,
    admitted_names,
    best_effort,
    budgeted,
    fake_cgroups,
    limits,
    manifest,
    parsed,
    pod,
    topology,
    unsound,
)

POD = CgroupDir("poduid-old")
MAIN = CgroupDir("poduid-old/main")


def orphaned(*, checkpoints: bytes | None = None, record: bytes | None = b"{}") -> Node:
    """A pod on 2 exclusive CPUs whose process outlived its record; the checkpoints may be damaged, too."""
    node = Node()
    owner = node.owner()
    owner.admit(pod("old"), "api")
    owner.admit(parsed(best_effort("guest")), "api")
    node.cgroups.add_process(MAIN, node.cgroups.spawn())
    if record is None:
        node.store.remove("pods/uid-old.json")
    else:
        node.store.files["pods/uid-old.json"] = record
    if checkpoints is not None:
        node.store.files[CPU_FILE] = node.store.files[MEMORY_FILE] = checkpoints
    return node


def slice_of(owner: ContainerManager, name: str) -> CpuSet:
    return owner.snapshot().cpus(PodUid(f"uid-{name}"), "main")


LOSSES = pytest.mark.parametrize(
    ("checkpoints", "record"),
    [
        pytest.param(None, b"{}", id="its record is damaged"),
        pytest.param(None, None, id="its record is missing"),
        pytest.param(b"{", b"{}", id="record and checkpoints are damaged"),
        pytest.param(b"{", None, id="its record is missing and the checkpoints are damaged"),
    ],
)


@LOSSES
def test_processes_of_a_lost_pod_live_on_in_the_shared_pool_and_are_reported_with_their_cpus(
    checkpoints: bytes | None, record: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    node = orphaned(checkpoints=checkpoints, record=record)
    before = node.cgroups.effective_cpus(MAIN)
    assert len(before) == 2
    owner = node.owner()
    shot = owner.snapshot()
    assert admitted_names(owner) == ["guest"]
    assert len(node.cgroups.procs(MAIN)) == 1
    assert node.cgroups.effective_cpus(MAIN) == shot.shared
    assert shot.strangers == {POD: before}
    told = (
        f"cgroup poduid-old: processes of a pod that is not known run here, found on CPUs {before}; "
        "they are held to the shared pool; end them, or apply the pod again with uid uid-old"
    )
    assert shot.problems[-1] == told
    assert told in caplog.messages
    assert shot.failures == ()
    assert owner.deviations() == (
        "poduid-old (pod) is not in the plan and holds processes",
        "poduid-old/main (container of its own) is not in the plan and holds processes",
    )


@LOSSES
def test_no_new_slice_overlaps_with_what_a_lost_pods_processes_may_use(
    checkpoints: bytes | None, record: bytes | None
) -> None:
    node = orphaned(checkpoints=checkpoints, record=record)
    owner = node.owner()
    for name, cpus in (("a", "2"), ("b", "3")):
        assert owner.admit(pod(name, cpu=cpus, memory="64Mi"), "api").kind is VerdictKind.ADMITTED
        strays = node.cgroups.effective_cpus(MAIN)
        assert strays == owner.snapshot().shared
        assert all(strays.isdisjoint(slice_of(owner, other)) for other in admitted_names(owner)[:-1])
    owner.remove(PodUid("uid-b"), 0)
    assert node.cgroups.effective_cpus(MAIN) == owner.snapshot().shared


def test_a_slice_is_refused_where_a_lost_pods_processes_cannot_be_confined() -> None:
    node = orphaned()
    owner = node.owner()
    node.cgroups.fail(POD, "cpuset.cpus", errno.EACCES)
    before = owner.snapshot().state
    verdict = owner.admit(pod("new", cpu="2"), "api")
    assert (verdict.kind, verdict.reason) == (VerdictKind.REJECTED, "EnforcementError")
    assert owner.snapshot().state == before
    assert not node.cgroups.exists(CgroupDir("poduid-new"))


def test_a_lost_pods_cgroup_goes_with_its_last_process(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    node = orphaned()
    owner = node.owner()
    node.cgroups.kill(POD)
    owner.reconcile()
    assert not node.cgroups.exists(POD)
    assert owner.snapshot().strangers == {}
    assert not any("not known" in text for text in owner.snapshot().problems)
    assert any(text.startswith("no longer: cgroup poduid-old") for text in caplog.messages)
    assert unsound(node, owner) == []


def test_a_lost_pod_that_is_applied_again_gets_its_cgroup_and_processes_back() -> None:
    node = orphaned()
    owner = node.owner()
    assert owner.admit(pod("old"), "api").kind is VerdictKind.ADMITTED
    owner.reconcile()
    assert len(node.cgroups.procs(MAIN)) == 1
    assert node.cgroups.effective_cpus(MAIN) == slice_of(owner, "old")
    assert owner.snapshot().strangers == {}
    assert unsound(node, owner) == []


def renamed() -> Pod:
    document = manifest("old")
    document["spec"]["containers"][0]["name"] = "other"
    return parsed(document)


def beside(node: Node, made: str) -> None:
    """A process of an earlier pod of the uid, in a cgroup of its own."""
    parts = made.split("/")
    with node.cgroups.somebody_else():
        for depth in range(1, len(parts) + 1):
            node.cgroups.make(CgroupDir("/".join(parts[:depth])))
    node.cgroups.add_process(CgroupDir(made), node.cgroups.spawn())


@pytest.mark.parametrize(
    ("new", "made", "left"),
    [
        pytest.param(renamed(), "", "poduid-old/main", id="other containers"),
        pytest.param(parsed(best_effort("old")), "", "poduid-old/main", id="another class"),
        pytest.param(
            parsed(budgeted("old")), "poduid-old/helper", "poduid-old/helper", id="a slice, now in the pool"
        ),
        pytest.param(pod("old"), "poduid-old/debug-1", "poduid-old/debug-1", id="debug work"),
        pytest.param(pod("old"), "poduid-old/A_b/c", "poduid-old/A_b", id="made by a workload"),
        pytest.param(
            pod("old"), "burstable/poduid-old", "burstable/poduid-old", id="in the pod's own cgroup"
        ),
    ],
)
def test_a_uid_that_is_used_again_waits_until_processes_that_the_new_pod_has_no_container_for_are_gone(
    new: Pod, made: str, left: str
) -> None:
    node = orphaned()
    owner = node.owner()
    if made:
        beside(node, made)
    before, files = owner.snapshot().state, dict(node.store.files)
    verdict = owner.admit(new, "api")
    assert (verdict.kind, verdict.reason) == (VerdictKind.REJECTED, "UidInUse")
    assert verdict.message == (
        f"processes of an earlier pod of uid uid-old run in {left}, which are no containers of this one"
    )
    assert "another uid" in verdict.remedy
    assert (owner.snapshot().state, node.store.files) == (before, files)
    assert POD in owner.snapshot().strangers, "they count until they are gone"
    assert owner.admit(pod("a", cpu="4"), "api").kind is VerdictKind.ADMITTED
    for directory in (MAIN, CgroupDir(left)):
        assert node.cgroups.effective_cpus(directory).isdisjoint(slice_of(owner, "a"))
    for directory in {POD, CgroupDir(left)}:
        node.cgroups.kill(directory)
    owner.remove(PodUid("uid-a"), 0)
    assert owner.admit(new, "api").kind is VerdictKind.ADMITTED
    assert owner.snapshot().strangers == {}
    assert unsound(node, owner) == []


def test_who_can_be_taken_over_is_not_in_the_way() -> None:
    node = orphaned()
    owner = node.owner()
    document = manifest("old", cpu="1")
    document["spec"]["containers"].append({"name": "more", "resources": limits("1", "64Mi")})
    assert owner.admit(parsed(document), "api").kind is VerdictKind.ADMITTED
    assert len(node.cgroups.procs(MAIN)) == 1
    assert node.cgroups.effective_cpus(MAIN) == slice_of(owner, "old")
    assert unsound(node, owner) == []


@pytest.mark.parametrize("directory", ["podx", "burstable/podx", "besteffort/podx"])
def test_a_pods_cgroup_that_somebody_made_while_running_goes_if_empty_and_is_confined_if_not(
    directory: str,
) -> None:
    node = Node()
    owner = node.owner()
    owner.admit(pod("old"), "api")
    made = CgroupDir(directory)
    node.cgroups.make(made)
    owner.reconcile()
    assert not node.cgroups.exists(made)
    node.cgroups.make(made)
    node.cgroups.add_process(made, node.cgroups.spawn())
    assert node.cgroups.effective_cpus(made) == node.topology.online
    owner.reconcile()
    assert owner.snapshot().strangers == {made: node.topology.online}
    assert node.cgroups.effective_cpus(made) == owner.snapshot().shared
    owner.reconcile()
    assert owner.snapshot().strangers == {made: node.topology.online}, (
        "where they were found, not where they are"
    )


class Joined(FakeCgroups):
    """Somebody moves into a cgroup after it was seen to be empty, and before it is removed."""

    def remove(self, directory: CgroupDir) -> None:
        if not self.procs(directory):
            self.add_process(directory, self.spawn())
        super().remove(directory)


def test_who_joins_an_unknown_cgroup_just_before_it_goes_stays_and_fails_nobody() -> None:
    node = Node(cgroups=fake_cgroups(topology(), Joined))
    owner = node.owner()
    stray = CgroupDir("podx")
    node.cgroups.make(stray)
    owner.reconcile()
    assert owner.snapshot().failures == ()
    assert owner.snapshot().strangers == {stray: node.topology.online}
    assert owner.admit(pod("old"), "api").kind is VerdictKind.ADMITTED
    assert node.cgroups.effective_cpus(stray) == owner.snapshot().shared
