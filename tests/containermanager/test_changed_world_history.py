"""CPUs come and go, pods come and go, the daemon restarts: nothing is shared twice, and no slice moves."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agent.config import Config
from agent.containermanager import VerdictKind
from agent.domain.idset import CpuSet
from agent.domain.pod import Pod, PodUid
from agent.domain.settings import TopologyScope
from tests.containermanager.node import (
    Node,
    best_effort,
    budgeted,
    parsed,
    pod,
    topology,
    unsound,
)

CPUS = 8
ALWAYS_ONLINE = 0
"""The reserved CPU: a machine that loses its whole shared pool is another story."""


class ChangingWorld(RuleBasedStateMachine):
    """The model knows which slice each pod was given, and which CPUs are online."""

    @initialize(by_pod=st.booleans())
    def boot(self, *, by_pod: bool) -> None:
        self.offline: frozenset[int] = frozenset()
        self.given: dict[PodUid, object] = {}
        self.number = 0
        scope = TopologyScope.POD if by_pod else TopologyScope.CONTAINER
        self.node = Node(Config(reserved_cpus=CpuSet.of([ALWAYS_ONLINE]), topology_scope=scope))
        self.owner = self.node.owner()

    def admit(self, new: Pod) -> None:
        self.number += 1
        if self.owner.admit(new, "api").kind is VerdictKind.ADMITTED:
            self.given[new.uid] = self.held(new.uid)
            assert self.owner.snapshot().state.cpu.held <= self.node.topology.online | self.kept()

    def kept(self) -> CpuSet:
        return CpuSet.of(self.offline)

    def held(self, uid: PodUid) -> object:
        cpu, memory = self.owner.snapshot().state.cpu, self.owner.snapshot().state.memory
        return (
            cpu.entries.get(uid),
            cpu.pod_entries.get(uid),
            memory.entries.get(uid),
            memory.pod_entries.get(uid),
        )

    @rule(cpus=st.integers(1, 3))
    def a_pod_of_one_container(self, cpus: int) -> None:
        self.admit(pod(f"p{self.number}", cpu=str(cpus), memory="64Mi"))

    @rule(cpus=st.integers(3, 5))
    def a_pod_with_a_budget(self, cpus: int) -> None:
        self.admit(parsed(budgeted(f"p{self.number}", cpu=str(cpus), memory="2Gi")))

    @rule()
    def a_pod_that_shares(self) -> None:
        self.admit(parsed(best_effort(f"p{self.number}")))

    @precondition(lambda self: self.given)
    @rule(data=st.data())
    def a_pod_goes(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.given)))
        self.owner.remove(uid, 0)
        del self.given[uid]

    @rule(offline=st.frozensets(st.integers(ALWAYS_ONLINE + 1, CPUS - 1), max_size=4))
    def cpus_come_and_go(self, offline: frozenset[int]) -> None:
        self.offline = offline
        self.owner.hardware_changed(lambda: self.node.plug(topology(offline=offline)))

    @rule()
    def the_daemon_restarts(self) -> None:
        self.owner = self.node.owner()
        assert self.owner.snapshot().problems == ()

    @rule(offline=st.frozensets(st.integers(ALWAYS_ONLINE + 1, CPUS - 1), max_size=4))
    def the_machine_reboots(self, offline: frozenset[int]) -> None:
        self.offline = offline
        self.node = self.node.rebooted(topology(offline=offline))
        self.owner = self.node.owner()

    @invariant()
    def nothing_moves_and_nothing_is_shared_twice(self) -> None:
        shot = self.owner.snapshot()
        assert shot.rejected.keys() & self.given.keys() == set()
        assert {uid: self.held(uid) for uid in shot.pods} == self.given
        assert shot.state.cpu.default == self.node.topology.online - shot.state.cpu.held
        assert unsound(self.node, self.owner) == []
        assert shot.failures == ()

    @invariant()
    def exactly_the_pods_that_lack_a_cpu_say_so(self) -> None:
        shot, offline = self.owner.snapshot(), self.kept()
        cpu = shot.state.cpu
        short = {
            uid
            for uid in shot.pods
            if not all(
                cpus.isdisjoint(offline)
                for cpus in (*cpu.entries.get(uid, {}).values(), cpu.pod_entries.get(uid, CpuSet()))
            )
        }
        said = {uid for uid, why in shot.degraded.items() if any("are offline" in one for one in why)}
        assert said == short


ChangingWorld.TestCase.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
TestChangingWorld = ChangingWorld.TestCase
