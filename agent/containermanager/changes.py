"""What differs between the state an earlier run left and the same state on this machine, as sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from agent.domain.pod import MEMORY, ResourceName
from agent.domain.state import CpuState, MemoryState, NodeMemory, NodeState
from agent.domain.topology import NodeId
from agent.explain.words import bytes_text

DRIFT_SHARE: Final = 50
"""A NUMA node's memory may differ from boot to boot by a fiftieth of it (2 %) ..."""
DRIFT_BYTES: Final = 256 << 20
"""... and in any case by this much, without a word: firmware and kernel take what they need."""


def changes(before: NodeState, after: NodeState) -> tuple[str, ...]:
    """A sentence per change worth telling; drift of a node's memory within bounds is none."""
    return (*_pool_changes(before.cpu, after.cpu), *_memory_changes(before.memory, after.memory))


def _pool_changes(before: CpuState, after: CpuState) -> Iterator[str]:
    joined, left = after.default - before.default, before.default - after.default
    if before.default and (joined or left):
        yield (
            f"the shared pool was {before.default} and is {after.default or 'empty'} now:"
            f" CPUs {joined or 'none'} joined, CPUs {left or 'none'} left"
        )


def _memory_changes(before: MemoryState, after: MemoryState) -> Iterator[str]:
    if not before.nodes:
        return
    for node in sorted(before.nodes.keys() | after.nodes.keys()):
        was, now = _totals(before.nodes.get(node)), _totals(after.nodes.get(node))
        for kind in sorted(was.keys() | now.keys()):
            old, new = was.get(kind, 0), now.get(kind, 0)
            if old != new and not (kind == MEMORY and _is_drift(old, new)):
                yield f"{kind} of NUMA node {node} was {bytes_text(old)} and is {bytes_text(new)} now"


def _totals(node: NodeMemory | None) -> Mapping[ResourceName, int]:
    return {kind: table.total for kind, table in node.tables.items()} if node else {}


def _is_drift(old: int, new: int) -> bool:
    return bool(old and new) and abs(new - old) <= max(old // DRIFT_SHARE, DRIFT_BYTES)


def node_memory(memory: MemoryState) -> Mapping[NodeId, int]:
    """The memory of each NUMA node, in bytes."""
    return {node: held.tables[MEMORY].total for node, held in memory.nodes.items() if MEMORY in held.tables}
