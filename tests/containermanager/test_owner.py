"""What the owner answers, and what it leaves alone."""

from __future__ import annotations

import errno
import logging
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from agent.cgroup.backend import DIRECTORY
from agent.cgroup.layout import CgroupDir
from agent.containermanager import ContainerManager, Decided, Stage, VerdictKind
from agent.domain.outcome import Isolation
from agent.domain.pod import PodUid
from agent.errors import HostError
from tests.containermanager.faults import thread_safe_cgroups
from tests.containermanager.node import (
    Node,
    admitted_names,
    best_effort,
    budgeted,
    container_scope,
    parsed,
    pod,
    topology,
    unsound,
)


def test_a_pod_gets_cpus_memory_cgroups_and_a_record() -> None:
    node = Node()
    owner = node.owner()
    verdict = owner.admit(parsed(budgeted("team")), "api")
    assert verdict.kind is VerdictKind.ADMITTED
    [entry] = owner.snapshot().pods.values()
    assert entry.isolation == {"main": Isolation.CONTAINER, "helper": Isolation.POD}
    assert entry.directories == {"main": "poduid-team/main", "helper": "poduid-team/shared.pool/helper"}
    assert unsound(node, owner) == []


def test_a_second_admission_of_the_same_pod_changes_nothing() -> None:
    node = Node()
    owner = node.owner()
    owner.admit(pod("a"), "api")
    before, files = owner.snapshot(), dict(node.store.files)
    changes = len(node.cgroups.log)
    assert owner.admit(pod("a"), "file:a.yaml").kind is VerdictKind.UNCHANGED
    assert owner.snapshot().state == before.state
    assert owner.snapshot().pods == before.pods
    assert node.store.files == files
    assert len(node.cgroups.log) == changes


@pytest.mark.parametrize(
    ("other", "words"),
    [
        pytest.param(pod("a", cpu="1"), "another spec", id="same uid, another spec"),
        pytest.param(pod("a", uid="uid-2"), "another uid than uid-2", id="same name, another uid"),
        pytest.param(pod("b", uid="uid-a"), "another spec", id="same uid, another name"),
    ],
)
def test_who_takes_an_admitted_pods_name_or_uid_is_refused_and_told_who_has_it(
    other: object, words: str
) -> None:
    node = Node()
    owner = node.owner()
    owner.admit(pod("a"), "api")
    verdict = owner.admit(other, "api")  # type: ignore[arg-type]  # a table of pods
    assert (verdict.kind, verdict.reason) == (VerdictKind.REJECTED, "AlreadyExists")
    assert "pod default/a (uid uid-a) from api is already admitted with " + words in verdict.message
    assert verdict.remedy == "first: numalet delete default/a"
    assert owner.snapshot().rejected == {}
    assert admitted_names(owner) == ["a"]
    assert unsound(node, owner) == []


def test_a_pod_of_the_same_name_in_another_namespace_is_another_pod() -> None:
    owner = Node().owner()
    owner.admit(pod("a", cpu="1"), "api")
    assert owner.admit(pod("a", cpu="1", uid="uid-2", namespace="telco"), "api").kind is VerdictKind.ADMITTED


def test_a_refusal_is_kept_until_the_pod_of_that_name_fits_or_is_removed() -> None:
    owner = Node().owner()
    verdict = owner.admit(pod("a", cpu="64"), "api")
    assert verdict.kind is VerdictKind.REJECTED
    assert verdict.reason == "TopologyAffinityError"
    owner.admit(pod("a", cpu="65", uid="uid-2"), "api")
    assert list(owner.snapshot().rejected) == ["uid-2"]
    owner.admit(pod("a", uid="uid-3"), "api")
    assert owner.snapshot().rejected == {}
    owner.admit(pod("b", cpu="64"), "api")
    owner.remove(PodUid("uid-b"), None)
    assert owner.snapshot().rejected == {}


@pytest.mark.parametrize("uid", ["a..b", "_a", "a.", "-"])
def test_a_uid_that_cannot_name_a_file_or_cgroup_is_refused_and_changes_nothing(uid: str) -> None:
    node = Node()
    owner = node.owner()
    before = owner.snapshot().state
    verdict = owner.admit(replace(pod("a"), uid=PodUid(uid)), "api")
    assert (verdict.kind, verdict.reason) == (VerdictKind.REJECTED, "InvalidPod")
    assert verdict.remedy
    assert owner.snapshot().state == before
    assert owner.snapshot().failures == ()
    assert unsound(node, owner) == []


def test_a_manifest_that_cannot_be_stored_is_refused_and_changes_nothing() -> None:
    node = Node()
    owner = node.owner()
    verdict = owner.admit(replace(pod("a"), manifest={"spec": {"priority": float("nan")}}), "api")
    assert (verdict.kind, verdict.reason) == (VerdictKind.REJECTED, "InvalidPod")
    assert unsound(node, owner) == []


def test_removing_gives_everything_back() -> None:
    node = Node()
    owner = node.owner()
    fresh = owner.snapshot().state
    owner.admit(parsed(budgeted("team")), "api")
    owner.remove(PodUid("uid-team"), None)
    assert owner.snapshot().state == fresh
    assert owner.find("default", "team") is None
    assert unsound(node, owner) == []


def test_removing_an_unknown_pod_is_no_error() -> None:
    Node().owner().remove(PodUid("nobody"), None)


def test_removal_asks_the_processes_to_end_and_kills_those_that_do_not() -> None:
    node = Node()
    owner = node.owner()
    owner.admit(pod("a"), "api")
    with subprocess.Popen(["sleep", "60"]) as process:
        node.cgroups._elsewhere.add(process.pid)
        node.cgroups.add_process(CgroupDir("poduid-a/main"), process.pid)
        owner.remove(PodUid("uid-a"), 0.1)
        assert process.wait(10) == -15
    assert not node.cgroups.exists(CgroupDir("poduid-a"))


def test_a_pod_whose_processes_cannot_be_killed_stays_and_can_be_removed_later() -> None:
    node = Node()
    owner = node.owner()
    owner.admit(pod("a"), "api")
    node.cgroups.add_process(CgroupDir("poduid-a/main"), node.cgroups.spawn())
    node.cgroups.fail(CgroupDir("poduid-a"), "cgroup.kill", errno.EIO)
    with pytest.raises(HostError, match=r"poduid-a/cgroup\.kill"):
        owner.remove(PodUid("uid-a"), 0)
    assert not owner.is_leaving(PodUid("uid-a"))
    assert unsound(node, owner) == []
    node.cgroups.mend()
    owner.remove(PodUid("uid-a"), 0)
    assert admitted_names(owner) == []


def test_one_pods_broken_cgroup_does_not_keep_another_from_being_removed() -> None:
    node = Node()
    owner = node.owner()
    owner.admit(pod("a", cpu="1"), "api")
    owner.admit(pod("b", cpu="1"), "api")
    with node.cgroups.somebody_else():
        node.cgroups.write(CgroupDir("poduid-a/main"), "cpu.weight", "7")
    node.cgroups.fail(CgroupDir("poduid-a/main"), "cpu.weight", errno.EIO)
    owner.remove(PodUid("uid-b"), 0)
    assert admitted_names(owner) == ["a"]
    assert "EnforcementError" in owner.snapshot().failures[0]
    node.cgroups.mend()
    assert owner.reconcile() == 1
    assert unsound(node, owner) == []


def held_up(node: Node, owner: ContainerManager) -> threading.Thread:
    """A removal of pod a that waits for a process to end."""
    node.cgroups.add_process(CgroupDir("poduid-a/main"), node.cgroups.spawn())
    removal = threading.Thread(target=owner.remove, args=(PodUid("uid-a"), 0.5))
    removal.start()
    while not owner.is_leaving(PodUid("uid-a")):
        time.sleep(0.001)
    return removal


def test_while_a_pod_leaves_others_come_and_it_cannot_come_back() -> None:
    node = Node()
    owner = node.owner()
    owner.admit(pod("a"), "api")
    removal = held_up(node, owner)
    assert owner.admit(pod("b", cpu="1"), "api").kind is VerdictKind.ADMITTED
    verdict = owner.admit(pod("a"), "api")
    assert verdict.reason == "AlreadyExists"
    assert "is being removed" in verdict.message
    removal.join()
    assert admitted_names(owner) == ["b"]
    assert owner.admit(pod("a"), "api").kind is VerdictKind.ADMITTED
    assert unsound(node, owner) == []


def test_a_second_removal_returns_when_the_pod_is_gone() -> None:
    node = Node()
    owner = node.owner()
    owner.admit(pod("a"), "api")
    removal = held_up(node, owner)
    owner.remove(PodUid("uid-a"), 0)
    assert admitted_names(owner) == []
    removal.join()


@pytest.mark.parametrize("_attempt", range(5))
def test_a_removal_that_waited_for_another_one_does_not_free_the_pod_that_came_back_meanwhile(
    _attempt: int,
) -> None:
    node = Node()
    owner = node.owner()
    owner.admit(pod("a"), "api")
    directory = CgroupDir("poduid-a/main")
    node.cgroups.add_process(directory, node.cgroups.spawn())

    def restarts_it() -> None:
        owner.remove(PodUid("uid-a"), 60)
        owner.admit(pod("a"), "api")

    restart = threading.Thread(target=restarts_it)
    restart.start()
    wait_for(lambda: owner.is_leaving(PodUid("uid-a")))
    late = threading.Thread(target=owner.remove, args=(PodUid("uid-a"), 0))
    late.start()
    waiting: Any = owner._removed
    wait_for(lambda: bool(waiting._waiters))
    node.cgroups.kill(directory)
    restart.join()
    late.join()
    assert admitted_names(owner) == ["a"]
    assert unsound(node, owner) == []


def wait_for(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.005)


def test_many_threads_admit_and_remove_and_all_agrees_in_the_end() -> None:
    machine = topology(16, 2)
    node = Node(container_scope(), machine, cgroups=thread_safe_cgroups(machine))
    owner = node.owner()

    def churn(number: int) -> None:
        one = pod(f"pod-{number}", cpu="1", memory="64Mi")
        for _ in range(4):
            owner.admit(one, "api")
            owner.snapshot()
            if number % 2:
                owner.remove(one.uid, 0)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(churn, range(8)))
    assert admitted_names(owner) == [f"pod-{number}" for number in range(0, 8, 2)]
    assert unsound(node, owner) == []


def test_observers_hear_each_verdict_once_and_why() -> None:
    heard: list[Decided] = []
    node = Node()
    owner = node.owner(heard.append)
    owner.admit(pod("a"), "api")
    assert len(heard) == 1
    owner.admit(pod("a"), "api")
    assert len(heard) == 1
    owner.admit(pod("b", cpu="64"), "api")
    assert len(heard) == 2
    node.cgroups.fail(CgroupDir("poduid-c"), DIRECTORY, errno.EIO)
    assert owner.admit(pod("c", cpu="1"), "api").reason == "EnforcementError"
    assert [(one.pod.name, one.reason, one.is_undone) for one in heard] == [
        ("a", "", False),
        ("b", "TopologyAffinityError", False),
        ("c", "EnforcementError", True),
    ]


def test_observers_hear_of_the_pods_that_a_restart_admits_again() -> None:
    heard: list[Decided] = []
    node = Node()
    node.owner().admit(pod("a"), "api")
    node.owner(heard.append)
    assert [(one.pod.name, one.reason) for one in heard] == [("a", "")]


def test_the_stages_of_an_admission_are_timed_in_their_order() -> None:
    entered: list[Stage] = []

    @contextmanager
    def timed(stage: Stage) -> Iterator[None]:
        entered.append(stage)
        yield

    owner = Node().stopped_owner(timed=timed)
    owner.start()
    owner.admit(pod("a"), "api")
    owner.admit(pod("b", cpu="64"), "api")
    assert entered == [Stage.DECIDE, Stage.PERSIST, Stage.ENFORCE, Stage.DECIDE]


def test_drift_is_repaired_and_counted() -> None:
    node = Node()
    owner = node.owner()
    owner.admit(pod("a"), "api")
    assert owner.reconcile() == 0
    node.cgroups.write(CgroupDir("poduid-a/main"), "memory.max", "max")
    assert owner.reconcile() == 1
    assert unsound(node, owner) == []


def test_a_failure_is_told_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    node = Node()
    owner = node.owner()
    owner.admit(pod("a"), "api")
    caplog.set_level(logging.INFO)
    node.cgroups.write(CgroupDir("poduid-a/main"), "memory.max", "max")
    node.cgroups.fail(CgroupDir("poduid-a/main"), "memory.max", errno.EIO)
    for _ in range(3):
        owner.reconcile()
    assert len(owner.snapshot().failures) == 1
    node.cgroups.mend()
    owner.reconcile()
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING", "INFO"]
    assert caplog.messages[2] == "ready again: no EnforcementError any more"


def test_the_log_has_one_sentence_a_decision(caplog: pytest.LogCaptureFixture) -> None:
    owner = Node().owner()
    caplog.set_level(logging.INFO)
    caplog.clear()
    owner.admit(pod("a"), "api")
    owner.admit(pod("b", cpu="64"), "api")
    owner.admit(pod("b", cpu="64"), "api")
    owner.remove(PodUid("uid-a"), 0)
    starts = [message.split(":")[0] for message in caplog.messages]
    assert starts == ["admitted pod default/a", "rejected pod default/b", "removed pod default/a"]
    assert "exclusive slice" in caplog.messages[0]
    assert "hint" not in caplog.messages[0]


def test_the_kernel_is_shown_for_admitted_pods_only() -> None:
    node = Node()
    owner = node.owner()
    owner.admit(pod("a"), "api")
    view = owner.kernel_view(PodUid("uid-a"), "main")
    assert view["cpuset.cpus.effective"] == str(owner.snapshot().cpus(PodUid("uid-a"), "main"))
    assert view["cpu.max"] == "max 100000"
    assert owner.kernel_view(PodUid("nobody"), "main") == {}


def test_the_status_line_counts_what_pods_hold() -> None:
    owner = Node().owner()
    owner.admit(pod("a"), "api")
    owner.admit(parsed(best_effort("b")), "api")
    assert owner.status_line() == "2 pods, 2/8 CPUs exclusive, 0 problems"
