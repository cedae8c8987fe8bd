"""Debug work: processes that look at a pod beside its containers."""

from __future__ import annotations

import pytest

from agent.cgroup.layout import CgroupDir
from agent.containermanager import VerdictKind
from agent.errors import HostError
from tests.containermanager.node import NO_PROCESS, Node, manifest, parsed, unsound
from tests.containermanager.work import UID, Work, admitted, finite


def test_debug_work_runs_in_its_pod_on_the_node_shared_pool() -> None:
    node = Node()
    work = admitted(node, manifest("a"))
    pid = node.cgroups.spawn()
    assert work.owner.containers.debug(UID, pid) == "poduid-a/debug-1"
    assert node.cgroups.procs(work.directory("debug-1")) == (pid,)
    assert str(node.cgroups.effective_cpus(work.directory("debug-1"))) == "0,3-7"
    assert str(node.cgroups.effective_cpus(work.directory("main"))) == "1-2"
    assert work.owner.containers.debug(UID, node.cgroups.spawn()) == "poduid-a/debug-2"
    assert unsound(node, work.owner) == []
    assert work.owner.admit(parsed(manifest("a")), "api").kind is VerdictKind.UNCHANGED
    work.owner.admit(parsed(manifest("b")), "api")
    assert str(node.cgroups.effective_cpus(work.directory("debug-1"))) == "0,3,6-7"


def test_debug_work_that_ended_leaves_nothing_behind() -> None:
    node = Node()
    work = admitted(node, manifest("a"))
    pids = [node.cgroups.spawn(), node.cgroups.spawn()]
    for pid in pids:
        work.owner.containers.debug(UID, pid)
    work.exits("debug-1", pids[0])
    assert not node.cgroups.exists(CgroupDir("poduid-a/debug-1"))
    assert str(node.cgroups.effective_cpus(CgroupDir("poduid-a"))) == "0-7"
    directory = work.directory("debug-2")
    node.cgroups.exit(pids[1])
    work.owner.containers.changed([directory])
    assert str(node.cgroups.effective_cpus(CgroupDir("poduid-a"))) == "1-2"
    assert work.owner.snapshot().pods[UID].debug == ()
    assert unsound(node, work.owner) == []


def test_debug_work_that_cannot_join_leaves_nothing_behind() -> None:
    node = Node()
    work = admitted(node, manifest("a"))
    with pytest.raises(HostError, match="there is no such process"):
        work.owner.containers.debug(UID, NO_PROCESS + 77)
    assert not node.cgroups.exists(CgroupDir("poduid-a/debug-1"))
    assert work.owner.snapshot().pods[UID].debug == ()
    assert unsound(node, work.owner) == []


def test_debug_work_goes_on_beside_a_daemon_that_starts_again() -> None:
    node = Node()
    work = admitted(node, manifest("a"))
    pid = node.cgroups.spawn()
    work.owner.containers.debug(UID, pid)
    again = Work(node, node.owner())
    assert again.owner.snapshot().pods[UID].debug == ("debug-1",)
    assert str(node.cgroups.effective_cpus(again.directory("debug-1"))) == "0,3-7"
    assert unsound(node, again.owner) == []


def test_debug_work_that_ended_while_no_daemon_ran_is_cleaned_up() -> None:
    node = Node()
    work = admitted(node, manifest("a"))
    pid = node.cgroups.spawn()
    work.owner.containers.debug(UID, pid)
    node.cgroups.exit(pid)
    again = node.owner()
    assert again.snapshot().pods[UID].debug == ()
    assert not node.cgroups.exists(CgroupDir("poduid-a/debug-1"))
    assert unsound(node, again) == []


def test_debug_work_does_not_keep_a_pod_that_has_ended() -> None:
    node = Node()
    work = admitted(node, finite(terminationGracePeriodSeconds=0))
    work.owner.containers.debug(UID, node.cgroups.spawn())
    work.runs("main")
    work.owner.end(UID)
    assert list(work.owner.snapshot().ended) == [UID]
    assert not node.cgroups.exists(CgroupDir("poduid-a"))
