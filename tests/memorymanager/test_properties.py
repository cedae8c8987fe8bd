"""Invariants over any history of admissions, starts, removals and restarts."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings as hypothesis_settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agent.domain.hints import Hint, Hints, Wishes
from agent.domain.idset import NO_CPUS, NodeMask
from agent.domain.pod import MEMORY, Container, ContainerKind, Pod, PodUid, Resources
from agent.domain.state import MemoryState, NodeState, invariants
from agent.errors import AdmissionError
from agent.memorymanager.machinestate import (
    bookable_machine_state,
    expected_machine_state,
    machine_states_equal,
)
from agent.memorymanager.policy import NO_REUSE
from tests.memorymanager.build import NO_HINT, manager, pod, resources

SIZES = st.integers(1, 12)
KINDS = st.sampled_from(ContainerKind)


@st.composite
def containers(draw: st.DrawFn, *, may_share: bool) -> tuple[Container, ...]:
    """Up to four containers in spec order: init containers and sidecars first."""
    kinds = sorted(draw(st.lists(KINDS, max_size=3)), key=lambda kind: kind is ContainerKind.APP)
    made = []
    for i, kind in enumerate((*kinds, ContainerKind.APP)):
        shares = may_share and draw(st.booleans())
        stated = Resources() if shares else resources(draw(SIZES), draw(st.sampled_from((0, 0, 2))))
        made.append(Container(name=f"c{i}", kind=kind, resources=stated))
    return tuple(made)


class Histories(RuleBasedStateMachine):
    """Hints are the manager's own, or none: another manager's could cut a group in two, as in the kubelet."""

    @initialize(
        memory=st.lists(st.integers(0, 30), min_size=1, max_size=4),
        pages=st.lists(st.integers(0, 4), min_size=4, max_size=4),
    )
    def start(self, memory: list[int], pages: list[int]) -> None:
        self.manager = manager(memory, pages[: len(memory)])
        self.state = self.manager.restore(MemoryState())
        self.pods: dict[PodUid, Pod] = {}
        self.count = 0

    def _uid(self) -> str:
        self.count += 1
        return f"u{self.count}"

    @rule(made=containers(may_share=False), data=st.data())
    def admit_by_container(self, made: tuple[Container, ...], data: st.DataObject) -> None:
        one = pod(*made, uid=self._uid())
        self._admit(one, data)

    @rule(made=containers(may_share=True), size=st.integers(8, 40), data=st.data())
    def admit_by_container_within_a_budget(
        self, made: tuple[Container, ...], size: int, data: st.DataObject
    ) -> None:
        self._admit(pod(*made, uid=self._uid(), budget=resources(size)), data)

    def _admit(self, one: Pod, data: st.DataObject) -> None:
        before, state, reuse = self.state, self.state, NO_REUSE
        try:
            for container in one.containers:
                hint = _drawn_hint(self.manager.wishes(state, one, container, reuse), data)
                outcome = self.manager.allocate(state, one, container, hint, reuse)
                state, reuse = outcome.state, outcome.reuse
        except AdmissionError:
            self._forgets(one.uid, state, before)
        else:
            self._forgets(one.uid, state, before)
            self.state, self.pods[one.uid] = state, one

    @rule(
        made=containers(may_share=True), size=st.integers(8, 40), huge=st.sampled_from((0, 6)), data=st.data()
    )
    def admit_as_one(self, made: tuple[Container, ...], size: int, huge: int, data: st.DataObject) -> None:
        one = pod(*made, uid=self._uid(), budget=resources(size, huge))
        before = self.state
        try:
            hint = _drawn_hint(self.manager.pod_wishes(before, one), data)
            after = self.manager.allocate_pod(before, one, hint).state
        except AdmissionError:
            return
        assert self.manager.allocate_pod(after, one, hint).state == after
        self._forgets(one.uid, after, before)
        self.state, self.pods[one.uid] = after, one

    def _forgets(self, uid: PodUid, after: MemoryState, before: MemoryState) -> None:
        """Removing the pod leads back; within a group bytes may have moved to another node."""
        back = self.manager.remove_pod(after, uid)
        assert (back.entries, back.pod_entries) == (before.entries, before.pod_entries)
        assert machine_states_equal(back.nodes, before.nodes)

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def start_container(self, data: st.DataObject) -> None:
        one = self.pods[data.draw(st.sampled_from(sorted(self.pods)))]
        self.state = self.manager.started(self.state, one, data.draw(st.sampled_from(one.containers)))

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def remove_container(self, data: st.DataObject) -> None:
        one = self.pods[data.draw(st.sampled_from(sorted(self.pods)))]
        name = data.draw(st.sampled_from(one.containers)).name
        self.state = self.manager.remove_container(self.state, one.uid, name)

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def remove_pod(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.pods)))
        self.state = self.manager.remove_pod(self.state, uid)
        del self.pods[uid]

    @invariant()
    def is_sound(self) -> None:
        if hasattr(self, "manager"):
            assert not list(invariants(NodeState(memory=self.state), NO_CPUS))

    @invariant()
    def books_at_once_what_one_after_another_amounts_to(self) -> None:
        if hasattr(self, "manager"):
            initial = self.manager.initial
            assert bookable_machine_state(initial, self.state) == expected_machine_state(initial, self.state)
            assert self.manager.adapted(self.state) is self.state

    @invariant()
    def can_be_restored(self) -> None:
        if hasattr(self, "manager"):
            assert self.manager.restore(self.state) == self.state

    def teardown(self) -> None:
        if hasattr(self, "manager"):
            for uid in self.pods:
                self.state = self.manager.remove_pod(self.state, uid)
            assert self.state == MemoryState(nodes=self.manager.initial)


def _drawn_hint(wishes: Wishes, data: st.DataObject) -> Hint:
    """No hint, or one of the manager's own."""
    wish = wishes.get(MEMORY)
    if not isinstance(wish, Hints) or data.draw(st.booleans()):
        return NO_HINT
    return Hint(NodeMask(data.draw(st.sampled_from((*wish.preferred, *wish.other)))), preferred=False)


TestHistories = Histories.TestCase
TestHistories.settings = hypothesis_settings(max_examples=60, stateful_step_count=25, deadline=None)
