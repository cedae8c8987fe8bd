"""Starting on a machine, or under settings, that are not those of the last run."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from agent.cgroup.layout import CgroupDir
from agent.checkpoint.codec import encode_cpu, encode_memory
from agent.checkpoint.store import CPU_FILE, MEMORY_FILE
from agent.config import Config
from agent.config.model import StateRecovery
from agent.containermanager import ContainerManager
from agent.containermanager.machine import Machine
from agent.domain.idset import CpuSet
from agent.domain.pod import MEMORY, PodUid
from agent.domain.settings import CpuPolicy, Gates, MemoryPolicy, TopologyPolicy, TopologyScope
from agent.domain.state import CpuState
from agent.domain.topology import NodeId, NumaNode, Topology
from agent.errors import StateError
from tests.containermanager.node import (
    GIB,
    Node,
    admitted_names,
    best_effort,
    budgeted,
    manifest,
    parsed,
    pod,
    topology,
    unsound,
)

NO_MACHINES: dict[str, Machine] = {}
OLD, TEAM = PodUid("uid-old"), PodUid("uid-team")
OFF = Config(cpu_policy=CpuPolicy.NONE, memory_policy=MemoryPolicy.NONE, topology_policy=TopologyPolicy.NONE)


def populated(config: Config | None = None) -> tuple[Node, ContainerManager]:
    """Pod old on CPUs 1-2, pod team on 4-6 (5 is its pool), pod guest in the shared pool 0,3,7."""
    node = Node(config)
    owner = node.owner()
    owner.admit(pod("old"), "api")
    owner.admit(parsed(budgeted("team")), "api")
    owner.admit(parsed(best_effort("guest")), "api")
    return node, owner


def cpus_of(owner: ContainerManager) -> dict[str, str]:
    """What each container may run on."""
    shot = owner.snapshot()
    return {
        f"{entry.pod.name}/{container.name}": str(shot.cpus(uid, container.name))
        for uid, entry in shot.pods.items()
        for container in entry.pod.containers
    }


def with_memory(machine: Topology, *sizes: int) -> Topology:
    nodes = zip(machine.nodes, sizes, strict=True)
    return replace(machine, nodes=tuple(replace(node, memory=size) for node, size in nodes))


# --- files ----------------------------------------------------------------------------------

Damage = Callable[[bytes], bytes | None]
DAMAGES: dict[str, Damage] = {
    "missing": lambda _: None,
    "empty": lambda _: b"",
    "truncated": lambda raw: raw[: len(raw) // 2],
    "trailing bytes": lambda raw: raw + b'}"',
    "not JSON": lambda _: b"defaultCpuSet: 0-3",
    "wrong checksum": lambda raw: raw.replace(b'dataChecksum":', b'dataChecksum":1'),
    "no checksum": lambda raw: _without(raw, "checksum", "data", "dataChecksum"),
}


def _without(raw: bytes, *fields: str) -> bytes:
    return json.dumps({k: v for k, v in json.loads(raw).items() if k not in fields}).encode()


@pytest.mark.parametrize("name", [CPU_FILE, MEMORY_FILE])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_kept_aside_and_the_state_comes_from_the_pod_records(
    name: str, damage: Damage
) -> None:
    node, owner = populated()
    before, damaged = owner.snapshot().state, damage(node.store.files.pop(name))
    if damaged is not None:
        node.store.files[name] = damaged
    files = dict(node.store.files)
    with pytest.raises(StateError, match=name):
        node.owner(recovery=StateRecovery.STRICT)
    assert node.store.files == files
    again = node.owner()
    shot = again.snapshot()
    assert shot.state == before
    assert shot.recovered == {name: 1}
    assert shot.problems[0].startswith(name)
    assert [raw for file, raw in node.store.files.items() if ".corrupt-" in file] == (
        [] if damaged is None else [damaged]
    )
    assert unsound(node, again) == []
    assert node.owner().snapshot().recovered == {}


def test_a_file_whose_invariants_are_broken_is_damaged_too() -> None:
    node, owner = populated()
    before = owner.snapshot().state
    greedy = replace(before.cpu, entries={**before.cpu.entries, OLD: {"main": CpuSet.parse("4-5")}})
    unbooked = replace(before.memory, nodes=Node().owner().snapshot().state.memory.nodes)
    node.store.files[CPU_FILE] = encode_cpu("static", greedy)
    node.store.files[MEMORY_FILE] = encode_memory("Static", unbooked)
    again = node.owner()
    assert again.snapshot().state == before
    assert again.snapshot().recovered == {CPU_FILE: 1, MEMORY_FILE: 1}
    assert unsound(node, again) == []


def test_the_number_of_damaged_records_is_counted_and_their_pods_are_named() -> None:
    node, _ = populated()
    node.store.files["pods/uid-old.json"] = b"{}"
    again = node.owner()
    assert again.snapshot().recovered == {"pods": 1}
    assert "pods/uid-old.json" in again.snapshot().problems[0]
    assert unsound(node, again) == []


# --- half-written pods ----------------------------------------------------------------------


def _entries_without_record(node: Node) -> None:
    node.store.remove("pods/uid-team.json")


def _record_without_entries(node: Node) -> None:
    state = node.owner().snapshot().state
    cpu = node.managers.cpu.remove_pod(state.cpu, TEAM)
    memory = node.managers.memory.remove_pod(state.memory, TEAM)
    node.store.files[CPU_FILE] = encode_cpu("static", cpu)
    node.store.files[MEMORY_FILE] = encode_memory("Static", memory)


def _entry_without_containers(node: Node) -> None:
    cpu = node.owner().snapshot().state.cpu
    entries = {uid: held for uid, held in cpu.entries.items() if uid != TEAM}
    node.store.files[CPU_FILE] = encode_cpu("static", replace(cpu, entries=entries))


def _cpus_also_shared(node: Node) -> None:
    cpu = node.owner().snapshot().state.cpu
    shared = cpu.default | cpu.pod_entries[TEAM]
    node.store.files[CPU_FILE] = encode_cpu("static", replace(cpu, default=shared))


@pytest.mark.parametrize(
    ("halve", "stays"),
    [
        pytest.param(_entries_without_record, False, id="entries without record"),
        pytest.param(_record_without_entries, True, id="record without entries"),
        pytest.param(_entry_without_containers, True, id="pod entry without containers"),
        pytest.param(_cpus_also_shared, True, id="CPUs in the shared pool, too"),
    ],
)
def test_what_is_half_there_is_finished_or_undone_as_a_whole(
    halve: Callable[[Node], None], stays: bool
) -> None:
    node, owner = populated()
    before = owner.snapshot().state
    halve(node)
    again = node.owner()
    assert ("team" in admitted_names(again)) is stays
    if stays:
        assert again.snapshot().state == before
    else:
        assert TEAM not in again.snapshot().state.pods()
    assert unsound(node, again) == []


# --- settings -------------------------------------------------------------------------------


def test_a_stricter_policy_leaves_admitted_pods_as_they_are_and_names_them() -> None:
    node = Node(Config(topology_policy=TopologyPolicy.NONE))
    owner = node.owner()
    owner.admit(pod("wide", cpu="6", memory="1Gi"), "api")
    owner.admit(pod("slim", cpu="1", memory="1Gi"), "api")
    before = owner.snapshot().state
    strict = node.configured(Config(topology_policy=TopologyPolicy.SINGLE_NUMA_NODE))
    again = strict.owner()
    shot = again.snapshot()
    assert shot.state == before
    assert list(shot.degraded) == ["uid-wide"]
    assert shot.degraded[PodUid("uid-wide")][0].startswith(
        "today's settings would refuse it: TopologyAffinityError"
    )
    assert any("pod default/wide is degraded" in text for text in shot.troubles)
    assert unsound(strict, again) == []


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(Config(topology_scope=TopologyScope.CONTAINER), id="scope"),
        pytest.param(Config(cpu_options={"distribute-cpus-across-numa": "true"}), id="option"),
        pytest.param(Config(topology_policy=TopologyPolicy.BEST_EFFORT), id="policy"),
    ],
)
def test_what_still_holds_is_kept_under_other_settings(config: Config) -> None:
    node, owner = populated()
    before = owner.snapshot().state
    other = node.configured(config)
    again = other.owner()
    assert again.snapshot().state == before
    assert again.snapshot().degraded == {}
    assert unsound(other, again) == []


def test_a_pod_that_holds_a_cpu_that_is_reserved_now_keeps_it_and_is_degraded() -> None:
    node, owner = populated()
    placed = cpus_of(owner)
    other = node.configured(Config(reserved_cpus=CpuSet.parse("0-1")))
    again = other.owner()
    shot = again.snapshot()
    assert cpus_of(again) == placed
    assert shot.degraded == {OLD: ("CPUs 1 of its CPUs 1-2 are reserved now",)}
    assert unsound(other, again) == []
    assert again.admit(pod("next", cpu="1"), "api").reason == ""
    again.remove(OLD, 0)
    assert again.snapshot().degraded == {}
    assert CpuSet.parse("0-1") <= again.snapshot().shared


def test_a_cpu_that_is_strictly_reserved_now_is_shared_with_nobody_when_its_pod_goes() -> None:
    node, _ = populated()
    options = {"strict-cpu-reservation": "true"}
    other = node.configured(Config(reserved_cpus=CpuSet.parse("0-1"), cpu_options=options))
    again = other.owner()
    assert str(again.snapshot().state.cpu.default) == "3,7"
    again.remove(OLD, 0)
    assert str(again.snapshot().state.cpu.default) == "2-3,7"


def test_turning_the_policies_off_takes_the_cpus_and_says_whose_and_on_again_gives_some_back() -> None:
    node, _ = populated()
    off = node.configured(OFF)
    owner = off.owner()
    assert admitted_names(owner) == ["guest", "old", "team"]
    assert (owner.snapshot().exclusive, owner.snapshot().shared) == (CpuSet(), off.topology.online)
    told = "\n".join(owner.snapshot().problems)
    assert 'configured policy "none" differs from state checkpoint policy "static"' in told
    assert "pod default/old lost what it held and was placed anew" in told
    assert "guest" not in told
    on = off.configured(Config())
    again = on.owner()
    assert admitted_names(again) == ["guest", "old", "team"]
    assert {str(cpus) for cpus in again.snapshot().state.cpu.pod_entries.values()} == {"4-6"}
    assert any("pod default/old was given what" in text for text in again.snapshot().problems)
    assert unsound(on, again) == []


def test_policies_change_without_a_word_from_strict_recovery_where_nothing_is_held() -> None:
    node = Node()
    owner = node.owner()
    owner.admit(parsed(best_effort("guest")), "api")
    for config in (OFF, Config()):
        node = node.configured(config)
        owner = node.owner(recovery=StateRecovery.STRICT)
        assert admitted_names(owner) == ["guest"]
        assert any("differs from state checkpoint policy" in text for text in owner.snapshot().problems)
        assert not any(".corrupt-" in name for name in node.store.files)
    assert unsound(node, owner) == []


def test_strict_recovery_refuses_to_turn_a_policy_off_under_a_pod() -> None:
    node, _ = populated()
    with pytest.raises(StateError, match='configured policy "none" differs'):
        node.configured(OFF).owner(recovery=StateRecovery.STRICT)


def test_a_pod_held_as_a_whole_is_placed_anew_where_its_gate_is_off_and_is_named() -> None:
    node, _ = populated()
    off = node.configured(Config(gates=Gates(pod_level_resource_managers=False)))
    again = off.owner()
    assert admitted_names(again) == ["guest", "old", "team"]
    assert cpus_of(again)["old/main"] == "1-2"
    assert again.snapshot().state.cpu.pod_entries == {}
    told = [text for text in again.snapshot().problems if "default/team" in text]
    assert "PodLevelResourceManagers is off" in told[0]
    assert unsound(off, again) == []


# --- CPUs -----------------------------------------------------------------------------------


def test_new_cpus_join_the_shared_pool() -> None:
    node, owner = populated()
    placed = cpus_of(owner)
    grown = node.rebooted(topology(12, 2))
    again = grown.owner()
    assert {**cpus_of(again), "guest/main": ""} == {**placed, "guest/main": ""}
    assert str(again.snapshot().shared) == "0,3,7-11"
    assert again.snapshot().problems == (
        "the shared pool was 0,3,7 and is 0,3,7-11 now: CPUs 8-11 joined, CPUs none left",
    )
    assert unsound(grown, again) == []


def test_a_slice_that_lost_a_cpu_keeps_the_rest_and_nobody_else_is_touched() -> None:
    node, owner = populated()
    placed = cpus_of(owner)
    smaller = node.rebooted(topology(offline=frozenset({2, 3})))
    again = smaller.owner()
    assert cpus_of(again) == placed | {"old/main": "1", "guest/main": "0,7"}
    assert again.snapshot().degraded == {OLD: ("CPUs 2 of its CPUs 1-2 are offline",)}
    assert smaller.cgroups.read(CgroupDir("poduid-old/main"), "cpuset.cpus") == "1"
    assert unsound(smaller, again) == []
    once_more = smaller.owner()
    assert once_more.snapshot().problems == ()
    assert list(once_more.snapshot().degraded) == [OLD]
    healed = smaller.rebooted(topology())
    assert cpus_of(healed.owner()) == placed
    assert healed.owner().snapshot().degraded == {}


def test_a_container_all_of_whose_cpus_are_offline_waits_in_the_shared_pool() -> None:
    node, owner = populated()
    placed = cpus_of(owner)
    again = node.rebooted(topology(offline=frozenset({1, 2}))).owner()
    assert cpus_of(again) == placed | {"old/main": "0,3,7"}
    assert again.snapshot().degraded[OLD] == (
        "CPUs 1-2 of its CPUs 1-2 are offline",
        "container main has no CPU of its own left and runs in the node shared pool",
    )
    assert again.snapshot().failures == ()


def test_cpus_that_are_offline_are_released_but_not_shared() -> None:
    node, _ = populated()
    smaller = node.rebooted(topology(offline=frozenset({2})))
    again = smaller.owner()
    again.remove(OLD, 0)
    assert str(again.snapshot().state.cpu.default) == "0-1,3,7"
    assert again.snapshot().degraded == {}
    assert unsound(smaller, again) == []


def test_a_machine_far_too_small_keeps_every_pod_and_says_so() -> None:
    node, _ = populated()
    smaller = node.rebooted(topology(2, 1))
    again = smaller.owner()
    assert admitted_names(again) == ["guest", "old", "team"]
    assert sorted(again.snapshot().degraded) == [OLD, TEAM]
    assert str(again.snapshot().shared) == "0"


def test_the_cpus_that_numalet_reserves_by_itself_are_none_that_a_pod_holds() -> None:
    node = Node()
    owner = node.owner()
    owner.hardware_changed(lambda: node.plug(topology(offline=frozenset({5}))))
    assert str(owner.snapshot().managers.cpu.reserved) == "4"
    owner.admit(pod("first", cpu="3", memory="1Gi"), "api")
    assert cpus_of(owner) == {"first/main": "0-2"}
    for machine in (topology(), topology(offline=frozenset({4, 5}))):
        owner.hardware_changed(partial(node.plug, machine))
        assert owner.snapshot().degraded == {}
        assert unsound(node, owner) == []
        again = node.owner()
        assert again.snapshot().degraded == {}
        assert again.snapshot().managers.cpu.reserved <= again.snapshot().shared


def test_reserved_cpus_that_are_offline_are_no_reason_to_stay_down() -> None:
    node = Node(Config(reserved_cpus=CpuSet.parse("0,7")))
    node.owner()
    for offline, reserved in ((frozenset({7}), "0"), (frozenset({0, 7}), "1")):
        owner = node.rebooted(topology(offline=offline)).owner()
        assert str(owner.snapshot().managers.cpu.reserved) == reserved


# --- memory ---------------------------------------------------------------------------------


@pytest.mark.parametrize("recovery", StateRecovery)
def test_memory_that_drifts_within_bounds_is_taken_as_it_is(recovery: StateRecovery) -> None:
    node, owner = populated()
    before = owner.snapshot().state
    drifted = node.rebooted(with_memory(topology(), 4 * GIB - (43 << 20), 4 * GIB + (43 << 20)))
    again = drifted.owner(recovery=recovery)
    shot = again.snapshot()
    assert shot.problems == ()
    assert shot.degraded == {}
    assert shot.memory_drift == {NodeId(0): -(43 << 20), NodeId(1): 43 << 20}
    assert shot.state.memory.entries == before.memory.entries
    assert shot.state.memory.nodes[NodeId(1)].tables[MEMORY].total == 4 * GIB + (43 << 20)
    assert unsound(drifted, again) == []
    assert drifted.owner().snapshot().memory_drift == {NodeId(0): 0, NodeId(1): 0}


def test_a_node_that_lost_more_than_drift_is_told_and_who_still_fits_is_not_degraded() -> None:
    node, _ = populated()
    less = node.rebooted(with_memory(topology(), 3 * GIB, 4 * GIB))
    with pytest.raises(StateError, match="memory of NUMA node 0 was 4Gi and is 3Gi now"):
        less.owner(recovery=StateRecovery.STRICT)
    again = less.owner()
    assert again.snapshot().problems == ("memory of NUMA node 0 was 4Gi and is 3Gi now",)
    assert again.snapshot().degraded == {}
    assert unsound(less, again) == []


def test_pods_that_a_node_has_no_room_for_any_more_are_degraded_until_there_is_room() -> None:
    node, owner = populated()
    owner.admit(pod("late", cpu="1", memory="2Gi"), "api")
    held = owner.snapshot().state.memory.entries
    less = node.rebooted(with_memory(topology(), 2 * GIB, 4 * GIB))
    again = less.owner()
    shot = again.snapshot()
    assert shot.state.memory.entries == held
    assert sorted(shot.degraded) == ["uid-late", OLD]
    assert shot.degraded[OLD] == ("NUMA nodes 0 have 1948Mi of memory for pods now, which hold 3Gi",)
    assert again.admit(pod("more", cpu="1", memory="1Gi"), "api").reason == ""
    assert again.snapshot().state.memory.nodes[NodeId(0)].tables[MEMORY].free == 0
    once_more = less.owner()
    assert once_more.snapshot().problems == ()
    once_more.remove(PodUid("uid-late"), 0)
    assert once_more.snapshot().degraded == {}
    assert unsound(less, once_more) == []


def test_huge_pages_that_are_gone_degrade_their_pods_alone() -> None:
    pages = {2048: 512}
    machine = topology()
    nodes = tuple(replace(one, hugepages=pages) for one in machine.nodes)
    node = Node(Config(), replace(machine, nodes=nodes))
    owner = node.owner()
    huge = manifest("huge", cpu="1")
    for amounts in huge["spec"]["containers"][0]["resources"].values():
        amounts["hugepages-2Mi"] = "1Gi"
    owner.admit(parsed(huge), "api")
    owner.admit(pod("plain", cpu="1"), "api")
    placed = cpus_of(owner)
    bare = node.rebooted(machine)
    again = bare.owner()
    assert cpus_of(again) == placed
    assert again.snapshot().degraded == {
        PodUid("uid-huge"): ("NUMA nodes 0 of its hugepages-2Mi on 0 have none any more",)
    }
    again.remove(PodUid("uid-huge"), 0)
    assert unsound(bare, again) == []


def test_a_numa_node_that_is_gone_degrades_its_pods_alone() -> None:
    node, owner = populated()
    held = owner.snapshot().state
    machine = topology(offline=frozenset({4, 5, 6, 7}))
    lone: tuple[NumaNode, ...] = machine.nodes[:1]
    smaller = node.rebooted(replace(machine, nodes=lone))
    again = smaller.owner()
    shot = again.snapshot()
    assert shot.state.memory.entries == held.memory.entries
    assert list(shot.degraded) == [TEAM]
    assert "NUMA nodes 1 of its memory on 1 have none any more" in shot.degraded[TEAM]
    assert smaller.cgroups.read(CgroupDir("poduid-team/main"), "cpuset.mems") == "0"
    assert again.admit(pod("next", cpu="1", memory="1Gi"), "api").reason == ""
    again.remove(TEAM, 0)
    assert again.snapshot().degraded == {}
    assert unsound(smaller, again) == []


# --- the kernel -----------------------------------------------------------------------------


def test_after_a_reboot_the_cgroups_are_made_anew_before_anything_else_and_that_is_no_fault(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node, owner = populated()
    before = owner.snapshot().state
    caplog.set_level(logging.INFO)
    fresh = node.rebooted(node.topology)
    again = fresh.owner()
    assert again.snapshot().state == before
    assert unsound(fresh, again) == []
    assert [r.levelname for r in caplog.records if "booted since" in r.message] == ["INFO"]
    assert not [r for r in caplog.records if r.levelno > logging.INFO]


def test_cgroups_that_went_without_a_reboot_are_made_anew_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node, _ = populated()
    fresh = Node(node.config, node.topology, node.store)
    again = fresh.owner()
    assert unsound(fresh, again) == []
    assert any("cgroups had changed while no daemon ran" in text for text in caplog.messages)


# --- hotplug --------------------------------------------------------------------------------


def test_hotplug_shrinks_a_slice_and_gives_it_back_and_each_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node, owner = populated()
    caplog.set_level(logging.INFO)
    placed = cpus_of(owner)
    for _ in range(2):
        owner.hardware_changed(lambda: node.plug(topology(offline=frozenset({2, 7}))))
        assert cpus_of(owner) == placed | {"old/main": "1", "guest/main": "0,3"}
        assert unsound(node, owner) == []
    assert owner.snapshot().degraded == {OLD: ("CPUs 2 of its CPUs 1-2 are offline",)}
    owner.hardware_changed(lambda: node.plug(topology()))
    assert cpus_of(owner) == placed
    assert unsound(node, owner) == []
    told = [text for text in caplog.messages if "default/old" in text]
    assert told == [
        "degraded pod default/old: CPUs 2 of its CPUs 1-2 are offline",
        "pod default/old has all it holds again",
    ]


def test_what_is_released_or_admitted_while_a_cpu_is_offline_is_right_when_it_returns() -> None:
    node, owner = populated()
    owner.hardware_changed(lambda: node.plug(topology(offline=frozenset({2}))))
    owner.remove(OLD, 0)
    owner.admit(pod("next", cpu="1"), "api")
    owner.hardware_changed(lambda: node.plug(topology()))
    assert 2 in owner.snapshot().shared
    assert owner.snapshot().degraded == {}
    assert unsound(node, owner) == []


def test_a_machine_that_cannot_be_read_is_withdrawn_not_kept_stale() -> None:
    node, owner = populated()

    def look() -> None:
        raise OSError("sysfs is gone")

    owner.hardware_changed(look)  # type: ignore[arg-type]  # it never returns
    assert owner.is_withdrawn
    assert "sysfs is gone" in owner.snapshot().withdrawn
    verdict = owner.admit(pod("next", cpu="1"), "api")
    assert (verdict.reason, "sysfs is gone" in verdict.message) == ("DiscoveryError", True)
    assert owner.admit(pod("old"), "api").kind.value == "unchanged"
    owner.hardware_changed(lambda: node.machine)
    assert owner.snapshot().failures == ()
    assert owner.admit(pod("next", cpu="1"), "api").reason == ""


def test_an_internal_error_of_the_look_withdraws_the_machine_too() -> None:
    _, owner = populated()
    with pytest.raises(KeyError):
        owner.hardware_changed(lambda: NO_MACHINES["now"])
    assert owner.is_withdrawn


def test_a_state_of_another_program_without_records_is_released_as_a_whole() -> None:
    node = Node()
    node.owner()
    foreign = CpuState(default=CpuSet.parse("0,3-7"), entries={PodUid("u"): {"main": CpuSet.parse("1-2")}})
    node.store.files[CPU_FILE] = encode_cpu("static", foreign)
    owner = node.owner(recovery=StateRecovery.STRICT)
    assert owner.snapshot().state.cpu == CpuState(default=node.topology.online)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(
            Config(cpu_policy=CpuPolicy.NONE, memory_policy=MemoryPolicy.NONE), Config(), id="none to static"
        ),
        pytest.param(
            Config(), Config(cpu_policy=CpuPolicy.NONE, memory_policy=MemoryPolicy.NONE), id="static to none"
        ),
    ],
)
def test_processes_follow_their_container_into_the_cgroup_it_has_under_another_policy(
    before: Config, after: Config
) -> None:
    node = Node(before)
    owner = node.owner()
    owner.admit(pod("a"), "api")
    [former] = owner.snapshot().pods[PodUid("uid-a")].directories.values()
    node.cgroups.add_process(former, node.cgroups.spawn())
    again = node.configured(after)
    owner = again.owner()
    [here] = owner.snapshot().pods[PodUid("uid-a")].directories.values()
    assert here != former
    assert len(node.cgroups.procs(here)) == 1
    assert not node.cgroups.exists(former)
    assert owner.deviations() == ()
