"""The hint search spelled out mask by mask, rule by rule, as the documents tell it."""

from __future__ import annotations

from itertools import combinations

from agent.domain.idset import NodeMask
from agent.domain.state import MemoryTable
from agent.domain.topology import NodeId
from agent.memorymanager.machinestate import MachineState
from agent.memorymanager.requests import Requests
from agent.memorymanager.reuse import MemoryReuse

NOTHING = MemoryTable(total=0, system_reserved=0, allocatable=0, reserved=0, free=0)


def literal_hints(nodes: MachineState, requests: Requests, reuse: MemoryReuse) -> tuple[set[int], set[int]]:
    """The preferred and the other masks."""
    least = len(nodes)
    found = []
    for size in range(1, len(nodes) + 1):
        for chosen in combinations(sorted(nodes), size):
            if not _has_capacity(nodes, requests, chosen):
                continue
            least = min(least, size)
            if _single_vs_multi(nodes, chosen) and _is_free(nodes, requests, reuse, chosen):
                found.append(chosen)
    preferred = {NodeMask.of(chosen).bits for chosen in found if len(chosen) == least}
    return preferred, {NodeMask.of(chosen).bits for chosen in found} - preferred


def _has_capacity(nodes: MachineState, requests: Requests, chosen: tuple[NodeId, ...]) -> bool:
    return all(
        sum(nodes[node].tables.get(kind, NOTHING).allocatable for node in chosen) >= size
        for kind, size in requests.items()
    )


def _single_vs_multi(nodes: MachineState, chosen: tuple[NodeId, ...]) -> bool:
    if len(chosen) == 1:
        return len(nodes[chosen[0]].cells) == 1
    for node in chosen:
        held = nodes[node]
        if held.assignments and (len(held.cells) == 1 or set(held.cells) != set(chosen)):
            return False
    return True


def _is_free(nodes: MachineState, requests: Requests, reuse: MemoryReuse, chosen: tuple[NodeId, ...]) -> bool:
    mask = NodeMask.of(chosen).bits
    return all(
        sum(nodes[node].tables.get(kind, NOTHING).free for node in chosen) + reuse.of(mask, kind) >= size
        for kind, size in requests.items()
    )
