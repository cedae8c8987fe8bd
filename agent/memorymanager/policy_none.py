"""Policy None: no memory is ever assigned (KEP-1769)."""

from __future__ import annotations

from dataclasses import dataclass

from agent.domain.hints import Hint, Wishes
from agent.domain.idset import NO_NODES, NodeMask
from agent.domain.outcome import Isolation, Outcome
from agent.domain.pod import MEMORY, Container, Pod, PodUid
from agent.domain.state import Blocks, MemoryState
from agent.domain.trace import WHOLE_POD, Pool, Shared, Step
from agent.memorymanager.reuse import NO_REUSE, MemoryReuse


@dataclass(frozen=True, slots=True)
class NoneMemoryManager:
    """Has no opinion and holds nothing: the only sound state is the empty one."""

    @property
    def allocatable(self) -> Blocks:
        """Nothing: the policy does not look at the machine."""
        return ()

    def restore(self, state: MemoryState) -> MemoryState:
        """The empty state, whatever was stored."""
        return MemoryState()

    def adapted(self, state: MemoryState) -> MemoryState:
        """Nothing is kept."""
        return MemoryState()

    def wishes(self, state: MemoryState, pod: Pod, container: Container, reuse: MemoryReuse) -> Wishes:
        """No opinion."""
        return {}

    def pod_wishes(self, state: MemoryState, pod: Pod) -> Wishes:
        """No opinion."""
        return {}

    def allocate(
        self, state: MemoryState, pod: Pod, container: Container, hint: Hint, reuse: MemoryReuse
    ) -> Outcome[MemoryState, MemoryReuse]:
        """Change nothing."""
        return Outcome(state, reuse, (_shared(container.name),))

    def allocate_pod(self, state: MemoryState, pod: Pod, hint: Hint) -> Outcome[MemoryState, MemoryReuse]:
        """Change nothing."""
        return Outcome(state, NO_REUSE, (_shared(WHOLE_POD),))

    def started(self, state: MemoryState, pod: Pod, container: Container) -> MemoryState:
        """Change nothing."""
        return state

    def remove_container(self, state: MemoryState, uid: PodUid, name: str) -> MemoryState:
        """Change nothing."""
        return state

    def remove_pod(self, state: MemoryState, uid: PodUid) -> MemoryState:
        """Change nothing."""
        return state

    def isolation(self, state: MemoryState, pod: Pod, container: Container) -> Isolation:
        """Every container shares the node's memory."""
        return Isolation.HOST

    def nodes_of(self, state: MemoryState, uid: PodUid, name: str) -> NodeMask:
        """None: no container is bound."""
        return NO_NODES


def _shared(container: str) -> Step:
    return Shared(container, MEMORY, Pool.NODE, "memoryManagerPolicy is None")
