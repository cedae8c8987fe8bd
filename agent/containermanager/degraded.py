"""Which pods have less than they hold, and why: a pure function of machine, state and pods.

What a pod holds is a fact that neither the machine nor the configuration changes: it stays in the
state, and what is missing of it, or at odds with today's settings, is derived here and told.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping

from agent.admission import Managers, Rejected, admit
from agent.domain.idset import NO_CPUS, NodeMask, union
from agent.domain.pod import Pod, PodUid, ResourceName
from agent.domain.state import CpuState, MemoryState, NodeState, counted_blocks
from agent.domain.topology import NodeId
from agent.explain.words import bytes_text

Reasons = tuple[str, ...]
_Group = tuple[NodeMask, ResourceName]


def degradations(
    managers: Managers, state: NodeState, pods: Iterable[Pod], begun: Container[PodUid] = ()
) -> dict[PodUid, Reasons]:
    """The reasons for each of ``pods`` that is degraded; the others are left out.

    Those of ``begun`` have given the memory of their init containers back: they cannot be judged as new.
    """
    found: dict[PodUid, Reasons] = {}
    shortages: Mapping[_Group, tuple[int, int]] | None = None
    for pod in pods:
        if shortages is None:  # they concern all pods: not looked for where nobody asks
            shortages = _shortages(state.memory)
        reasons = (
            *_cpu_reasons(managers, state.cpu, pod.uid),
            *_memory_reasons(state.memory, pod.uid, shortages),
        )
        if not reasons and pod.uid not in begun:
            reasons = _refusal(managers, state, pod)
        if reasons:
            found[pod.uid] = reasons
    return found


def _cpu_reasons(managers: Managers, cpu: CpuState, uid: PodUid) -> Iterator[str]:
    online, entries = managers.machine.online, cpu.entries.get(uid, {})
    held = cpu.pod_entries.get(uid, NO_CPUS) | union(entries.values())
    if not held <= online:
        yield f"CPUs {held - online} of its CPUs {held} are offline"
    for name, own in sorted(entries.items()):
        if own and own.isdisjoint(online):
            yield f"container {name} has no CPU of its own left and runs in the node shared pool"
    reserved = held & managers.cpu.reserved
    if reserved:
        yield f"CPUs {reserved} of its CPUs {held} are reserved now"


def _memory_reasons(
    memory: MemoryState, uid: PodUid, shortages: Mapping[_Group, tuple[int, int]]
) -> Iterator[str]:
    for block in sorted(counted_blocks(memory, uid), key=lambda block: (block.type, block.nodes.bits)):
        there = NodeMask.of(node for node in block.nodes if _has(memory, NodeId(node), block.type))
        if not block.nodes <= there:
            yield f"NUMA nodes {block.nodes - there} of its {block.type} on {block.nodes} have none any more"
        group = _group(memory, there, block.type) if there else None
        if group and group in shortages:
            held, room = map(bytes_text, shortages[group])
            yield f"NUMA nodes {group[0]} have {room} of {block.type} for pods now, which hold {held}"


def _has(memory: MemoryState, node: NodeId, kind: ResourceName) -> bool:
    return node in memory.nodes and kind in memory.nodes[node].tables


def _group(memory: MemoryState, nodes: NodeMask, kind: ResourceName) -> _Group:
    """The nodes that serve a block on ``nodes``, as one key for all blocks on them."""
    return memory.nodes[NodeId(next(iter(nodes)))].cells, kind


def _shortages(memory: MemoryState) -> Mapping[_Group, tuple[int, int]]:
    """For each group of nodes whose pods hold more than it has: bytes held, bytes there are."""
    held: dict[_Group, int] = {}
    for uid in {*memory.entries, *memory.pod_entries}:
        for block in counted_blocks(memory, uid):
            there = NodeMask.of(node for node in block.nodes if _has(memory, NodeId(node), block.type))
            if there:
                group = _group(memory, there, block.type)
                held[group] = held.get(group, 0) + block.size
    rooms = {group: _room(memory, *group) for group in held}
    return {group: (size, rooms[group]) for group, size in held.items() if size > rooms[group]}


def _room(memory: MemoryState, cells: NodeMask, kind: ResourceName) -> int:
    nodes = (NodeId(node) for node in cells)
    return sum(memory.nodes[node].tables[kind].allocatable for node in nodes if _has(memory, node, kind))


def _refusal(managers: Managers, state: NodeState, pod: Pod) -> Reasons:
    """What today's settings would say of a pod that has all it holds.

    With align-by-socket its CPUs may be on another node of the socket than the hint's: not to be told.
    """
    if managers.settings.cpu_options.get("align-by-socket") == "true":
        return ()
    today = admit(managers, state, pod)
    if not isinstance(today, Rejected):
        return ()
    return (f"today's settings would refuse it: {today.reason}: {today.message}",)
