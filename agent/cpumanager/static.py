"""The static policy: whole CPUs, exclusively, for Guaranteed containers and pods (KEP-3570, KEP-5526).

SHARED is `CpuState.default`; RESERVED is never given away; AVAILABLE is SHARED less RESERVED.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from agent.cpumanager.assignment import Strategy, take
from agent.cpumanager.hints import HintSearch
from agent.cpumanager.options import CpuOptions
from agent.cpumanager.packed import Taken
from agent.cpumanager.partition import check_shared_pool, held_prefix, partition
from agent.cpumanager.requests import (
    guaranteed_cpus,
    is_managed_as_pod,
    pod_guaranteed_cpus,
    why_pod_shares,
    why_shared,
)
from agent.cpumanager.statecheck import StateCheck
from agent.cpumanager.tables import CpuTables
from agent.domain.hints import Hint, Impossible, Wish, Wishes
from agent.domain.idset import NO_CPUS, CpuSet, NodeMask, union
from agent.domain.outcome import Isolation, Outcome
from agent.domain.pod import CPU, Container, ContainerKind, Pod, PodUid
from agent.domain.settings import Fidelity, Gates
from agent.domain.state import ContainerCpus, CpuState, with_pod, without_pod
from agent.domain.topology import Topology
from agent.domain.trace import WHOLE_POD, CpusGranted, Kept, Pool, Shared, Step
from agent.errors import AdmissionError

SMT_ALIGNMENT_ERROR: Final = "SMTAlignmentError"
NOTHING: Final[ContainerCpus] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticCpuManager:
    """The static policy on one machine; all methods are pure.

    ``reserved_physical`` is ``reserved`` with its thread siblings; ``allocatable`` all CPUs less
    ``reserved``.
    """

    topology: Topology
    tables: CpuTables
    options: CpuOptions
    gates: Gates
    fidelity: Fidelity
    strategy: Strategy
    search: HintSearch
    reserved: CpuSet
    reserved_physical: CpuSet
    allocatable: CpuSet

    def restore(self, state: CpuState) -> CpuState:
        """The state to go on with after a start; raises StateError if it does not fit."""
        check = StateCheck(
            online=self.shareable,
            reserved=self.reserved,
            strict_reservation=self.options.strict_reservation,
            pod_entries=self.gates.pod_level_resource_managers,
        )
        return check.restored(state)

    def adapted(self, state: CpuState) -> CpuState:
        """What pods hold as it is, though it be offline or reserved now; the rest as the shared pool."""
        default = self.shareable - state.held
        return state if default == state.default else replace(state, default=default)

    @property
    def shareable(self) -> CpuSet:
        """What belongs to the shared pool unless somebody holds it."""
        return self.allocatable if self.options.strict_reservation else self.topology.online

    def available(self, state: CpuState) -> CpuSet:
        """What may be given exclusively: the shared pool less the reserved CPUs."""
        return state.default - self.reserved

    def available_physical(self, state: CpuState) -> CpuSet:
        """The shared pool less the reserved cores; only full-pcpus-only looks at it."""
        return state.default - self.reserved_physical

    def wishes(self, state: CpuState, pod: Pod, container: Container, reuse: CpuSet) -> Wishes:
        """Hints for one container; ``reuse`` are the CPUs of the pod's finished init containers."""
        request = guaranteed_cpus(pod, container, self.gates)
        if not request:
            return {}
        held = state.of(pod.uid, container.name)
        if held is None:
            return {CPU: self.search.wish(self.available(state), reuse, request)}
        return {CPU: self._held_wish(held, request)}

    def pod_wishes(self, state: CpuState, pod: Pod) -> Wishes:
        """Hints for the whole pod, for topology manager scope pod."""
        request = pod_guaranteed_cpus(pod, self.gates)
        if not request:
            return {}
        if is_managed_as_pod(pod, self.gates):
            return {CPU: self._pod_level_wish(state, pod, request)}
        return {CPU: self._containers_wish(state, pod, request)}

    def _held_wish(self, held: CpuSet, request: int) -> Wish:
        """Regenerate the hints of an allocation, which a restart must not move."""
        if len(held) != request:
            return Impossible(f"it already holds {len(held)} CPUs ({held}) but requests {request}")
        return self.search.wish(held, NO_CPUS, request)

    def _pod_level_wish(self, state: CpuState, pod: Pod, request: int) -> Wish:
        """As fixed for kubernetes issue 140989: a pod that holds CPUs asks for exactly these."""
        try:
            check_shared_pool(pod, self.gates)
        except AdmissionError as error:
            return Impossible(error.message)
        pod_cpus = state.pod_entries.get(pod.uid)
        if pod_cpus is not None and self._is_valid(state, pod):
            return self._held_wish(pod_cpus, request)
        released = self.remove_pod(state, pod.uid)
        return self.search.wish(self.available(released), NO_CPUS, request)

    def _containers_wish(self, state: CpuState, pod: Pod, request: int) -> Wish:
        """CPUs that containers hold already have to be in the mask."""
        held = NO_CPUS
        for container in pod.containers:
            own = state.of(pod.uid, container.name)
            if own is None:
                continue
            wanted = guaranteed_cpus(pod, container, self.gates)
            if len(own) != wanted:
                return Impossible(
                    f"container {container.name} already holds {len(own)} CPUs ({own}) but requests {wanted}"
                )
            held |= own
        if len(held) == request:
            return self.search.wish(held, NO_CPUS, request)
        return self.search.wish(self.available(state), held, request)

    def allocate(
        self, state: CpuState, pod: Pod, container: Container, hint: Hint, reuse: CpuSet
    ) -> Outcome[CpuState, CpuSet]:
        """Give one container its exclusive CPUs, as near to ``hint`` as possible; raises AdmissionError."""
        n = guaranteed_cpus(pod, container, self.gates)
        if not n:
            why = why_shared(pod, container, self.gates)
            return Outcome(state, reuse, (Shared(container.name, CPU, Pool.NODE, why),))
        held = state.of(pod.uid, container.name)
        if held is None or self.fidelity is Fidelity.KUBELET:
            self._check_full_pcpus(state, n)
        if held is not None:
            return Outcome(state, _reusable(container, reuse, held), (Kept(container.name, CPU),))
        taken = self._allocate_cpus(state, n, hint, reuse)
        step = CpusGranted(container.name, taken.cpus, taken.picks, Pool.NODE)
        return Outcome(
            state.granting(pod.uid, container.name, taken.cpus),
            _reusable(container, reuse, taken.cpus),
            (step,),
        )

    def allocate_pod(self, state: CpuState, pod: Pod, hint: Hint) -> Outcome[CpuState, CpuSet]:
        """Give the pod one set of CPUs and divide it (KEP-5526); raises AdmissionError.

        A second call changes nothing. A pod of which only the first containers hold CPUs (a crash
        in between) gets the rest; a state that makes no sense is released and allocated anew.
        """
        n = pod_guaranteed_cpus(pod, self.gates)
        if not n:
            why = why_pod_shares(pod, self.gates)
            return Outcome(state, NO_CPUS, (Shared(WHOLE_POD, CPU, Pool.NODE, why),))
        check_shared_pool(pod, self.gates)
        pod_cpus = state.pod_entries.get(pod.uid)
        if pod_cpus is not None and self._is_valid(state, pod):
            return self._divide(state, pod, pod_cpus, (Kept(WHOLE_POD, CPU),))
        state = self.remove_pod(state, pod.uid)
        self._check_full_pcpus(state, n)
        taken = self._allocate_cpus(state, n, hint, NO_CPUS)
        step = CpusGranted(WHOLE_POD, taken.cpus, taken.picks, Pool.NODE)
        entered = replace(
            state,
            default=state.default - taken.cpus,
            pod_entries=with_pod(state.pod_entries, pod.uid, taken.cpus),
        )
        return self._divide(entered, pod, taken.cpus, (step,))

    def _is_valid(self, state: CpuState, pod: Pod) -> bool:
        """Whether the pod's entry can stay: disjoint from the shared pool, and no hole in the order."""
        pod_cpus = state.pod_entries[pod.uid]
        return pod_cpus.isdisjoint(state.default) and held_prefix(pod, state.entries.get(pod.uid, NOTHING))

    def _divide(
        self, state: CpuState, pod: Pod, pod_cpus: CpuSet, steps: tuple[Step, ...]
    ) -> Outcome[CpuState, CpuSet]:
        held = state.entries.get(pod.uid, NOTHING)
        slices = partition(pod, self.gates, pod_cpus, held, self._take)
        new = {one.container: one.cpus for one in slices if one.container not in held}
        if not new:
            return Outcome(state, NO_CPUS, steps)
        shared = tuple(
            CpusGranted(one.container, one.cpus, one.picks, Pool.POD)
            if one.picks
            else self._pod_shared(pod, one.container)
            for one in slices
            if one.container in new
        )
        entries = with_pod(state.entries, pod.uid, {**held, **new})
        return Outcome(replace(state, entries=entries), NO_CPUS, (*steps, *shared))

    def _pod_shared(self, pod: Pod, name: str) -> Shared:
        container = next(c for c in pod.containers if c.name == name)
        return Shared(name, CPU, Pool.POD, why_shared(pod, container, self.gates))

    def remove_container(self, state: CpuState, uid: PodUid, name: str) -> CpuState:
        """Release what the container holds; a pod's own set goes with its last container."""
        own = state.of(uid, name)
        if own is None:
            return state
        left = state.without_entry(uid, name)
        if uid in state.pod_entries:
            return left if uid in left.entries else self.remove_pod(state, uid)
        in_use = union(left.entries.get(uid, NOTHING).values())
        return replace(left, default=left.default | self._returning(own - in_use))

    def remove_pod(self, state: CpuState, uid: PodUid) -> CpuState:
        """Release everything the pod holds: its own set, or what its containers hold."""
        if uid not in state.entries and uid not in state.pod_entries:
            return state
        held = state.pod_entries.get(uid)
        if held is None:
            held = union(state.entries.get(uid, NOTHING).values())
        return CpuState(
            default=state.default | self._returning(held),
            entries=without_pod(state.entries, uid),
            pod_entries=without_pod(state.pod_entries, uid),
        )

    def _returning(self, cpus: CpuSet) -> CpuSet:
        """What of ``cpus`` the shared pool gets when they are released; the kubelet's takes it all."""
        return cpus if self.fidelity is Fidelity.KUBELET else cpus & self.shareable

    def isolation(self, state: CpuState, pod: Pod, container: Container) -> Isolation:
        """KEP-5526: how far the container is kept apart."""
        if state.of(pod.uid, container.name) is None:
            return Isolation.HOST
        shares = not guaranteed_cpus(pod, container, self.gates)
        if shares and is_managed_as_pod(pod, self.gates):
            return Isolation.POD
        return Isolation.CONTAINER

    def cpus_of(self, state: CpuState, uid: PodUid, name: str) -> CpuSet:
        """The CPUs the container runs on: its own entry or the node shared pool."""
        own = state.of(uid, name)
        return state.default if own is None else own

    def _check_full_pcpus(self, state: CpuState, n: int) -> None:
        """full-pcpus-only: whole cores only, and as many as there are (KEP-2625)."""
        if not self.options.full_pcpus_only:
            return
        threads = self.tables.threads_per_core
        if n % threads:
            raise AdmissionError(
                f"SMT Alignment Error: requested {n} cpus not multiple cpus per core = {threads}",
                reason=SMT_ALIGNMENT_ERROR,
                hint=f"full-pcpus-only gives out whole cores: request a multiple of {threads}",
            )
        free = len(self.available_physical(state))
        if n > free:
            raise AdmissionError(
                "SMT Alignment Error: not enough free physical CPUs:"
                f" available physical CPUs = {free}, requested CPUs = {n}, CPUs per core = {threads}",
                reason=SMT_ALIGNMENT_ERROR,
            )

    def _allocate_cpus(self, state: CpuState, n: int, hint: Hint, reuse: CpuSet) -> Taken:
        """Take what the hint's nodes have first, the rest from anywhere."""
        allocatable = self.available(state) | reuse
        aligned = NO_CPUS
        if isinstance(hint.affinity, NodeMask):
            aligned = self._aligned_cpus(hint.affinity) & allocatable
        taken = near = self._take(aligned, min(n, len(aligned)))
        if len(near.cpus) < n:
            far = self._take(allocatable - near.cpus, n - len(near.cpus))
            taken = Taken(near.cpus | far.cpus, near.picks + far.picks)
        self._check_pool_left(state, taken.cpus)
        return taken

    def _aligned_cpus(self, affinity: NodeMask) -> CpuSet:
        """The CPUs of the hint's nodes; with align-by-socket of all the sockets these touch."""
        cpus = self.topology.cpus_of_nodes(affinity)
        if not self.options.align_by_socket:
            return cpus
        return union(own for own in self.topology.sockets.values() if not own.isdisjoint(cpus))

    def _check_pool_left(self, state: CpuState, taken: CpuSet) -> None:
        """With strict-cpu-reservation nothing reserved would keep the shared pool alive."""
        safe = self.fidelity is Fidelity.SAFE and self.options.strict_reservation
        if safe and state.default and state.default <= taken:
            raise AdmissionError(
                f"exclusive CPUs {taken} would leave no CPU in the shared pool",
                hint="with strict-cpu-reservation other pods and host processes need at least one CPU left",
            )

    def _take(self, available: CpuSet, n: int) -> Taken:
        return take(self.tables, available, n, self.strategy)


def _reusable(container: Container, reuse: CpuSet, cpus: CpuSet) -> CpuSet:
    """What later containers may take over: an init container's CPUs, never a sidecar's (KEP-753)."""
    return reuse | cpus if container.kind is ContainerKind.INIT else reuse - cpus
