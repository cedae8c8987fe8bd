"""Admission: one pod, one machine, one state -> the next state, or a refusal with its reason.

The Topology manager's scopes (KEP-693, KEP-5526): with scope `container` each container's hints
are merged and its resources allocated before the next one is looked at; with scope `pod` one
merged hint serves the whole pod, and a pod with pod-level resources gets one allocation. Policy
`none` allocates container by container without a hint. Nothing is half done: a refused pod's
state is the state without that pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from agent.cpumanager.policy import CpuManager, new_cpu_manager
from agent.domain.hints import ANY_NODE, Hint
from agent.domain.idset import NO_CPUS, CpuSet
from agent.domain.outcome import Isolation
from agent.domain.pod import Container, Pod, PodUid
from agent.domain.qos import qos_class, why_qos
from agent.domain.settings import Fidelity, Gates, Settings, TopologyPolicy, TopologyScope
from agent.domain.state import CpuState, MemoryState, NodeState
from agent.domain.topology import Topology
from agent.domain.trace import WHOLE_POD, Classified, Merged, Offered, Refused, Step, Trace
from agent.errors import AdmissionError, ConfigError, StateError
from agent.explain.remedy import Refusal, remedy
from agent.memorymanager.policy import NO_REUSE, MemoryManager, MemoryReuse, new_memory_manager
from agent.topologymanager.policy import TopologyManager, new_topology_manager

TOPOLOGY_AFFINITY_ERROR: Final = "TopologyAffinityError"
UNEXPECTED_ADMISSION_ERROR: Final = "UnexpectedAdmissionError"
NO_HINT: Final = Hint(ANY_NODE, preferred=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Managers:
    """The three managers of one machine under one set of settings."""

    topology: TopologyManager
    cpu: CpuManager
    memory: MemoryManager
    settings: Settings
    machine: Topology

    @property
    def gates(self) -> Gates:
        """The feature gates in force."""
        return self.settings.gates


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """The pod fits. ``hints`` is the affinity each container was given."""

    state: NodeState
    hints: Mapping[str, Hint]
    trace: Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """The pod is refused; ``state`` holds nothing of it. ``reason`` and ``message`` are the kubelet's."""

    state: NodeState
    reason: str
    message: str
    remedy: str
    trace: Trace


Decision = Admitted | Rejected


def new_managers(settings: Settings, topology: Topology) -> Managers:
    """Build the managers; raises ConfigError where the settings do not fit the machine."""
    with _tagged("topology"):
        topology_manager = new_topology_manager(settings, topology)
    with _tagged("cpu"):
        cpu_manager = new_cpu_manager(settings, topology)
    with _tagged("memory"):
        memory_manager = new_memory_manager(settings, topology)
    return Managers(
        topology=topology_manager,
        cpu=cpu_manager,
        memory=memory_manager,
        settings=settings,
        machine=topology,
    )


def restore(managers: Managers, state: NodeState) -> NodeState:
    """Check a stored state against the managers; an empty one becomes the initial state.

    Raises StateError where they do not agree.
    """
    with _tagged("cpu"):
        cpu = managers.cpu.restore(state.cpu)
    with _tagged("memory"):
        memory = managers.memory.restore(state.memory)
    return NodeState(cpu=cpu, memory=memory)


def adapted(managers: Managers, state: NodeState) -> NodeState:
    """The state on this machine: what pods hold stays, online or not, the rest is what there is.

    Never refuses; a state that fits comes back equal.
    """
    return NodeState(cpu=managers.cpu.adapted(state.cpu), memory=managers.memory.adapted(state.memory))


def admit(managers: Managers, state: NodeState, pod: Pod) -> Decision:
    """Decide about ``pod``. A pod that already holds its resources keeps exactly those."""
    return _decided(managers, state, pod, _with_remedy)


def decide(managers: Managers, state: NodeState, pod: Pod) -> Decision:
    """Decide as `admit` does, without looking for the way out of a refusal, which costs more than the refusal."""
    return _decided(managers, state, pod, lambda _attempt, refused, _without: refused)


def _decided(
    managers: Managers,
    state: NodeState,
    pod: Pod,
    told: Callable[[_Attempt, Refused, NodeState], Refused],
) -> Decision:
    attempt = _Attempt(managers, state, pod)
    try:
        attempt.run()
    except _Refusal as refusal:
        without = attempt.undone()
        refused = told(attempt, refusal.step, without)
        return Rejected(
            state=without,
            reason=refused.reason,
            message=refused.message,
            remedy=refused.remedy,
            trace=(*attempt.steps, refused),
        )
    return Admitted(
        state=attempt.state,
        hints=attempt.hints,
        trace=tuple(attempt.steps),
    )


def _with_remedy(attempt: _Attempt, refused: Refused, without: NodeState) -> Refused:
    managers = attempt.managers

    def fits(pod: Pod, policy: TopologyPolicy) -> bool:
        under = replace(managers, topology=replace(managers.topology, policy=policy))
        try:
            _Attempt(under, without, pod).run()
        except _Refusal:
            return False
        return True

    refusal = Refusal(
        settings=managers.settings,
        machine=managers.machine,
        reserved=managers.cpu.reserved,
        state=attempt.state,
        pod=attempt.pod,
        trace=tuple(attempt.steps),
        refused=refused,
        fits=fits,
    )
    return replace(refused, remedy=remedy(refusal))


def start_container(managers: Managers, state: NodeState, pod: Pod, name: str) -> NodeState:
    """A container starts: the init containers before it are done, and their memory goes back.

    Their CPUs stay with the pod (kubernetes issue 105114): later containers reuse them.
    """
    container = pod.container(name)
    if container is None:
        return state
    return replace(state, memory=managers.memory.started(state.memory, pod, container))


def remove_container(managers: Managers, state: NodeState, uid: PodUid, name: str) -> NodeState:
    """Release what one container holds, less what its pod's other containers still use."""
    return NodeState(
        cpu=managers.cpu.remove_container(state.cpu, uid, name),
        memory=managers.memory.remove_container(state.memory, uid, name),
    )


def remove_pod(managers: Managers, state: NodeState, uid: PodUid) -> NodeState:
    """Release everything the pod holds; the same state comes back if it holds nothing."""
    if not state.holds(uid):
        return state
    return NodeState(
        cpu=managers.cpu.remove_pod(state.cpu, uid),
        memory=managers.memory.remove_pod(state.memory, uid),
    )


def cpus_of(managers: Managers, state: NodeState, uid: PodUid, name: str) -> CpuSet:
    """The CPUs a container runs on: its own set, or the node shared pool."""
    return managers.cpu.cpus_of(state.cpu, uid, name)


def isolation(managers: Managers, state: NodeState, pod: Pod) -> Mapping[str, Isolation]:
    """How far each container is kept apart on CPUs."""
    return {c.name: managers.cpu.isolation(state.cpu, pod, c) for c in pod.containers}


@contextmanager
def _tagged(manager: str) -> Iterator[None]:
    """Name the manager in the errors it raises: it does not know its own place."""
    try:
        yield
    except (ConfigError, StateError) as error:
        error.manager = manager
        raise


class _Refusal(Exception):  # noqa: N818 - control flow inside this module, never seen outside
    def __init__(self, step: Refused) -> None:
        super().__init__(step.message)
        self.step = step


class _Attempt:
    """One admission under way: the state so far and the trace so far."""

    def __init__(self, managers: Managers, state: NodeState, pod: Pod) -> None:
        self.managers = managers
        self.pod = pod
        self.before = state
        self.cpu: CpuState = state.cpu
        self.memory: MemoryState = state.memory
        self.cpu_reuse: CpuSet = NO_CPUS
        self.memory_reuse: MemoryReuse = NO_REUSE
        self.hints: dict[str, Hint] = {}
        self.steps: list[Step] = [Classified(qos_class(pod), why_qos(pod))]

    @property
    def state(self) -> NodeState:
        return NodeState(cpu=self.cpu, memory=self.memory)

    def undone(self) -> NodeState:
        """The state without the pod.

        The kubelet releases what the attempt took: in a group of NUMA nodes the bytes may come back
        on another node than they were taken from, and a CPU that was given twice becomes shared.
        """
        safe = self.managers.settings.fidelity is Fidelity.SAFE
        return remove_pod(self.managers, self.before if safe else self.state, self.pod.uid)

    def run(self) -> None:
        topology = self.managers.topology
        if topology.policy is TopologyPolicy.NONE:
            self._each_container(lambda _: NO_HINT)
        elif topology.scope is TopologyScope.CONTAINER:
            self._each_container(self._container_hint)
        else:
            self._pod_scope()

    def _each_container(self, hint_for: Callable[[Container], Hint]) -> None:
        for container in self.pod.containers:
            hint = hint_for(container)
            self.hints[container.name] = hint
            self._allocate(container, hint)

    def _pod_scope(self) -> None:
        pod = self.pod
        hint = self._merge(
            WHOLE_POD,
            Offered(WHOLE_POD, "cpu", self.managers.cpu.pod_wishes(self.cpu, pod)),
            Offered(WHOLE_POD, "memory", self.managers.memory.pod_wishes(self.memory, pod)),
        )
        if not (self.managers.gates.pod_level_resource_managers and pod.has_pod_level_resources):
            self._each_container(lambda _: hint)
            return
        self.hints = dict.fromkeys((c.name for c in pod.containers), hint)
        self._allocate_pod(hint)

    def _container_hint(self, container: Container) -> Hint:
        cpu = self.managers.cpu.wishes(self.cpu, self.pod, container, self.cpu_reuse)
        memory = self.managers.memory.wishes(self.memory, self.pod, container, self.memory_reuse)
        name = container.name
        return self._merge(name, Offered(name, "cpu", cpu), Offered(name, "memory", memory))

    def _merge(self, container: str, cpu: Offered, memory: Offered) -> Hint:
        self.steps += (cpu, memory)
        try:
            merged = self.managers.topology.merge((cpu.wishes, memory.wishes), container)
        except AdmissionError as error:
            raise _Refusal(_refused(container, "topology", error)) from error
        self.steps.append(merged)
        if not merged.admitted:
            raise _Refusal(self._no_locality(merged))
        return merged.hint

    def _no_locality(self, merged: Merged) -> Refused:
        message = "Resources cannot be allocated with Topology locality"
        if self.pod.has_pod_level_resources:
            where = (
                "under pod-scope topology manager"
                if self.managers.topology.scope is TopologyScope.POD
                else "with a container-level topology manager"
            )
            message = f"Pod Scope pod with pod-level resources failed admission {where}"
        return Refused(merged.container, "topology", TOPOLOGY_AFFINITY_ERROR, message)

    def _allocate(self, container: Container, hint: Hint) -> None:
        with _refusing(container.name, "cpu"):
            cpu = self.managers.cpu.allocate(self.cpu, self.pod, container, hint, self.cpu_reuse)
        self.cpu, self.cpu_reuse = cpu.state, cpu.reuse
        self.steps += cpu.steps
        with _refusing(container.name, "memory"):
            memory = self.managers.memory.allocate(self.memory, self.pod, container, hint, self.memory_reuse)
        self.memory, self.memory_reuse = memory.state, memory.reuse
        self.steps += memory.steps

    def _allocate_pod(self, hint: Hint) -> None:
        with _refusing(WHOLE_POD, "cpu"):
            cpu = self.managers.cpu.allocate_pod(self.cpu, self.pod, hint)
        self.cpu = cpu.state
        self.steps += cpu.steps
        with _refusing(WHOLE_POD, "memory"):
            memory = self.managers.memory.allocate_pod(self.memory, self.pod, hint)
        self.memory = memory.state
        self.steps += memory.steps


@contextmanager
def _refusing(container: str, manager: str) -> Iterator[None]:
    """Turn a manager's AdmissionError into the end of the attempt."""
    try:
        yield
    except AdmissionError as error:
        raise _Refusal(_refused(container, manager, error)) from error


def _refused(container: str, manager: str, error: AdmissionError) -> Refused:
    message = error.message
    if error.reason == UNEXPECTED_ADMISSION_ERROR:
        message = f"Allocate failed due to {message}, which is unexpected"
    return Refused(container, manager, error.reason, message, error.hint)
