"""Random histories: nothing is ever given twice, and nothing is lost."""

from __future__ import annotations

from hypothesis import settings as profile
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from agent.cpumanager.static import StaticCpuManager
from agent.domain.hints import Hint
from agent.domain.idset import NO_CPUS, NodeMask
from agent.domain.pod import Container, Pod, PodUid
from agent.domain.state import CpuState, NodeState, invariants
from agent.errors import AdmissionError
from tests.cpumanager.build import NO_HINT, container, fresh, machine, pod, settings, static

OPTIONS = [
    {},
    {"full-pcpus-only": "true"},
    {"strict-cpu-reservation": "true"},
    {"distribute-cpus-across-numa": "true"},
    {"distribute-cpus-across-cores": "true", "strict-cpu-reservation": "true"},
    {"prefer-align-cpus-by-uncorecache": "true"},
]
KINDS = {"init": 0, "sidecar": 0, "app": 1}

containers = st.lists(
    st.tuples(st.sampled_from(list(KINDS)), st.sampled_from(["", "1", "2", "3", "4", "500m"])),
    min_size=1,
    max_size=4,
)


def built(uid: str, parts: list[tuple[str, str]], budget: str) -> Pod:
    ordered = sorted(parts, key=lambda part: KINDS[part[0]])
    named: list[Container] = [container(f"c{n}", cpu, kind) for n, (kind, cpu) in enumerate(ordered)]
    return pod(uid, *named, cpu=budget)


class Histories(RuleBasedStateMachine):
    """Pods come and go on one machine."""

    manager: StaticCpuManager
    state: CpuState

    @initialize(
        options=st.sampled_from(OPTIONS),
        threads=st.sampled_from([1, 2]),
        offline=st.frozensets(st.integers(8, 15), max_size=2),
    )
    def start(self, options: dict[str, str], threads: int, offline: frozenset[int]) -> None:
        topology = machine(16, nodes=2, sockets=2, threads=threads, uncores=4, offline=offline)
        self.manager = static(topology, settings(options, reserved="1"))
        self.state = fresh(self.manager)
        self.next = 0

    @rule(
        parts=containers,
        budget=st.sampled_from(["", "2", "4", "6", "1500m"]),
        hint=st.sampled_from([NO_HINT, *(Hint(NodeMask(bits), preferred=True) for bits in (1, 2, 3))]),
    )
    def admit(self, parts: list[tuple[str, str]], budget: str, hint: Hint) -> None:
        self.next += 1
        one = built(f"u{self.next}", parts, budget)
        before = self.state
        try:
            after = self.admitted(one, hint)
        except AdmissionError:
            return
        assert self.manager.remove_pod(after, one.uid) == before
        self.state = after
        assert self.admitted(one, hint) == after

    def admitted(self, one: Pod, hint: Hint) -> CpuState:
        if one.has_pod_level_resources:
            return self.manager.allocate_pod(self.state, one, hint).state
        state, reuse = self.state, NO_CPUS
        for item in one.containers:
            outcome = self.manager.allocate(state, one, item, hint, reuse)
            state, reuse = outcome.state, outcome.reuse
        return state

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        held = sorted((uid, name) for uid, names in self.state.entries.items() for name in names)
        if held:
            uid, name = data.draw(st.sampled_from(held))
            self.state = self.manager.remove_container(self.state, PodUid(uid), name)

    @rule()
    def restart(self) -> None:
        assert self.manager.restore(self.state) == self.state

    @invariant()
    def sound(self) -> None:
        strict = self.manager.reserved if self.manager.options.strict_reservation else NO_CPUS
        online = self.manager.topology.online
        assert list(invariants(NodeState(cpu=self.state), online, strict)) == []
        assert self.state.default


TestHistories = Histories.TestCase
TestHistories.settings = profile(max_examples=40, stateful_step_count=20, deadline=None)
