"""Policy Static: memory of Guaranteed pods is assigned on NUMA nodes (KEP-1769, KEP-5526)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from agent.domain.hints import Hint, Hints, Impossible, Wishes
from agent.domain.idset import NO_NODES, NodeMask
from agent.domain.outcome import Isolation, Outcome
from agent.domain.pod import MEMORY, Container, Pod, PodUid
from agent.domain.qos import QosClass, is_guaranteed_equivalent, qos_class
from agent.domain.settings import Fidelity, Gates
from agent.domain.state import Block, Blocks, MemoryState, with_pod, without_pod
from agent.domain.trace import WHOLE_POD, Kept, MemoryGranted, Pool, Shared, Step
from agent.errors import AdmissionError, StateError
from agent.memorymanager.hintsearch import calculate_hints, searched_completely
from agent.memorymanager.machinestate import (
    MachineState,
    bookable_machine_state,
    booked,
    expected_machine_state,
    machine_states_equal,
    released,
)
from agent.memorymanager.placement import Placement
from agent.memorymanager.podpool import check_shared_pool, partition
from agent.memorymanager.requests import Requests, container_requests, pod_requests
from agent.memorymanager.reuse import (
    NO_REUSE,
    MemoryReuse,
    init_containers_before,
    shrink_init_blocks,
)

NOT_WANTED = "its cpu and memory requests do not both equal its limits"


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticMemoryManager:
    """``initial`` is the machine state without any allocation."""

    initial: MachineState
    gates: Gates
    fidelity: Fidelity

    @property
    def allocatable(self) -> Blocks:
        """What pods can be given: one block per NUMA node and type, none of size 0."""
        return tuple(
            Block(NodeMask.of((node,)), kind, table.allocatable)
            for node, held in sorted(self.initial.items())
            for kind, table in held.tables.items()
            if table.allocatable
        )

    def restore(self, state: MemoryState) -> MemoryState:
        """Check a stored state; an empty one becomes the initial state. Raises StateError.

        With the gate off the pods' own blocks are forgotten, as the kubelet does.
        """
        if not self.gates.pod_level_resource_managers:
            state = replace(state, pod_entries={})
        for uid in sorted(state.pod_entries.keys() - state.entries.keys()):
            raise StateError(
                f"[memorymanager] pod {uid} has a pod memory assignment but no container memory assignments"
            )
        if not state.nodes:
            if state.entries:
                raise StateError(
                    "[memorymanager] machine state can not be empty when it has memory assignments"
                )
            return replace(state, nodes=self.initial)
        if not machine_states_equal(state.nodes, expected_machine_state(self.initial, state)):
            raise StateError("[memorymanager] the expected machine state is different from the real one")
        return state

    def adapted(self, state: MemoryState) -> MemoryState:
        """See `MemoryManager.adapted`; a machine state that fits stays to the byte."""
        nodes = bookable_machine_state(self.initial, state)
        return state if machine_states_equal(state.nodes, nodes) else replace(state, nodes=nodes)

    def wishes(self, state: MemoryState, pod: Pod, container: Container, reuse: MemoryReuse) -> Wishes:
        """The masks that can serve the container; the nodes it is on, if it holds memory."""
        if self._unmanaged(pod):
            return {}
        try:
            requests = container_requests(pod, container)
        except AdmissionError:
            return {}  # no opinion; allocate says why
        held = state.of(pod.uid, container.name)
        return _wishes(state, requests, held, reuse)

    def pod_wishes(self, state: MemoryState, pod: Pod) -> Wishes:
        """The masks that can serve the whole pod; the nodes it is on, if it holds memory."""
        if self._unmanaged(pod):
            return {}
        try:
            requests = pod_requests(pod)
        except AdmissionError:
            return {}  # no opinion; allocate says why
        if pod.has_pod_level_resources:
            try:
                check_shared_pool(pod, requests)
            except AdmissionError as error:
                return dict.fromkeys(requests, Impossible(error.message))
        return _wishes(state, requests, _held_by_pod(state, pod), NO_REUSE)

    def allocate(
        self, state: MemoryState, pod: Pod, container: Container, hint: Hint, reuse: MemoryReuse
    ) -> Outcome[MemoryState, MemoryReuse]:
        """Assign the container's memory. Raises AdmissionError."""
        name = container.name
        unmanaged = self._unmanaged(pod)
        if unmanaged:
            return Outcome(state, reuse, (Shared(name, MEMORY, Pool.NODE, unmanaged),))
        held = state.of(pod.uid, name)
        if held is not None:
            return Outcome(state, reuse.after(container, held), (Kept(name, MEMORY),))
        requests = container_requests(pod, container)
        if not requests:
            return Outcome(state, reuse, (Shared(name, MEMORY, Pool.NODE, NOT_WANTED),))
        nodes = self._placement(state, requests, reuse).choose(hint)
        blocks = _blocks(nodes, requests)
        machine = state.nodes
        for block in blocks:
            machine = booked(machine, block, max(0, block.size - reuse.of(nodes.bits, block.type)))
        after = replace(state.with_entry(pod.uid, name, blocks), nodes=machine)
        return Outcome(
            shrink_init_blocks(after, pod, container, blocks),
            reuse.after(container, blocks),
            (MemoryGranted(name, blocks, Pool.NODE),),
        )

    def allocate_pod(self, state: MemoryState, pod: Pod, hint: Hint) -> Outcome[MemoryState, MemoryReuse]:
        """Assign one allocation to a pod with pod-level resources. Raises AdmissionError."""
        unmanaged = self._unmanaged(pod)
        if unmanaged:
            return Outcome(state, NO_REUSE, (Shared(WHOLE_POD, MEMORY, Pool.NODE, unmanaged),))
        if pod.uid in state.pod_entries or pod.uid in state.entries:
            return Outcome(state, NO_REUSE, (Kept(WHOLE_POD, MEMORY),))
        try:
            budget = pod_requests(pod)
        except AdmissionError as error:  # the kubelet lets the pod pass without memory of its own
            return Outcome(state, NO_REUSE, (Shared(WHOLE_POD, MEMORY, Pool.NODE, error.hint),))
        check_shared_pool(pod, budget)
        nodes = self._placement(state, budget, NO_REUSE).choose(hint)
        blocks = _blocks(nodes, budget)
        machine = state.nodes
        for block in blocks:
            machine = booked(machine, block, block.size)
        parts = partition(pod, budget, nodes)
        after = MemoryState(
            nodes=machine,
            entries=with_pod(state.entries, pod.uid, parts),
            pod_entries=with_pod(state.pod_entries, pod.uid, blocks),
        )
        granted = MemoryGranted(WHOLE_POD, blocks, Pool.NODE)
        return Outcome(after, NO_REUSE, (granted, *(_part(pod, c, parts[c.name]) for c in pod.containers)))

    def started(self, state: MemoryState, pod: Pod, container: Container) -> MemoryState:
        """Release the init containers before ``container``, but no sidecar (kubelet: AddContainer)."""
        for ended in init_containers_before(pod, container):
            state = self.remove_container(state, pod.uid, ended.name)
        return state

    def remove_container(self, state: MemoryState, uid: PodUid, name: str) -> MemoryState:
        """Release what the container holds; a pod's one allocation goes with its last container."""
        after = state.without_entry(uid, name)
        if uid not in state.pod_entries:
            return replace(after, nodes=released(state.nodes, state.of(uid, name) or ()))
        return after if uid in after.entries else _without_pod(after, uid)

    def remove_pod(self, state: MemoryState, uid: PodUid) -> MemoryState:
        """Release everything the pod holds."""
        if uid in state.pod_entries:
            return _without_pod(state, uid)
        for name in sorted(state.entries.get(uid, {})):
            state = self.remove_container(state, uid, name)
        return state

    def isolation(self, state: MemoryState, pod: Pod, container: Container) -> Isolation:
        """How far the container's memory is kept apart (KEP-5526)."""
        if state.of(pod.uid, container.name) is None:
            return Isolation.HOST
        shares = (
            self.gates.pod_level_resource_managers
            and pod.has_pod_level_resources
            and not is_guaranteed_equivalent(container)
        )
        return Isolation.POD if shares else Isolation.CONTAINER

    def nodes_of(self, state: MemoryState, uid: PodUid, name: str) -> NodeMask:
        """The NUMA nodes of the container's blocks, empty where it holds none."""
        nodes = NO_NODES
        for block in state.of(uid, name) or ():
            nodes |= block.nodes
        return nodes

    def _placement(self, state: MemoryState, requests: Requests, reuse: MemoryReuse) -> Placement:
        return Placement(machine=state.nodes, requests=requests, reuse=reuse, fidelity=self.fidelity)

    def _unmanaged(self, pod: Pod) -> str:
        """Why the policy leaves the whole pod alone; empty where it does not."""
        qos = qos_class(pod)
        if qos is not QosClass.GUARANTEED:
            return f"the pod is {qos.value}, only memory of Guaranteed pods is assigned"
        gates_on = self.gates.pod_level_resources and self.gates.pod_level_resource_managers
        if pod.has_pod_level_resources and not gates_on:
            return "the pod has pod-level resources and the gate PodLevelResourceManagers is off"
        return ""


def _wishes(state: MemoryState, requests: Requests, held: Blocks | None, reuse: MemoryReuse) -> Wishes:
    """Empty, which is no opinion, also where no mask fits: that is how the kubelet answers."""
    if not requests:
        return {}
    if held is not None:
        return _wishes_of_held(held, requests)
    hints = calculate_hints(state.nodes, requests, reuse)
    if hints is not None:
        return dict.fromkeys(requests, hints)
    if searched_completely(state.nodes, requests):
        return {}
    return dict.fromkeys(
        requests,
        Impossible(
            f"no set of NUMA nodes among the narrowest fits, and {len(state.nodes)} NUMA nodes"
            " are too many to try all sets"
        ),
    )


def _wishes_of_held(held: Blocks, requests: Requests) -> Wishes:
    """The held nodes as the one hint; no opinion where the request is not what is held."""
    if {block.type: block.size for block in held} != requests or len(held) != len(requests):
        return {}
    return {block.type: Hints((block.nodes.bits,)) for block in held}


def _held_by_pod(state: MemoryState, pod: Pod) -> Blocks | None:
    """The pod's own blocks, else those of its first container that holds some."""
    own = state.pod_entries.get(pod.uid)
    if own is not None:
        return own
    return next((b for c in pod.containers if (b := state.of(pod.uid, c.name)) is not None), None)


def _blocks(nodes: NodeMask, requests: Requests) -> Blocks:
    return tuple(Block(nodes, kind, size) for kind, size in requests.items())


def _part(pod: Pod, container: Container, blocks: Blocks) -> Step:
    if container_requests(pod, container):
        return MemoryGranted(container.name, blocks, Pool.POD)
    return Shared(container.name, MEMORY, Pool.POD, NOT_WANTED)


def _without_pod(state: MemoryState, uid: PodUid) -> MemoryState:
    return MemoryState(
        nodes=released(state.nodes, state.pod_entries[uid]),
        entries=without_pod(state.entries, uid),
        pod_entries=without_pod(state.pod_entries, uid),
    )
