"""Memory of a pod's finished init containers that its later containers take over.

The kubelet keeps it as ``initContainersReusableMemory``, per pod, exact NUMA mask and type. It
lives as long as one admission; no checkpoint holds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from agent.domain.pod import Container, ContainerKind, Pod, ResourceName
from agent.domain.state import Block, Blocks, MemoryState


@dataclass(frozen=True, slots=True)
class MemoryReuse:
    """Reusable bytes by raw mask bits and type."""

    sizes: Mapping[tuple[int, ResourceName], int] = field(default_factory=dict)

    def of(self, mask: int, kind: ResourceName) -> int:
        """The reusable bytes of type ``kind`` on exactly ``mask``."""
        return self.sizes.get((mask, kind), 0)

    @property
    def masks(self) -> frozenset[int]:
        """The masks something is reusable on."""
        return frozenset(mask for (mask, _), size in self.sizes.items() if size)

    def after(self, container: Container, blocks: Blocks) -> MemoryReuse:
        """What is reusable once ``container`` has ``blocks`` (kubelet: updatePodReusableMemory).

        An init container leaves its memory to those behind it: they run after it, so the largest
        block counts, not the sum. Any other container uses up what it took.
        """
        sizes = dict(self.sizes)
        for block in blocks:
            key = (block.nodes.bits, block.type)
            left = sizes.get(key, 0)
            if container.kind is ContainerKind.INIT:
                sizes[key] = max(left, block.size)
            elif left:
                sizes[key] = max(0, left - block.size)
        return MemoryReuse(sizes)


NO_REUSE: Final = MemoryReuse()


def shrink_init_blocks(state: MemoryState, pod: Pod, container: Container, taken: Blocks) -> MemoryState:
    """Take what ``container`` reuses out of the entries of the init containers before it.

    (Kubelet: updateInitContainersMemoryBlocks.) So a pod's blocks add up to what is reserved for
    it; a block may shrink to size 0.
    """
    left = {(block.nodes.bits, block.type): block.size for block in taken}
    for earlier in init_containers_before(pod, container):
        blocks = state.of(pod.uid, earlier.name)
        if blocks:
            state = state.with_entry(pod.uid, earlier.name, _shrunk(blocks, left))
    return state


def init_containers_before(pod: Pod, container: Container) -> Iterable[Container]:
    """The ordinary init containers that have ended when ``container`` starts."""
    for earlier in pod.containers:
        if earlier.name == container.name:
            return
        if earlier.kind is ContainerKind.INIT:
            yield earlier


def _shrunk(blocks: Blocks, left: dict[tuple[int, ResourceName], int]) -> Blocks:
    """``blocks`` less ``left``, which is counted down."""
    shrunk = []
    for block in blocks:
        key = (block.nodes.bits, block.type)
        reused = min(block.size, left.get(key, 0))
        if reused:
            left[key] -= reused
        shrunk.append(Block(block.nodes, block.type, block.size - reused))
    return tuple(shrunk)
