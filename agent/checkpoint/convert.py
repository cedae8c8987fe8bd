"""A checkpoint in another version, and what it can no longer say.

What an older version has no place for would make its reader refuse the file (kubelets count all CPUs,
and all booked memory): CPUs that then belong to nobody go to the default set, and memory is booked as
the containers have it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from agent.checkpoint.codec import NO_EXTRA, Extra, encode_cpu, encode_cpu_v1, encode_memory
from agent.checkpoint.reading import NOBODY, ContainerIds, CpuFile, MemoryFile
from agent.domain.idset import CpuSet, NodeMask, union
from agent.domain.pod import PodUid, ResourceName
from agent.domain.state import Block, Blocks, CpuState, MemoryState
from agent.domain.topology import NodeId
from agent.errors import StateError
from agent.explain.words import blocks_text, cpus_text
from agent.memorymanager.machinestate import booked, released

CPU_VERSIONS: Final = (1, 2, 3, 4)
MEMORY_VERSIONS: Final = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class Converted:
    """The bytes of the new file; ``losses`` are sentences, one per pod, container or field lost."""

    raw: bytes
    losses: tuple[str, ...]


@dataclass(slots=True)
class _Cpu:
    """A CPU state on its way down, and what it has lost so far."""

    state: CpuState
    losses: list[str] = field(default_factory=list)

    def drop_pods(self) -> None:
        """Pod entries go; CPUs that none of a pod's containers has become shared."""
        for uid, cpus in sorted(self.state.pod_entries.items()):
            spare = cpus - union(self.state.entries.get(uid, {}).values())
            shared = (
                f"; {cpus_text(spare)} of it, which none of its containers has, become shared"
                if spare
                else ""
            )
            self.losses.append(f"pod {uid}: that {cpus_text(cpus)} are the pod's as a whole{shared}")
            self.state = replace(self.state, default=self.state.default | spare)
        self.state = replace(self.state, pod_entries={})

    def drop_container(self, uid: PodUid, name: str, why: str) -> None:
        """One entry goes; its CPUs become shared unless another container has them, too."""
        cpus = self.state.entries[uid][name]
        who = f"container {name} of pod {uid}" if uid != NOBODY else f"container id {name}"
        self.losses.append(f"{who}: its {cpus_text(cpus)}, which become shared ({why})")
        left = self.state.without_entry(uid, name)
        spare = cpus - union(held for pod in left.entries.values() for held in pod.values())
        self.state = replace(left, default=left.default | spare)


def convert_cpu(file: CpuFile, version: int, containers: ContainerIds | None = None) -> Converted:
    """Write version 1 to 4. ``containers`` is needed from and to V1 only."""
    cpu = _Cpu(file.state)
    extra = file.extra
    if version < 3:
        cpu.drop_pods()
    if version == 1:
        return _to_v1(file, cpu, {place: key for key, place in (containers or {}).items()})
    for container in sorted(cpu.state.entries.get(NOBODY, {})):
        cpu.drop_container(NOBODY, container, "nobody knows whose it is: --pods may say it")
    if version < 4:
        extra = _without_data(extra, cpu.losses)
    raw = encode_cpu(file.policy, cpu.state, version=version, extra=extra)
    return Converted(raw, tuple(cpu.losses))


def _to_v1(file: CpuFile, cpu: _Cpu, ids: Mapping[tuple[PodUid, str], str]) -> Converted:
    entries: dict[str, CpuSet] = {}
    for uid, pod in sorted(cpu.state.entries.items()):
        for name, cpus in sorted(pod.items()):
            container = name if uid == NOBODY else ids.get((uid, name))
            if container is None:
                cpu.drop_container(uid, name, "its container id is not known: --pods may say it")
            else:
                entries[container] = cpus
    _without_data(file.extra, cpu.losses)
    cpu.losses += [f"field {name}, which numalet does not know" for name, _ in file.extra.file]
    return Converted(encode_cpu_v1(file.policy, cpu.state.default, entries), tuple(cpu.losses))


def convert_memory(file: MemoryFile, version: int) -> Converted:
    """Write version 1 to 3. Raises StateError where blocks lie on nodes that the file does not have."""
    state, extra, losses = file.state, file.extra, list[str]()
    if version < 2:
        state = _without_pod_blocks(state, losses)
    if version < 3:
        extra = _without_data(extra, losses)
    return Converted(encode_memory(file.policy, state, version=version, extra=extra), tuple(losses))


def _without_pod_blocks(state: MemoryState, losses: list[str]) -> MemoryState:
    nodes = state.nodes
    for uid, blocks in sorted(state.pod_entries.items()):
        own = tuple(block for pod in state.entries.get(uid, {}).values() for block in pod)
        for block in (*blocks, *own):
            _check(state, uid, block)
        nodes = released(nodes, blocks)
        for block in own:
            nodes = booked(nodes, block, block.size)
        whole = blocks_text(blocks) or "no memory"
        booked_now = f"; booked is what its containers have, {blocks_text(_summed(own))}" if own else ""
        losses.append(f"pod {uid}: that {whole} is the pod's as a whole{booked_now}")
    return replace(state, nodes=nodes, pod_entries={})


def _summed(blocks: Blocks) -> Blocks:
    """One block for all of the same place and type."""
    sizes: dict[tuple[int, ResourceName], int] = {}
    for block in blocks:
        place = block.nodes.bits, block.type
        sizes[place] = sizes.get(place, 0) + block.size
    return tuple(Block(NodeMask(bits), kind, size) for (bits, kind), size in sizes.items())


def _check(state: MemoryState, uid: PodUid, block: Block) -> None:
    for node in map(NodeId, block.nodes):
        if node not in state.nodes or block.type not in state.nodes[node].tables:
            raise StateError(
                f"pod {uid}: the file has no {block.type} on NUMA node {node}, where a block lies"
            )


def _without_data(extra: Extra, losses: list[str]) -> Extra:
    """Only V4 and memory V3 have checksummed data, and so its unknown fields."""
    losses += [f"field {name} of the data, which numalet does not know" for name, _ in extra.data]
    return replace(extra, data=NO_EXTRA.data)
