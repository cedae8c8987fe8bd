"""What went wrong for other people with checkpoints and restarts: the cases A1 to A22."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from agent.admission import Admitted, Managers, admit, new_managers, restore
from agent.checkpoint.codec import decode_cpu, decode_memory, encode_cpu, encode_memory
from agent.checkpoint.store import CPU_FILE, MEMORY_FILE, MemoryStore
from agent.config import Config
from agent.config.model import StateRecovery
from agent.domain.idset import CpuSet
from agent.domain.pod import MEMORY, Pod, PodUid
from agent.domain.settings import CpuPolicy, Gates, MemoryPolicy, Settings, TopologyPolicy
from agent.domain.state import CpuState, NodeState, invariants
from agent.domain.topology import NodeId
from agent.errors import StateError
from agent.memorymanager.machinestate import machine_states_equal
from tests.containermanager.faults import Mode, faulty_node
from tests.containermanager.node import (
    GIB,
    Node,
    admitted_names,
    best_effort,
    budgeted,
    container_scope,
    limits,
    manifest,
    parsed,
    pod,
    topology,
    unsound,
)

UID = PodUid("uid-team")


def pod_level(cpu: str, memory: str, *containers: str) -> Pod:
    """A pod-level budget, containers without resources of their own or of 1 CPU and 1 GiB."""
    document = manifest("team")
    document["spec"] = {
        "resources": limits(cpu, memory),
        "containers": [
            {"name": name, "resources": limits("1", "1Gi") if name.startswith("own") else {}}
            for name in containers
        ],
    }
    return parsed(document)


def managers_on(cpus: int, policy: TopologyPolicy = TopologyPolicy.RESTRICTED) -> Managers:
    config, machine = Config(topology_policy=policy), topology(cpus, 1)
    return new_managers(config.settings(machine), machine)


def reread(managers: Managers, state: NodeState) -> NodeState:
    """The state after a restart."""
    cpu = decode_cpu(encode_cpu("static", state.cpu), gates=Gates()).state
    memory = decode_memory(encode_memory("Static", state.memory), gates=Gates()).state
    return restore(managers, NodeState(cpu=cpu, memory=memory))


@pytest.mark.parametrize("cpus", [4, 6])
def test_a1_readmitting_a_pod_with_its_own_cpus_changes_nothing(cpus: int) -> None:
    managers, team = managers_on(cpus), pod_level("2", "2Gi", "own", "pool")
    first = admit(managers, restore(managers, NodeState()), team)
    assert str(first.state.cpu.pod_entries[UID]) == "1-2"
    found = reread(managers, first.state)
    again = admit(managers, found, team)
    assert isinstance(again, Admitted)
    assert again.state == first.state
    assert str(again.state.cpu.default) == ("0,3" if cpus == 4 else "0,3-5")


def test_a2_readmitting_a_pod_with_its_own_memory_books_nothing_twice() -> None:
    managers, team = managers_on(4), pod_level("2", "2Gi", "own", "pool")
    first = admit(managers, restore(managers, NodeState()), team)
    again = admit(managers, reread(managers, first.state), team)
    node = again.state.memory.nodes[NodeId(0)]
    assert node.assignments == 1
    assert node.tables[MEMORY].reserved == 2 * GIB
    assert again.state.memory == first.state.memory


def test_a3_after_a_restart_the_hint_comes_from_the_pods_blocks_not_from_a_containers() -> None:
    managers, team = managers_on(4), pod_level("3", "3Gi", "own-1", "own-2", "pool")
    first = admit(managers, restore(managers, NodeState()), team)
    found = reread(managers, first.state)
    wishes = managers.memory.pod_wishes(found.memory, team)
    assert list(wishes) == [MEMORY]
    assert isinstance(admit(managers, found, team), Admitted)


@pytest.mark.parametrize("part", ["cpu", "memory", "both"])
def test_a4_a_pod_entry_without_container_entries_is_healed_as_a_whole(part: str) -> None:
    node = Node()
    owner = node.owner()
    owner.admit(parsed(budgeted("team")), "api")
    state, held = owner.snapshot().state, node.store.files
    if part != "memory":
        held[CPU_FILE] = encode_cpu("static", replace(state.cpu, entries={}))
    if part != "cpu":
        empty = node.managers.memory.restore(NodeState().memory)
        held[MEMORY_FILE] = encode_memory("Static", replace(empty, pod_entries=state.memory.pod_entries))
    again = node.owner()
    assert admitted_names(again) == ["team"]
    assert again.snapshot().state == state
    assert unsound(node, again) == []


STATE = CpuState(
    default=CpuSet.parse("0,5-7"),
    entries={PodUid("uid-1"): {"main": CpuSet.parse("1-2"), "side": CpuSet.parse("3-4")}},
    pod_entries={PodUid("uid-1"): CpuSet.parse("1-4")},
)


@pytest.mark.parametrize("version", [2, 3, 4])
def test_a6_files_of_older_kubelets_are_read_and_rewritten_as_v4(version: int) -> None:
    decoded = decode_cpu(encode_cpu("static", STATE, version=version), gates=Gates())
    assert decoded.version == version
    assert decoded.state == (STATE if version > 2 else replace(STATE, pod_entries={}))
    assert decode_cpu(encode_cpu("static", decoded.state), gates=Gates()).version == 4


def test_a6_an_older_kubelet_reads_our_file_and_loses_the_pod_entries_only() -> None:
    inline = json.loads(encode_cpu("static", STATE))
    as_v2 = {name: inline[name] for name in ("policyName", "defaultCpuSet", "entries", "checksum")}
    assert as_v2["checksum"] == 0, "a V2 reader accepts 0 without looking"
    decoded = decode_cpu(json.dumps(as_v2).encode(), gates=Gates())
    assert (decoded.version, decoded.state) == (2, replace(STATE, pod_entries={}))


class Recorder(MemoryStore):
    """Keeps every content that was on disk at some time."""

    def __init__(self) -> None:
        super().__init__()
        self.contents: list[bytes] = []

    def write(self, name: str, data: bytes) -> None:
        super().write(name, data)
        if name == CPU_FILE:
            self.contents.append(data)


def test_a7_at_no_time_are_cpus_on_disk_neither_shared_nor_given() -> None:
    store = Recorder()
    node = Node(container_scope(), store=store)
    owner = node.owner()
    for name in ("a", "b"):
        owner.admit(pod(name, cpu="1"), "api")
    owner.admit(parsed(budgeted("team")), "api")
    for uid in list(owner.snapshot().pods):
        owner.remove(uid, 0)
    assert len(set(store.contents)) == 6, "nobody, a, a b, a b team, b team, team"
    for content in store.contents:
        state = NodeState(cpu=decode_cpu(content, gates=Gates()).state)
        assert list(invariants(state, node.topology.online)) == []


@pytest.mark.parametrize("name", [CPU_FILE, MEMORY_FILE])
@pytest.mark.parametrize("damage", ["missing", "empty", "trailing"])
def test_a8_a_file_lost_in_a_power_cut_costs_no_pod_its_place(name: str, damage: str) -> None:
    node = Node()
    owner = node.owner()
    owner.admit(pod("a"), "api")
    before, good = owner.snapshot().state, node.store.files[name]
    node.store.remove(name)
    if damage != "missing":
        node.store.write(name, b"" if damage == "empty" else good + b'}"')
    again = node.owner()
    assert again.snapshot().state == before
    assert node.store.read(name) == good
    assert again.snapshot().problems[0].startswith(name)


@pytest.mark.parametrize("name", [CPU_FILE, MEMORY_FILE])
def test_a9_a_wrong_checksum_is_reported_with_the_file_and_both_sums(name: str) -> None:
    node = Node()
    owner = node.owner()
    owner.admit(pod("a"), "api")
    before = owner.snapshot().state
    document = json.loads(node.store.files[name])
    right, document["dataChecksum"] = document["dataChecksum"], 4711
    node.store.files[name] = json.dumps(document).encode()
    again = node.owner()
    assert again.snapshot().state == before
    [problem] = again.snapshot().problems
    assert problem.startswith(name)
    assert "the stored checksum is 4711" in problem
    assert f"the content's is {right}" in problem


@pytest.mark.parametrize("with_pod", [False, True], ids=["nothing exclusive", "a pod with CPUs"])
def test_a11_another_policy_than_the_files_is_no_reason_to_stay_down(with_pod: bool) -> None:
    off = Config(cpu_policy=CpuPolicy.NONE, memory_policy=MemoryPolicy.NONE)
    node = Node()
    owner = node.owner()
    if with_pod:
        owner.admit(pod("a"), "api")
    for config in (off, node.config):
        node = Node(config, node.topology, node.store)
        owner = node.owner()
        assert admitted_names(owner) == (["a"] if with_pod else [])
        assert any("differs from state checkpoint policy" in text for text in owner.snapshot().problems)
    assert unsound(node, owner) == []


def shared_only(default: str, machine_cpus: int) -> Node:
    """A node whose CPU file lists just a shared pool."""
    node = Node(Config(), topology(machine_cpus, 1))
    node.owner()
    state = CpuState(default=CpuSet.parse(default))
    node.store.files[CPU_FILE] = encode_cpu("static", state)
    return node


@pytest.mark.parametrize(
    ("default", "cpus"),
    [
        pytest.param("0,2-3", 4, id="a12-a CPU is nowhere"),
        pytest.param("0", 4, id="a13-the node grew"),
        pytest.param("0-7", 7, id="a14-the node shrank"),
    ],
)
def test_a12_a13_a14_the_shared_pool_is_what_is_there_and_the_difference_is_told(
    default: str, cpus: int
) -> None:
    node = shared_only(default, cpus)
    with pytest.raises(StateError, match="doesn't match with CPUs in state"):
        node.owner(recovery=StateRecovery.STRICT)
    owner = node.owner()
    assert owner.snapshot().state.cpu.default == node.topology.online
    assert any(default in problem for problem in owner.snapshot().problems)
    assert unsound(node, owner) == []


def test_a16_memory_that_drifts_between_boots_moves_no_pod() -> None:
    node = Node()
    owner = node.owner()
    owner.admit(pod("a"), "api")
    before = owner.snapshot().state
    nodes = tuple(
        replace(one, memory=one.memory + (43 << 20) * (1 if one.id else -1)) for one in node.topology.nodes
    )
    drifted = node.rebooted(replace(node.topology, nodes=nodes))
    again = drifted.owner()
    state = again.snapshot().state
    assert state.cpu == before.cpu
    assert state.memory.entries == before.memory.entries
    assert state.memory.nodes[NodeId(1)].tables[MEMORY].total == 4 * GIB + (43 << 20)
    assert unsound(drifted, again) == []


def test_a14_an_exclusive_container_keeps_the_rest_of_its_cpus_and_is_degraded() -> None:
    node = Node(container_scope())
    owner = node.owner()
    owner.admit(pod("a"), "api")
    owner.admit(pod("b"), "api")
    before = owner.snapshot().state.cpu.entries
    lost = max(before[PodUid("uid-a")]["main"])
    smaller = node.rebooted(topology(offline=frozenset({lost})))
    again = smaller.owner()
    assert again.snapshot().state.cpu.entries == before
    assert list(again.snapshot().degraded) == ["uid-a"]
    assert len(again.snapshot().cpus(PodUid("uid-a"), "main")) == 1
    assert unsound(smaller, again) == []


@pytest.mark.parametrize("mode", [Mode.ONCE, Mode.LASTING])
def test_a19_a_disk_that_is_full_leaves_no_ghost(mode: Mode) -> None:
    node, fuse = faulty_node()
    owner = node.owner()
    before = owner.snapshot().state
    fuse.arm(0, mode)
    verdict = owner.admit(pod("a"), "api")
    assert verdict.reason == "StorageError"
    assert owner.snapshot().state == before
    assert admitted_names(owner) == []
    fuse.disarm()
    owner.admit(pod("b"), "api")
    assert admitted_names(owner) == ["b"]


def test_a20_what_a_pod_held_is_released_at_once_on_disk_too() -> None:
    node = Node()
    owner = node.owner()
    fresh = owner.snapshot().state
    owner.admit(pod("a"), "api")
    owner.admit(parsed(best_effort("guest")), "api")
    owner.remove(PodUid("uid-a"), 0)
    stored = decode_cpu(node.store.files[CPU_FILE], gates=Gates()).state
    assert (stored.entries, stored.default) == ({}, fresh.cpu.default)
    memory = decode_memory(node.store.files[MEMORY_FILE], gates=Gates()).state
    assert memory.entries == {}
    assert machine_states_equal(memory.nodes, fresh.memory.nodes)


def test_a11_policy_none_keeps_nothing() -> None:
    managers = new_managers(Settings(), topology())
    state = restore(managers, NodeState())
    assert admit(managers, state, pod("a")).state == NodeState()


@pytest.mark.parametrize("document", [manifest("a"), budgeted("a")], ids=["a slice", "a budget"])
def test_a22_a_container_that_is_killed_and_comes_back_in_place_finds_what_it_had(
    document: dict[str, object],
) -> None:
    node = Node()
    owner = node.owner()
    owner.admit(parsed(document), "api")
    owner.admit(pod("b", cpu="1"), "api")
    before, directory = owner.snapshot().state, owner.snapshot().pods[PodUid("uid-a")].directories["main"]
    for _ in range(3):
        pid = node.cgroups.spawn()
        node.cgroups.add_process(directory, pid)
        owner.containers.changed([directory])
        allowed = node.cgroups.effective_cpus(directory)
        assert allowed == owner.snapshot().cpus(PodUid("uid-a"), "main")
        node.cgroups.exit(pid)
        owner.containers.changed([directory])
        assert owner.reconcile() == 0
        assert owner.snapshot().state == before
    assert owner.snapshot().lives[PodUid("uid-a")]["main"].restarts == 2
    assert unsound(node, owner) == []


def test_a22_a_late_removal_of_a_pod_does_not_free_another_of_its_name() -> None:
    node = Node()
    owner = node.owner()
    owner.admit(pod("a", uid="uid-1"), "api")
    owner.remove(PodUid("uid-1"), 0)
    owner.admit(pod("a", uid="uid-2"), "api")
    before = owner.snapshot().state
    owner.remove(PodUid("uid-1"), 0)
    assert owner.snapshot().state == before
    assert list(owner.snapshot().pods) == ["uid-2"]
    assert unsound(node, owner) == []
