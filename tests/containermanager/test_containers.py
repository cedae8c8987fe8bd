"""What the owner makes of processes that come and go in its containers."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from threading import enumerate as threads
from typing import Any

import pytest

from agent.cgroup.layout import CgroupDir
from agent.checkpoint.podrecord import decode_record
from agent.config import Config
from agent.containermanager import ContainerManager, VerdictKind
from agent.containermanager.follower import ContainerFollower
from agent.domain.lifecycle import ContainerState
from agent.domain.pod import MEMORY, PodUid
from agent.domain.settings import CpuPolicy, MemoryPolicy
from agent.errors import HostError
from tests.containermanager.faults import Mode, faulty_node
from tests.containermanager.node import (
    GIB,
    NO_PROCESS,
    Node,
    budgeted,
    container_scope,
    limits,
    manifest,
    parsed,
    unsound,
)

Json = dict[str, Any]
WAITING, RUNNING, EXITED = ContainerState.WAITING, ContainerState.RUNNING, ContainerState.EXITED
UID = PodUid("uid-a")


def with_init(name: str = "a", policy: str = "Never", memory: str = "2Gi") -> Json:
    """Init container setup with more CPUs and memory than container main, which comes after it."""
    document = manifest(name)
    document["spec"] |= {
        "restartPolicy": policy,
        "initContainers": [{"name": "setup", "resources": limits("3", memory)}],
    }
    return document


def finite(name: str = "a", policy: str = "Never", **spec: object) -> Json:
    document = manifest(name)
    document["spec"] |= {"restartPolicy": policy, **spec}
    return document


class Work:
    """Processes in the containers of one pod."""

    def __init__(self, node: Node, owner: ContainerManager, uid: PodUid = UID) -> None:
        self.node, self.owner, self.uid = node, owner, uid

    def directory(self, name: str) -> CgroupDir:
        return self.owner.snapshot().pods[self.uid].directories[name]

    def starts(self, name: str) -> int:
        pid = self.node.cgroups.spawn()
        self.node.cgroups.add_process(self.directory(name), pid)
        self.owner.containers.changed([self.directory(name)])
        return pid

    def exits(self, name: str, pid: int) -> None:
        self.node.cgroups.exit(pid)
        self.owner.containers.changed([self.directory(name)])

    def runs(self, name: str) -> None:
        """Something runs in it from its begin to its end."""
        self.exits(name, self.starts(name))

    def has_ended(self) -> bool:
        return self.owner.containers.changed([self.directory("main")]) == {self.uid: True}

    def states(self) -> dict[str, tuple[ContainerState, int]]:
        lives = self.owner.snapshot().lives[self.uid]
        return {name: (life.state, life.restarts) for name, life in lives.items()}


def admitted(node: Node, document: Json) -> Work:
    owner = node.owner()
    verdict = owner.admit(parsed(document), "api")
    assert verdict.kind is VerdictKind.ADMITTED, verdict
    return Work(node, owner, verdict.pod.uid)


def test_a_container_waits_runs_exits_and_is_started_again() -> None:
    work = admitted(Node(), manifest("a"))
    first = work.starts("main")
    assert work.states() == {"main": (RUNNING, 0)}
    work.exits("main", first)
    assert work.states() == {"main": (EXITED, 0)}
    work.starts("main")
    assert work.states() == {"main": (RUNNING, 1)}


def test_one_of_two_processes_that_ends_is_no_exit() -> None:
    work = admitted(Node(), manifest("a"))
    work.exits("main", [work.starts("main"), work.starts("main")][0])
    assert work.states() == {"main": (RUNNING, 0)}


def test_what_came_and_went_between_two_looks_has_run() -> None:
    node = Node()
    work = admitted(node, manifest("a"))
    pid = node.cgroups.spawn()
    node.cgroups.add_process(work.directory("main"), pid)
    node.cgroups.exit(pid)
    assert work.owner.containers.changed([work.directory("main")]) == {UID: False}
    assert work.states() == {"main": (EXITED, 0)}


def test_a_change_in_no_container_of_a_pod_is_none() -> None:
    node = Node()
    work = admitted(node, manifest("a"))
    strange = [CgroupDir("poduid-b/main"), CgroupDir("poduid-a/other"), CgroupDir("poduid-a")]
    assert work.owner.containers.changed(strange) == {}


def test_states_survive_a_crash_of_the_daemon_and_follow_what_happened_meanwhile() -> None:
    node = Node()
    work = admitted(node, with_init(policy="Always"))
    work.runs("setup")
    crashing = work.starts("main")
    work.exits("main", crashing)
    running = work.starts("main")
    work.owner.reconcile()  # the record follows with the next one
    assert Work(node, node.owner()).states() == {"setup": (EXITED, 0), "main": (RUNNING, 1)}
    node.cgroups.exit(running)
    again = Work(node, node.owner())
    assert again.states() == {"setup": (EXITED, 0), "main": (EXITED, 1)}
    assert again.owner.containers.may_join(UID, "main") == ""


def test_a_finished_init_container_is_known_by_its_cgroup_where_no_record_tells() -> None:
    node = Node()
    work = admitted(node, with_init())
    work.runs("setup")
    assert decode_record(node.store.files["pods/uid-a.json"]).lives == {}
    again = node.owner()
    assert again.containers.may_join(UID, "main") == ""


def test_after_a_boot_init_containers_run_anew() -> None:
    node = Node()
    work = admitted(node, with_init())
    work.runs("setup")
    work.owner.reconcile()
    owner = node.rebooted(node.topology).owner()
    assert "setup has finished, which has not run yet" in owner.containers.may_join(UID, "main")


def test_the_last_changes_are_written_when_the_daemon_stops() -> None:
    node = Node()
    work = admitted(node, manifest("a"))
    work.starts("main")
    work.owner.settle()
    assert decode_record(node.store.files["pods/uid-a.json"]).lives["main"].state is RUNNING


# --- init containers --------------------------------------------------------------------------


def test_an_init_container_holds_the_others_back_until_it_has_finished() -> None:
    work = admitted(Node(), with_init())
    assert "setup has finished, which has not run yet" in work.owner.containers.may_join(UID, "main")
    pid = work.starts("setup")
    assert "setup has finished, which still runs" in work.owner.containers.may_join(UID, "main")
    work.node.cgroups.exit(pid)  # no event of it has come yet
    assert work.owner.containers.may_join(UID, "main") == ""


@pytest.mark.parametrize("scope", ["pod", "container"])
def test_a_container_runs_on_cpus_of_the_init_container_that_may_not_come_back(scope: str) -> None:
    node = Node(container_scope()) if scope == "container" else Node()
    work = admitted(node, with_init())
    cpus = {name: node.cgroups.effective_cpus(work.directory(name)) for name in ("setup", "main")}
    assert cpus["main"] <= cpus["setup"]
    assert (len(cpus["main"]), len(cpus["setup"])) == (2, 3)
    work.runs("setup")
    work.starts("main")
    assert {name: node.cgroups.effective_cpus(work.directory(name)) for name in ("setup", "main")} == cpus
    words = "init container setup has finished, and container main has its CPUs and memory now"
    assert work.owner.containers.may_join(UID, "setup") == words


def test_memory_of_a_finished_init_container_goes_to_others_and_nobody_is_degraded_by_it() -> None:
    node = Node()
    work = admitted(node, with_init(memory="3Gi"))
    work.runs("setup")
    assert work.owner.snapshot().state.memory.nodes[0].tables[MEMORY].reserved == 3 * GIB  # type: ignore[index]
    work.starts("main")
    shot = work.owner.snapshot()
    assert shot.state.memory.nodes[0].tables[MEMORY].reserved == GIB  # type: ignore[index]
    assert unsound(node, work.owner) == []
    assert work.owner.admit(parsed(manifest("b", "500m", "2500Mi")), "api").kind is VerdictKind.ADMITTED
    assert work.owner.admit(parsed(manifest("c", "500m", "3500Mi")), "api").kind is VerdictKind.ADMITTED
    work.owner.hardware_changed(lambda: node.machine)
    assert work.owner.snapshot().troubles == ()
    again = node.owner()
    assert again.snapshot().troubles == ()
    assert again.snapshot().state == work.owner.snapshot().state


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param({}, {"cpu_policy": CpuPolicy.NONE}, id="the CPU policy is turned off"),
        pytest.param({"memory_policy": MemoryPolicy.NONE}, {}, id="the memory policy is turned on"),
    ],
)
def test_memory_of_a_finished_init_container_is_not_booked_again_under_other_policies(
    before: Json, after: Json
) -> None:
    node = Node(Config(**before))
    work = admitted(node, with_init())
    work.runs("setup")
    pid = work.starts("main")
    work.owner.reconcile()
    other = node.configured(Config(**after))
    owner = other.owner()
    assert node.cgroups.procs(owner.snapshot().pods[UID].directories["main"]) == (pid,)
    assert set(owner.snapshot().state.memory.entries[UID]) == {"main"}
    assert owner.snapshot().state.memory.nodes[0].tables[MEMORY].reserved == GIB  # type: ignore[index]
    assert unsound(other, owner) == []
    node.boot = other.boot = "another"
    assert other.owner().snapshot().state == owner.snapshot().state


def test_a_crashed_shared_container_rejoins_the_same_pool() -> None:
    node = Node()
    work = admitted(node, budgeted("a"))
    main, helper = (node.cgroups.effective_cpus(work.directory(name)) for name in ("main", "helper"))
    work.runs("helper")
    work.runs("main")
    work.starts("helper")
    work.starts("main")
    assert node.cgroups.effective_cpus(work.directory("helper")) == helper
    assert node.cgroups.effective_cpus(work.directory("main")) == main
    assert work.states() == {"main": (RUNNING, 1), "helper": (RUNNING, 1)}


# --- the end of a pod -------------------------------------------------------------------------


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


# --- debug work -------------------------------------------------------------------------------


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
