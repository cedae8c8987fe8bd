"""Any history on any machine under any settings leaves a sound state, and undoing is exact."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agent.admission import (
    Admitted,
    Managers,
    adapted,
    admit,
    new_managers,
    remove_container,
    remove_pod,
    restore,
    start_container,
)
from agent.checkpoint.codec import decode_cpu, decode_memory, encode_cpu, encode_memory
from agent.checkpoint.podrecord import PodRecord, record_of
from agent.containermanager.recovery import Remembered, readmitted
from agent.domain.idset import CpuSet
from agent.domain.pod import Pod, PodUid
from agent.domain.settings import Settings
from agent.domain.state import ContainerCpus, NodeState
from agent.domain.topology import Topology
from agent.memorymanager.machinestate import machine_states_equal
from tests.properties.choices import pods, settings_for
from tests.properties.machines import machines, with_online
from tests.properties.soundness import faults

Operation = Callable[[NodeState], NodeState]
MOST_PODS = 6


def written(settings: Settings, state: NodeState) -> tuple[bytes, bytes]:
    """Both checkpoint files."""
    return (
        encode_cpu(settings.cpu_policy.value, state.cpu),
        encode_memory(settings.memory_policy.value, state.memory),
    )


def read(settings: Settings, files: tuple[bytes, bytes]) -> NodeState:
    return NodeState(
        cpu=decode_cpu(files[0], gates=settings.gates).state,
        memory=decode_memory(files[1], gates=settings.gates).state,
    )


def assert_same(one: NodeState, other: NodeState) -> None:
    """Equal; only inside a group of NUMA nodes the same bytes may lie elsewhere, as in the kubelet."""
    assert one.cpu == other.cpu
    assert one.memory.entries == other.memory.entries
    assert one.memory.pod_entries == other.memory.pod_entries
    assert machine_states_equal(one.memory.nodes, other.memory.nodes)
    if all(len(node.cells) == 1 for node in other.memory.nodes.values()):
        assert one == other


def entries_of(state: NodeState, uid: PodUid) -> tuple[ContainerCpus, tuple[CpuSet, ...], Any, Any]:
    """What the pod holds: CPUs and memory, its containers' and its own."""
    own = state.cpu.pod_entries.get(uid)
    return (
        state.cpu.entries.get(uid, {}),
        () if own is None else (own,),
        state.memory.entries.get(uid),
        state.memory.pod_entries.get(uid),
    )


class Histories(RuleBasedStateMachine):
    """Pods come, start, end and go; numalet restarts."""

    @initialize(data=st.data(), topology=machines())
    def boot(self, data: st.DataObject, topology: Topology) -> None:
        self.machine = topology
        self.settings = data.draw(settings_for(topology), label="settings")
        self.managers: Managers = new_managers(self.settings, topology)
        self.pods: dict[PodUid, Pod] = {}
        self.whole: set[PodUid] = set()
        self.born = 0
        self.start_over(restore(self.managers, NodeState()))

    def start_over(self, state: NodeState) -> None:
        self.origin = self.state = state
        self.history: list[Operation] = []

    def do(self, operation: Operation) -> None:
        self.history.append(operation)
        self.state = operation(self.state)

    @precondition(lambda self: len(self.pods) < MOST_PODS)
    @rule(data=st.data())
    def admit(self, data: st.DataObject) -> None:
        self.born += 1
        pod = data.draw(pods(f"u{self.born}"), label="pod")
        before, managers = self.state, self.managers
        decision = admit(managers, before, pod)
        self.do(lambda state: admit(managers, state, pod).state)
        if not isinstance(decision, Admitted):
            assert decision.state == before
            return
        self.pods[pod.uid] = pod
        self.whole.add(pod.uid)
        self.assert_kept(pod)
        assert_same(remove_pod(managers, self.state, pod.uid), before)

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def remove_container(self, data: st.DataObject) -> None:
        uid, name = self.some_container(data)
        self.whole.discard(uid)
        managers = self.managers
        self.do(lambda state: remove_container(managers, state, uid, name))
        assert remove_container(managers, self.state, uid, name) == self.state

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def start_container(self, data: st.DataObject) -> None:
        uid, name = self.some_container(data)
        self.whole.discard(uid)
        managers, pod = self.managers, self.pods[uid]
        self.do(lambda state: start_container(managers, state, pod, name))

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def remove_pod(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.pods)), label="uid")
        del self.pods[uid]
        self.whole.discard(uid)
        managers = self.managers
        self.do(lambda state: remove_pod(managers, state, uid))
        assert uid not in self.state.pods()
        if not self.pods:
            assert self.state == restore(managers, NodeState())

    @rule()
    def restart(self) -> None:
        """What was written is what is read, the managers accept it, and re-admission moves nothing."""
        found = read(self.settings, written(self.settings, self.state))
        assert found == self.state
        self.managers = new_managers(self.settings, self.managers.machine)
        managers = self.managers
        self.do(lambda state: restore(managers, state))
        assert self.state == found
        for uid in sorted(self.whole):
            self.assert_kept(self.pods[uid])

    def assert_kept(self, pod: Pod) -> None:
        """The pod that holds its resources stays where it is, also if it is decided on anew.

        With align-by-socket the latter need not hold: its CPUs may be on another node of the socket
        than the hint's, and from CPUs alone the old hint cannot be told. So recovery does not ask.
        """
        recovered = readmitted(self.managers, self.state, [Remembered(pod, self.record(pod))])
        assert recovered.kept
        assert recovered.state == self.state
        if "align-by-socket" not in self.settings.cpu_options:
            assert admit(self.managers, self.state, pod).state == self.state

    @rule(data=st.data())
    def hotplug(self, data: st.DataObject) -> None:
        """CPUs go while numalet is down: every pod keeps what it holds, and with the CPUs comes the old state."""
        reserved, before = self.managers.cpu.reserved, self.state
        gone = data.draw(st.frozensets(st.sampled_from(list(self.machine.online)), max_size=2), label="gone")
        online = self.machine.online - (CpuSet.of(gone) - reserved)
        settings = replace(self.settings, reserved_cpus=reserved or None)
        managers = new_managers(settings, with_online(self.machine, online))
        known = [Remembered(self.pods[uid], self.record(self.pods[uid])) for uid in sorted(self.whole)]
        recovered = readmitted(managers, adapted(managers, before), known)
        assert recovered.lost == ()
        for uid in self.pods:
            assert entries_of(recovered.state, uid) == entries_of(before, uid)
        assert recovered.state.cpu.default == before.cpu.default & online
        assert adapted(self.managers, recovered.state) == before

    def record(self, pod: Pod) -> PodRecord:
        return record_of(
            pod, self.state, gates=self.settings.gates, boot_id="b", admitted_at=pod.uid, source="test"
        )

    def some_container(self, data: st.DataObject) -> tuple[PodUid, str]:
        uid = data.draw(st.sampled_from(sorted(self.pods)), label="uid")
        name = data.draw(st.sampled_from([c.name for c in self.pods[uid].containers]), label="container")
        return uid, name

    @invariant()
    def sound(self) -> None:
        assert list(faults(self.managers, self.state, self.pods.values())) == []

    def teardown(self) -> None:
        """The same history gives the same bytes."""
        if hasattr(self, "state"):
            state = self.origin
            for operation in self.history:
                state = operation(state)
            assert written(self.settings, state) == written(self.settings, self.state)


TestHistories = Histories.TestCase
TestHistories.settings = hypothesis_settings(stateful_step_count=30)
