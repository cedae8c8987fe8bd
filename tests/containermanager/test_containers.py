"""What the owner makes of processes that come and go in its containers."""

from __future__ import annotations

import pytest

from agent.cgroup.layout import CgroupDir
from agent.checkpoint.podrecord import decode_record
from agent.config import Config
from agent.containermanager import VerdictKind
from agent.domain.pod import MEMORY
from agent.domain.settings import CpuPolicy, MemoryPolicy
from tests.containermanager.node import GIB, Node, budgeted, container_scope, manifest, parsed, unsound
from tests.containermanager.work import EXITED, RUNNING, UID, Json, Work, admitted, with_init


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
