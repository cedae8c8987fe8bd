"""What every Memory manager policy answers, and the choice among them."""

from __future__ import annotations

from typing import Protocol

from agent.domain.hints import Hint, Wishes
from agent.domain.idset import NodeMask
from agent.domain.outcome import Isolation, Outcome
from agent.domain.pod import Container, Pod, PodUid
from agent.domain.settings import MemoryPolicy, Settings
from agent.domain.state import Blocks, MemoryState
from agent.domain.topology import Topology
from agent.memorymanager.machinestate import initial_machine_state
from agent.memorymanager.policy_none import NoneMemoryManager
from agent.memorymanager.policy_static import StaticMemoryManager
from agent.memorymanager.reserved import system_reserved
from agent.memorymanager.reuse import NO_REUSE, MemoryReuse

__all__ = ["NO_REUSE", "MemoryManager", "MemoryReuse", "new_memory_manager"]


class MemoryManager(Protocol):
    """Pure: every method maps values to values and holds nothing between calls."""

    @property
    def allocatable(self) -> Blocks:
        """What pods can be given: one block per NUMA node and type, none of size 0."""

    def restore(self, state: MemoryState) -> MemoryState:
        """Check a stored state against machine and settings; an empty one becomes the initial state.

        Raises StateError.
        """

    def adapted(self, state: MemoryState) -> MemoryState:
        """The state with every block kept, and booked on this machine as far as it has room; never refuses."""

    def wishes(self, state: MemoryState, pod: Pod, container: Container, reuse: MemoryReuse) -> Wishes:
        """Where the container's memory could come from; the one place it is at, if it holds some."""

    def pod_wishes(self, state: MemoryState, pod: Pod) -> Wishes:
        """Where the whole pod's memory could come from."""

    def allocate(
        self, state: MemoryState, pod: Pod, container: Container, hint: Hint, reuse: MemoryReuse
    ) -> Outcome[MemoryState, MemoryReuse]:
        """Assign the container's memory; once it holds some, only ``reuse`` moves on.

        Raises AdmissionError.
        """

    def allocate_pod(self, state: MemoryState, pod: Pod, hint: Hint) -> Outcome[MemoryState, MemoryReuse]:
        """Assign one allocation to a pod with pod-level resources (KEP-5526); a second time, nothing.

        Raises AdmissionError, with reason EmptyPodSharedPoolError where sharing containers get nothing.
        """

    def started(self, state: MemoryState, pod: Pod, container: Container) -> MemoryState:
        """Release the init containers before ``container``: they have ended once it starts."""

    def remove_container(self, state: MemoryState, uid: PodUid, name: str) -> MemoryState:
        """Release what the container holds; a pod's one allocation goes with its last container."""

    def remove_pod(self, state: MemoryState, uid: PodUid) -> MemoryState:
        """Release everything the pod holds."""

    def isolation(self, state: MemoryState, pod: Pod, container: Container) -> Isolation:
        """How far the container's memory is kept apart."""

    def nodes_of(self, state: MemoryState, uid: PodUid, name: str) -> NodeMask:
        """The NUMA nodes of the container's blocks, empty where it holds none."""


def new_memory_manager(settings: Settings, topology: Topology) -> NoneMemoryManager | StaticMemoryManager:
    """Build the policy that ``settings`` names; raises ConfigError where they do not fit the machine."""
    if settings.memory_policy is MemoryPolicy.NONE:
        return NoneMemoryManager()
    reserved = system_reserved(settings, topology)
    return StaticMemoryManager(
        initial=initial_machine_state(topology, reserved, settings.fidelity),
        gates=settings.gates,
        fidelity=settings.fidelity,
    )
