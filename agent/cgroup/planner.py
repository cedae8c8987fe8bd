"""The wanted tree part by part: a part whose inputs are the same objects is not planned again.

A pod is planned from facts that hold nothing of other pods, so that what it depends on is what these
facts are made of: the pod, its own four entries, and the ground all pods share. Of what the node has in
common, only the shared pool changes from one admission to the next; whether a pod depends on it is
seen while it is planned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from agent.cgroup import layout
from agent.cgroup.facts import Facts
from agent.cgroup.layout import ROOT, CgroupDir
from agent.cgroup.partitionplan import exclusive_of, exposed_of
from agent.cgroup.plan import burstable_request, plan_base, plan_pod
from agent.cgroup.tree import EmptyCpuset, Wanted
from agent.cgroup.units import MilliCpu
from agent.domain.idset import CpuSet, union
from agent.domain.pod import Pod, PodUid
from agent.domain.qos import qos_class
from agent.domain.state import CpuState, MemoryState, NodeState, changed_pods

V = TypeVar("V")

MakeFacts = Callable[[NodeState, Mapping[PodUid, Pod]], Facts]
"""Facts about these pods alone, which hold these entries."""

_NOTHING_HELD: Final[tuple[Mapping[PodUid, object], ...]] = ({}, {}, {}, {})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    pod: Pod
    directory: CgroupDir
    wanted: Wanted
    shared: bool
    """Whether it depends on the node shared pool."""
    request: MilliCpu
    exclusive: CpuSet
    exposed: CpuSet

    @property
    def is_plain(self) -> bool:
        """Whether nothing but `parts` and the sum of the requests ever tells of it."""
        return not (self.exclusive or self.exposed or self.wanted.problems or self.pod.bindings)


@dataclass(slots=True)
class Planner:
    """What was planned last, by pod; ``parts`` is the wanted tree by `layout.group_of`."""

    parts: dict[CgroupDir, Wanted] = field(default_factory=dict)
    _pods: dict[PodUid, _Part] = field(default_factory=dict)
    _notable: dict[PodUid, _Part] = field(default_factory=dict)
    """Those that are not plain: few, mostly, so that what they have is gathered without a look at all."""
    _sharing: set[PodUid] = field(default_factory=set)
    """The pods whose part depends on the node shared pool."""
    _burstable: int = 0
    """The sum of the requests."""
    _ground: object = None
    _inputs: tuple[Mapping[PodUid, object], ...] = ({}, *_NOTHING_HELD)
    _shared: CpuSet | None = None
    _base: tuple[MilliCpu, CpuSet, CpuSet] | None = None
    """What the part above the pods depends on."""

    def update(
        self, ground: object, state: NodeState, pods: Mapping[PodUid, Pod], make: MakeFacts
    ) -> frozenset[CgroupDir]:
        """Plan for this state; returns the groups whose part is another one now.

        ``ground`` is equal only where ``make`` goes by the same machine, settings and kernel. Raises
        ValueError as `plan` does.
        """
        if self._ground != ground:
            self._inputs, self._base = (self._pods, *_NOTHING_HELD), None
        self._ground = None  # until it is done
        everything = make(NodeState(cpu=CpuState(default=state.cpu.default)), {})
        touched = {
            directory
            for uid in self._stale(state, pods, everything.shared_cpus)
            for directory in self._replan(state, pods.get(uid), uid, make)
        }
        exclusive = union(part.exclusive for part in self._notable.values())
        base = (MilliCpu(self._burstable), everything.shared_cpus, exclusive)
        if base != self._base:
            self._base = base
            self.parts[ROOT] = plan_base(everything, MilliCpu(self._burstable), exclusive)
            touched.add(ROOT)
        self._ground = ground
        return frozenset(touched)

    @property
    def exposed(self) -> CpuSet:
        """The CPUs that were to be in partitions and are in none."""
        return union(part.exposed for part in self._notable.values())

    @property
    def bound(self) -> list[Pod]:
        """The pods with bound containers, by uid."""
        return [part.pod for _, part in sorted(self._notable.items()) if part.pod.bindings]

    @property
    def problems(self) -> list[EmptyCpuset]:
        """The cgroups that cannot be as they are to be."""
        parts = (self.parts[ROOT], *(part.wanted for part in self._notable.values()))
        return [problem for part in parts for problem in part.problems]

    def _stale(self, state: NodeState, pods: Mapping[PodUid, Pod], shared: CpuSet) -> set[PodUid]:
        """The pods that are not planned from these inputs."""
        cpu, memory = state.cpu, state.memory
        inputs = (pods, cpu.entries, cpu.pod_entries, memory.entries, memory.pod_entries)
        stale = {uid for old, new in zip(self._inputs, inputs, strict=True) for uid in changed_pods(old, new)}
        if shared != self._shared:
            stale |= self._sharing
        self._inputs, self._shared = inputs, shared
        # An entry may belong to a pod that is not to be planned.
        return {uid for uid in stale if uid in pods or uid in self._pods}

    def _replan(
        self, state: NodeState, pod: Pod | None, uid: PodUid, make: MakeFacts
    ) -> tuple[CgroupDir, ...]:
        was = self._drop(uid)
        if pod is None:
            return was
        facts = make(_alone(state, uid), {uid: pod})
        wanted = plan_pod(facts, pod)
        part = _Part(
            pod=pod,
            directory=layout.pod_dir(uid, qos_class(pod)),
            wanted=wanted,
            shared=facts.knows_shared_cpus,
            request=burstable_request(pod),
            exclusive=exclusive_of(wanted),
            exposed=exposed_of(facts, pod, wanted),
        )
        self._enter(uid, part)
        return (*was, part.directory)

    def _enter(self, uid: PodUid, part: _Part) -> None:
        self._pods[uid] = part
        self.parts[part.directory] = part.wanted
        self._burstable += part.request
        if part.shared:
            self._sharing.add(uid)
        if not part.is_plain:
            self._notable[uid] = part

    def _drop(self, uid: PodUid) -> tuple[CgroupDir, ...]:
        part = self._pods.pop(uid, None)
        if part is None:
            return ()
        del self.parts[part.directory]
        self._burstable -= part.request
        self._sharing.discard(uid)
        self._notable.pop(uid, None)
        return (part.directory,)


def _alone(state: NodeState, uid: PodUid) -> NodeState:
    """The state as far as it concerns one pod."""
    cpu, memory = state.cpu, state.memory
    return NodeState(
        cpu=CpuState(
            default=cpu.default, entries=_only(cpu.entries, uid), pod_entries=_only(cpu.pod_entries, uid)
        ),
        memory=MemoryState(entries=_only(memory.entries, uid), pod_entries=_only(memory.pod_entries, uid)),
    )


def _only(entries: Mapping[PodUid, V], uid: PodUid) -> Mapping[PodUid, V]:
    return {uid: entries[uid]} if uid in entries else {}
