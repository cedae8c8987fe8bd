"""What a kubelet's pods keep, and what some of them are given besides, when their node is taken over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from agent.checkpoint.codec import encode_cpu, encode_memory
from agent.checkpoint.podrecord import encode_record
from agent.checkpoint.store import CPU_FILE, MEMORY_FILE, record_name
from agent.containermanager.handover import Stamp, adopted
from agent.domain.idset import CpuSet
from agent.domain.pod import Pod, PodUid
from agent.domain.state import NodeState, without_pod
from tests.containermanager.node import Node, budgeted, parsed, pod, unsound

STAMP = Stamp("boot", "2026-01-01T00:00:00Z", "import:/var/lib/kubelet")
OWN, LATE = PodUid("uid-own"), PodUid("uid-late")


def held(node: Node, *pods: Pod) -> NodeState:
    """What these pods hold after they were admitted one by one."""
    owner = Node(node.config, node.topology).owner()
    for one in pods:
        owner.admit(one, "api")
    return owner.snapshot().state


def without_cpus(node: Node, state: NodeState, uid: PodUid) -> NodeState:
    """The state of a node where the pod came while no CPU policy was on."""
    cpu = replace(
        state.cpu,
        entries=without_pod(state.cpu.entries, uid),
        pod_entries=without_pod(state.cpu.pod_entries, uid),
    )
    return NodeState(cpu=node.managers.cpu.adapted(cpu), memory=state.memory)


def without_memory(node: Node, state: NodeState, uid: PodUid) -> NodeState:
    memory = replace(
        state.memory,
        entries=without_pod(state.memory.entries, uid),
        pod_entries=without_pod(state.memory.pod_entries, uid),
    )
    return NodeState(cpu=state.cpu, memory=node.managers.memory.adapted(memory))


@pytest.mark.parametrize("late", [pod("late", cpu="3"), parsed(budgeted("late"))], ids=["slice", "budget"])
@pytest.mark.parametrize("lacking", [without_cpus, without_memory])
def test_a_pod_that_held_nothing_of_a_resource_is_given_it_and_no_other_pod_has_less(
    late: Pod, lacking: Callable[[Node, NodeState, PodUid], NodeState]
) -> None:
    node, own = Node(), pod("own")
    before = lacking(node, held(node, own, late), LATE)
    kept, records = adopted(before, (own, late), node.machine, STAMP)
    assert kept.cpu.entries[OWN] == before.cpu.entries[OWN] == {"main": CpuSet.parse("1-2")}
    assert kept.memory.entries[OWN] == before.memory.entries[OWN]
    assert (LATE in kept.cpu.entries, LATE in kept.memory.entries) == (True, True)
    assert kept.cpu.default | kept.cpu.held == node.topology.online
    assert kept.cpu.default.isdisjoint(kept.cpu.held)
    node.store.files = {
        CPU_FILE: encode_cpu("static", kept.cpu),
        MEMORY_FILE: encode_memory("Static", kept.memory),
        **{record_name(record.uid): encode_record(record) for record in records},
    }
    owner = node.owner()
    assert owner.snapshot().state == kept
    assert owner.snapshot().problems == ()
    assert unsound(node, owner) == []


def test_late_cpus_come_from_what_nobody_holds_and_only_if_there_are_enough() -> None:
    node, own, late = Node(), pod("own", cpu="3"), pod("late", cpu="4")
    before = without_cpus(node, held(node, own, late), LATE)
    kept, _ = adopted(before, (own, late), node.machine, STAMP)
    assert kept.cpu == replace(
        before.cpu,
        default=CpuSet.parse("0"),
        entries={OWN: {"main": CpuSet.parse("1-3")}, LATE: {"main": CpuSet.parse("4-7")}},
    )
    wider = pod("late", cpu="5")
    assert adopted(before, (own, wider), node.machine, STAMP)[0] == before
