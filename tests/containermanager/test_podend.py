"""The end of a pod: when its work is done, and what it holds then."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from threading import enumerate as threads

import pytest

from agent.cgroup.layout import CgroupDir
from agent.containermanager import VerdictKind
from agent.containermanager.follower import ContainerFollower
from tests.containermanager.faults import Mode, faulty_node
from tests.containermanager.node import Node, manifest, parsed, unsound
from tests.containermanager.work import EXITED, RUNNING, UID, Work, admitted, finite


@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
def test_a_pod_that_has_run_ends_and_holds_nothing(policy: str) -> None:
    node = Node()
    work = admitted(node, finite(policy=policy))
    work.runs("main")
    assert work.has_ended()
    work.owner.end(UID)
    shot = work.owner.snapshot()
    assert (list(shot.pods), list(shot.ended)) == ([], [UID])
    assert shot.ended[UID].lives["main"].state is EXITED
    assert not shot.state.holds(UID)
    assert not node.cgroups.exists(CgroupDir("poduid-a"))
    assert unsound(node, work.owner) == []
    assert work.owner.admit(parsed(manifest("b", "6")), "api").kind is VerdictKind.REJECTED
    assert work.owner.admit(parsed(manifest("b", "3")), "api").kind is VerdictKind.ADMITTED


def test_a_pod_to_run_always_stays_with_all_it_holds() -> None:
    work = admitted(Node(), finite(policy="Always"))
    work.runs("main")
    assert not work.has_ended()
    work.owner.end(UID)
    assert list(work.owner.snapshot().pods) == [UID]


def test_a_pod_that_runs_again_before_it_was_let_go_stays() -> None:
    node = Node()
    work = admitted(node, finite())
    work.runs("main")
    node.cgroups.add_process(work.directory("main"), node.cgroups.spawn())
    work.owner.end(UID)
    assert work.states() == {"main": (RUNNING, 1)}


def test_sidecars_end_with_the_work() -> None:
    node = Node()
    document = finite(terminationGracePeriodSeconds=0)
    document["spec"]["initContainers"] = [{"name": "side", "restartPolicy": "Always"}]
    work = admitted(node, document)
    work.starts("side")
    work.runs("main")
    assert work.has_ended()
    work.owner.end(UID)
    assert list(work.owner.snapshot().ended) == [UID]
    assert not node.cgroups.exists(CgroupDir("poduid-a"))


def test_a_pod_that_ended_is_not_run_again_until_it_changes_or_goes() -> None:
    node = Node()
    owner = node.owner()
    source = "file:a.yaml"
    owner.admit(parsed(finite()), source)
    work = Work(node, owner)
    work.runs("main")
    owner.end(UID)
    for again in (owner, node.owner(), node.rebooted(node.topology).owner()):
        verdict = again.admit(parsed(finite()), source)
        assert verdict.kind is VerdictKind.UNCHANGED
        assert verdict.message == "it ended; to run it again: numalet delete default/a"
        assert list(again.snapshot().ended) == [UID]
        assert again.pods_of(source) == {UID}
        assert again.has_changed(parsed(manifest("a", "1")), source)
        assert not again.has_changed(parsed(finite()), source)
    owner.remove(UID, None)
    assert node.store.records().pods == ()
    assert node.owner().admit(parsed(finite()), source).kind is VerdictKind.ADMITTED


def test_another_pod_of_the_name_of_one_that_ended_is_refused() -> None:
    work = admitted(Node(), finite())
    work.runs("main")
    work.owner.end(UID)
    verdict = work.owner.admit(parsed(manifest("a", "1")), "api")
    assert (verdict.reason, verdict.remedy) == ("AlreadyExists", "first: numalet delete default/a")
    assert verdict.message == "pod default/a (uid uid-a) from api has ended with another spec"


class Changes:
    """What the kernel would tell."""

    def __init__(self) -> None:
        self.changed: frozenset[CgroupDir] = frozenset()
        self.followed: frozenset[CgroupDir] = frozenset()

    def fileno(self) -> int:
        return -1

    def follow(self, directories: Iterable[CgroupDir]) -> None:
        self.followed |= frozenset(directories)

    def drain(self) -> frozenset[CgroupDir]:
        return self.changed


def test_a_pod_ends_when_it_was_done_for_a_second_without_a_restart() -> None:
    node = Node()
    work = admitted(node, finite())
    clock = [100.0]
    changes = Changes()
    follower = ContainerFollower(work.owner, changes, lambda: clock[0])
    changes.changed = frozenset({work.directory("main")})
    work.runs("main")
    follower.follow()
    assert follower.due == 101.0
    clock[0] = 100.9
    running = work.starts("main")
    follower.follow()
    assert follower.due == inf
    node.cgroups.exit(running)
    follower.follow()
    clock[0] = 101.8
    follower.end_settled()
    assert follower.due == 101.9
    clock[0] = 101.9
    follower.end_settled()
    join_ends()
    assert follower.due == inf
    assert list(work.owner.snapshot().ended) == [UID]


def join_ends() -> None:
    """Wait for the threads that let pods go."""
    for thread in threads():
        if thread.name == f"end-{UID}":
            thread.join()


def test_a_pod_that_cannot_be_let_go_keeps_what_it_holds_and_goes_later() -> None:
    node, fuse = faulty_node()
    work = admitted(node, finite())
    work.runs("main")
    clock = [100.0]
    follower = ContainerFollower(work.owner, Changes(), lambda: clock[0])
    follower.take_over()
    fuse.arm(0, Mode.LASTING)
    clock[0] = 101.0
    follower.end_settled()
    join_ends()
    fuse.disarm()
    assert work.owner.snapshot().state.holds(UID)
    follower.end_settled()
    assert follower.due == 111.0
    clock[0] = 111.0
    follower.end_settled()
    join_ends()
    assert list(work.owner.snapshot().ended) == [UID]
    assert unsound(node, work.owner) == []


def test_pods_that_were_done_before_the_daemon_started_end_too() -> None:
    node = Node()
    work = admitted(node, finite())
    work.runs("main")
    changes = Changes()
    follower = ContainerFollower(node.owner(), changes, lambda: 100.0)
    follower.take_over()
    assert follower.due == 101.0
    assert changes.followed == {"poduid-a/main"}
