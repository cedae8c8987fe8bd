"""Containers that are units or cgroups of somebody else's: set, kept, given back."""

from __future__ import annotations

import json
from unittest.mock import Mock

import pytest

from agent.cgroup.layout import CgroupDir
from agent.checkpoint.store import BINDINGS_FILE
from agent.containermanager import VerdictKind
from agent.containermanager.events import EventKind
from agent.containermanager.verdict import ENFORCEMENT_ERROR
from agent.domain.idset import CpuSet
from agent.domain.lifecycle import ContainerState
from agent.domain.pod import PodUid
from agent.errors import HostError
from tests.containermanager.binding import (
    DB,
    SOURCE,
    admit,
    bound,
    confined,
    set_there,
    slice_of,
    state_of,
)
from tests.containermanager.node import GIB, Node, budgeted, manifest, parsed, pod, unsound


def test_a_unit_gets_what_its_container_has_and_gets_back_what_it_had() -> None:
    node = Node()
    place = node.outside.start(DB, CPUWeight=300, MemoryMax=3 * GIB)
    before, everywhere = set_there(node), node.outside.cpus(place)
    owner = node.owner()
    admit(owner, bound(manifest("p", memory="1Gi"), main=f"unit {DB}"))
    held = slice_of(owner, "uid-p")
    assert len(held) == 2
    assert node.outside.cpus(place) == held
    assert set_there(node)["AllowedCPUs"] == held
    assert set_there(node)["MemoryMax"] == GIB
    assert node.outside.cgroups.read(place, "cpuset.mems") == "0"
    assert state_of(owner, "uid-p") is ContainerState.RUNNING
    assert owner.deviations() == ()
    owner.remove(PodUid("uid-p"), 0)
    assert set_there(node) == before
    assert node.outside.cpus(place) == everywhere
    assert node.outside.cgroups.populated(place), "nobody is killed"
    assert BINDINGS_FILE not in node.store.files


def test_a_unit_that_does_not_run_has_its_cpus_when_it_starts() -> None:
    node = Node()
    node.outside.install(DB)
    owner = node.owner()
    admit(owner, bound(manifest("p"), main=f"unit {DB}"))
    assert owner.snapshot().lives == {}
    node.outside.start(DB)
    held = slice_of(owner, "uid-p")
    assert node.outside.cpus("system.slice/db.service") == held
    assert state_of(owner, "uid-p") is ContainerState.RUNNING
    node.outside.end(DB)
    assert state_of(owner, "uid-p") is ContainerState.EXITED
    node.outside.start(DB)
    assert state_of(owner, "uid-p") is ContainerState.RUNNING
    assert node.outside.cpus("system.slice/db.service") == held
    assert "drifted" not in str(owner.events.since(0))


def test_a_unit_that_has_its_cgroup_and_not_yet_its_settings_has_not_drifted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = Node()
    node.outside.install(DB)
    owner = node.owner()
    admit(owner, bound(manifest("p"), main=f"unit {DB}"))
    node.outside.start(DB)
    node.outside.end(DB)
    node.outside.run(DB)
    place = node.outside.make("system.slice/db.service")
    a_moment_later = Mock(side_effect=lambda _seconds: node.outside.set_properties(DB, {}))
    monkeypatch.setattr("agent.containermanager.boundtargets.time.sleep", a_moment_later)
    admit(owner, parsed(manifest("q")))
    assert a_moment_later.called
    assert node.outside.cpus(place) == slice_of(owner, "uid-p")
    assert "drifted" not in str(owner.events.since(0))


def test_what_somebody_else_sets_on_a_unit_is_put_right_and_told() -> None:
    node = Node()
    place = node.outside.start(DB, CPUWeight=300)
    owner = node.owner()
    admit(owner, bound(manifest("p"), main=f"unit {DB}"))
    node.outside.set_properties(DB, {"AllowedCPUs": CpuSet.parse("0-7"), "CPUWeight": 5})
    owner.repair_drift()
    assert node.outside.cpus(place) == slice_of(owner, "uid-p")
    told = [event.text for event in owner.events.since(0) if event.kind is EventKind.DRIFT_REPAIRED]
    assert told == [
        "unit db.service had drifted and was put right: AllowedCPUs was 0-7",
        "unit db.service had drifted and was put right: CPUWeight was 5",
    ]
    node.outside.cgroups.write(place, "cpuset.cpus", "0-7")
    assert "cpuset.cpus 0-7" in owner.deviations()[0]
    owner.repair_drift()
    assert owner.deviations() == ()


def test_a_daemon_that_starts_again_knows_what_to_give_back() -> None:
    node = Node()
    node.outside.start(DB, CPUWeight=300)
    before = set_there(node)
    admit(node.owner(), bound(manifest("p"), main=f"unit {DB}"))
    owner = node.owner()
    assert owner.snapshot().bound == {(PodUid("uid-p"), "main"): "/sys/fs/cgroup/system.slice/db.service"}
    owner.remove(PodUid("uid-p"), 0)
    assert set_there(node) == before


def test_a_crash_after_the_record_went_gives_the_unit_back_at_the_next_start() -> None:
    node = Node()
    node.outside.start(DB, CPUWeight=300)
    before = set_there(node)
    admit(node.owner(), bound(manifest("p"), main=f"unit {DB}"))
    node.store.remove("pods/uid-p.json")
    node.owner()
    assert set_there(node) == before


def test_after_a_boot_nothing_is_left_to_give_back() -> None:
    node = Node()
    node.outside.start(DB, CPUWeight=300)
    admit(node.owner(), bound(manifest("p"), main=f"unit {DB}"))
    again = node.rebooted(node.topology)
    again.outside.install(DB, CPUWeight=200)
    owner = again.owner()
    assert json.loads(again.store.files[BINDINGS_FILE])["unit"][DB]["CPUWeight"] == "200"
    owner.remove(PodUid("uid-p"), 0)
    assert set_there(again)["CPUWeight"] == 200


def test_cpus_stay_held_while_the_unit_cannot_be_given_back() -> None:
    node = Node()
    node.outside.start(DB)
    owner = node.owner()
    admit(owner, bound(manifest("p"), main=f"unit {DB}"))
    held = slice_of(owner, "uid-p")
    node.outside.broken = True
    with pytest.raises(HostError, match="cannot be asked"):
        owner.remove(PodUid("uid-p"), 0)
    assert owner.snapshot().exclusive == held
    node.outside.broken = False
    owner.remove(PodUid("uid-p"), 0)
    assert owner.snapshot().exclusive == CpuSet()


def test_a_bound_container_in_a_pool_leaves_before_somebody_gets_its_cpus() -> None:
    node = Node()
    place = node.outside.start(DB, CPUWeight=300)
    owner = node.owner()
    document = manifest("p")
    document["spec"] = {"containers": [{"name": "main"}]}
    admit(owner, bound(document, main=f"unit {DB}"))
    assert node.outside.cpus(place) == CpuSet.parse("0-7")
    seen: list[CpuSet] = []
    make = node.cgroups.make

    def watching(directory: CgroupDir) -> None:
        seen.append(node.outside.cpus(place))
        make(directory)

    node.cgroups.make = watching  # type: ignore[method-assign]
    admit(owner, pod("q"))
    assert seen
    assert all(cpus.isdisjoint(slice_of(owner, "uid-q")) for cpus in seen)
    owner.remove(PodUid("uid-q"), 0)
    assert node.outside.cpus(place) == CpuSet.parse("0-7")
    admit(owner, pod("q"))
    node.outside.broken = True
    verdict = owner.admit(pod("r"), SOURCE)
    assert (verdict.kind, verdict.reason) == (VerdictKind.REJECTED, ENFORCEMENT_ERROR)
    owner.remove(PodUid("uid-q"), 0)
    assert owner.snapshot().exclusive == CpuSet(), "nobody has to leave for that"
    node.outside.broken = False
    owner.reconcile()
    assert owner.snapshot().troubles == ()
    assert node.outside.cpus(place) == CpuSet.parse("0-7")
    assert unsound(node, owner) == []


def test_a_container_in_the_pods_pool_has_the_pods_limits_on_itself() -> None:
    node = Node()
    place = node.outside.start(DB)
    owner = node.owner()
    admit(owner, bound(budgeted("p", cpu="4"), helper=f"unit {DB}"))
    assert node.outside.cpus(place) == slice_of(owner, "uid-p", "helper")
    assert len(node.outside.cpus(place)) == 2
    assert node.outside.cgroups.read(place, "cpu.max") == "200000 100000"
    assert node.outside.cgroups.read(place, "memory.max") == str(GIB)


def test_a_limit_below_what_is_in_use_is_put_off_and_told() -> None:
    node = Node()
    place = node.outside.start(DB)
    node.outside.cgroups.use_memory(place, 2 * GIB)
    owner = node.owner()
    admit(owner, bound(manifest("p", memory="1Gi"), main=f"unit {DB}"))
    assert node.outside.cgroups.read(place, "memory.max") == "max"
    assert any("memory limit put off" in event.text for event in owner.events.since(0))
    assert "memory.max max" in owner.deviations()[0]
    told = f"unit {DB}: {2 * GIB} bytes are in use, memory.max is to be {GIB}"
    assert owner.snapshot().binding_lacks == {(PodUid("uid-p"), "main"): told}
    node.outside.cgroups.use_memory(place, GIB // 2)
    owner.reconcile()
    assert owner.snapshot().binding_lacks == {(PodUid("uid-p"), "main"): ""}
    assert node.outside.cgroups.read(place, "memory.max") == str(GIB)


def test_a_cgroup_is_set_when_it_appears_and_given_back() -> None:
    node = Node()
    owner = node.owner()
    admit(owner, bound(manifest("p"), main="cgroup containers/db"))
    held = slice_of(owner, "uid-p")
    assert node.outside.watch.places == ("containers/db",)
    assert owner.snapshot().lives == {}
    place = node.outside.make("containers/db")
    node.outside.cgroups.write(place, "cpu.weight", "77")
    node.outside.cgroups.add_process(place, node.outside.cgroups.spawn())
    owner.repair_drift()
    assert node.outside.cpus(place) == held
    assert state_of(owner, "uid-p") is ContainerState.RUNNING
    assert owner.deviations() == ()
    node.outside.cgroups.write(place, "cpu.weight", "5")
    owner.repair_drift()
    assert node.outside.cgroups.read(place, "cpu.weight") != "5"
    owner.remove(PodUid("uid-p"), 0)
    assert node.outside.cgroups.read(place, "cpu.weight") == "77"
    assert node.outside.cpus(place) == CpuSet.parse("0-7")
    assert node.outside.cgroups.populated(place)
    assert BINDINGS_FILE not in node.store.files


def test_a_cgroup_that_comes_while_it_is_looked_at_is_not_missed() -> None:
    node = Node()
    owner = node.owner()
    node.outside.watch.before = lambda: node.outside.make("containers/db")
    admit(owner, bound(manifest("p"), main="cgroup containers/db"))
    assert node.outside.cpus("containers/db") == slice_of(owner, "uid-p")


def test_a_cgroup_that_was_made_anew_has_its_own_past() -> None:
    node = Node()
    owner = node.owner()
    place = node.outside.make("containers/db")
    admit(owner, bound(manifest("p"), main="cgroup containers/db"))
    node.outside.cgroups.remove(place)
    owner.repair_drift()
    assert BINDINGS_FILE not in node.store.files
    node.outside.make("containers/db")
    node.outside.cgroups.write(place, "cpu.weight", "42")
    owner.repair_drift()
    assert json.loads(node.store.files[BINDINGS_FILE])["cgroup"]["containers/db"]["cpu.weight"] == "42"
    assert "drifted" not in str([event.text for event in owner.events.since(0)])


def test_a_unit_that_is_bound_and_goes_is_a_problem_until_it_is_back() -> None:
    node = Node()
    node.outside.start(DB)
    owner = node.owner()
    admit(owner, bound(manifest("p"), main=f"unit {DB}"))
    node.outside.end(DB)
    node.outside.stop(DB)
    owner.reconcile()
    assert "unit db.service is not-found, not loaded; its CPUs wait for it" in owner.snapshot().problems[0]
    assert owner.snapshot().failures == ()
    node.outside.install(DB)
    owner.reconcile()
    assert owner.snapshot().problems == ()
    assert set_there(node)["AllowedCPUs"] == slice_of(owner, "uid-p")


def test_a_slice_of_its_own_keeps_the_cpus_of_its_unit_and_nobody_elses() -> None:
    node = confined(Node())
    place = node.outside.start(DB, Slice="db.slice")
    node.outside.start("cron.service")
    owner = node.owner()
    admit(owner, pod("other"))
    admit(owner, bound(manifest("p"), main=f"unit {DB}"))
    held, other = slice_of(owner, "uid-p"), slice_of(owner, "uid-other")
    assert node.outside.cpus(place) == held
    assert node.outside.cpus("db.slice") == CpuSet.parse("0-7") - other
    assert node.outside.cpus("system.slice/cron.service") == CpuSet.parse("0-7") - other - held
    assert owner.snapshot().notices == ()
    node.outside.start("stray.service", Slice="db.slice")
    owner.reconcile()
    (notice,) = owner.snapshot().notices
    assert notice == (
        f"cgroup db.slice/stray.service may run on CPUs {held}, too, which db.slice keeps for"
        f" pod default/p: container main (unit {DB}): move it out"
    )
    owner.remove(PodUid("uid-p"), 0)
    assert node.outside.cpus(place) == CpuSet.parse("0-7") - other


def test_a_unit_that_shares_may_be_in_any_slice() -> None:
    node = confined(Node())
    place = node.outside.start(DB)
    owner = node.owner()
    document = manifest("p")
    document["spec"] = {"containers": [{"name": "main"}]}
    admit(owner, bound(document, main=f"unit {DB}"))
    admit(owner, pod("q"))
    assert node.outside.cpus(place) == CpuSet.parse("0-7") - slice_of(owner, "uid-q")
