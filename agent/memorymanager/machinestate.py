"""The machine state: per NUMA node and memory type what is reserved and free (KEP-1769).

Blocks are booked in ascending node order, the overflow going to the next node, and released in
the same order. So on a cross-node group only the group's sums say something: a release may give
back bytes of another node of the group than the booking took.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from agent.domain.idset import NodeMask
from agent.domain.pod import MEMORY, PodUid, ResourceName
from agent.domain.settings import Fidelity
from agent.domain.state import Block, Blocks, MemoryState, MemoryTable, NodeMemory, counted_blocks
from agent.domain.topology import NodeId, NumaNode, Topology, hugepages_resource
from agent.errors import StateError
from agent.memorymanager.reserved import SystemReserved

MachineState = Mapping[NodeId, NodeMemory]
KIB: Final = 1024
UINT64_MAX: Final = (1 << 64) - 1


def initial_machine_state(topology: Topology, reserved: SystemReserved, fidelity: Fidelity) -> MachineState:
    """The machine without any allocation: each node its own cell, all allocatable memory free."""
    return {
        node.id: NodeMemory(
            assignments=0,
            cells=NodeMask.of((node.id,)),
            tables=_tables(node, reserved.get(node.id, {}), fidelity),
        )
        for node in topology.nodes
    }


def _tables(
    node: NumaNode, reserved: Mapping[ResourceName, int], fidelity: Fidelity
) -> Mapping[ResourceName, MemoryTable]:
    """Huge pages are part of the node's memory, so ``memory`` offers what they leave."""
    tables, in_hugepages = {}, 0
    for page_kib, pages in node.hugepages.items():
        kind, total = hugepages_resource(page_kib), page_kib * KIB * pages
        tables[kind] = _fresh_table(total, reserved.get(kind, 0), total, fidelity)
        in_hugepages += total
    usable = node.memory - in_hugepages
    tables[MEMORY] = _fresh_table(node.memory, reserved.get(MEMORY, 0), usable, fidelity)
    return dict(sorted(tables.items()))


def _fresh_table(total: int, system_reserved: int, usable: int, fidelity: Fidelity) -> MemoryTable:
    allocatable = max(0, usable - system_reserved)
    if fidelity is Fidelity.KUBELET:
        # Unsigned 64-bit: where more is reserved, or in huge pages, than there is, it wraps round.
        allocatable = usable - system_reserved & UINT64_MAX
    return MemoryTable(
        total=total, system_reserved=system_reserved, allocatable=allocatable, reserved=0, free=allocatable
    )


def booked(nodes: MachineState, block: Block, size: int) -> MachineState:
    """Put ``block`` on its nodes; ``size`` of its bytes are new, the rest is reused."""
    after = dict(nodes)
    for node in map(NodeId, block.nodes):
        held = nodes[node]
        table = held.tables.get(block.type)
        taken = min(size, table.free) if table else 0
        size -= taken
        after[node] = NodeMemory(
            assignments=held.assignments + 1,
            cells=block.nodes,
            tables=_with_more_reserved(held, block.type, taken),
        )
    return after


def released(nodes: MachineState, blocks: Blocks) -> MachineState:
    """Give back ``blocks``; a node without assignments is its own cell again, a node that is gone stays so."""
    after = dict(nodes)
    for block in blocks:
        size = block.size
        for node in map(NodeId, block.nodes):
            held = after.get(node)
            if held is None:
                continue
            table = held.tables.get(block.type)
            given = min(size, table.reserved) if table else 0
            size -= given
            assignments = held.assignments - 1
            after[node] = NodeMemory(
                assignments=assignments,
                cells=held.cells if assignments else NodeMask.of((node,)),
                tables=_with_more_reserved(held, block.type, -given),
            )
    return after


def _with_more_reserved(
    held: NodeMemory, kind: ResourceName, size: int
) -> Mapping[ResourceName, MemoryTable]:
    if not size:
        return held.tables
    table = held.tables[kind]
    moved = replace(table, reserved=table.reserved + size, free=table.free - size)
    return {**held.tables, kind: moved}


def expected_machine_state(initial: MachineState, state: MemoryState) -> MachineState:
    """The machine state that the entries of ``state`` amount to.

    A pod's own blocks count instead of its containers'. Raises StateError for a block on an
    unknown node or of an unknown type.
    """
    nodes = initial
    for uid in sorted(state.entries):
        pod_blocks = state.pod_entries.get(uid)
        if pod_blocks:
            nodes = _counted(nodes, uid, "", pod_blocks)
            continue
        for name, blocks in sorted(state.entries[uid].items()):
            nodes = _counted(nodes, uid, name, blocks)
    return nodes


def _counted(nodes: MachineState, uid: PodUid, container: str, blocks: Blocks) -> MachineState:
    for block in blocks:
        where = f"[memorymanager] (pod: {uid}, container: {container}) the memory assignment uses"
        for node in map(NodeId, block.nodes):
            if node not in nodes:
                raise StateError(f"{where} the NUMA that does not exist")
            if block.type not in nodes[node].tables:
                raise StateError(f"{where} memory resource that does not exist")
        nodes = booked(nodes, block, block.size)
    return nodes


def bookable_machine_state(initial: MachineState, state: MemoryState) -> MachineState:
    """As `expected_machine_state`, but what this machine has no node, type or room for is not booked.

    Blocks of one type on the same nodes are booked as one, where the first of them would be.
    """
    sizes: dict[tuple[int, ResourceName], list[int]] = {}
    for uid in sorted(state.entries.keys() | state.pod_entries):
        for block in counted_blocks(state, uid):
            key = block.nodes.bits, block.type  # hashed without a call of ours
            if key in sizes:
                sizes[key].append(block.size)
            else:
                sizes[key] = [block.size]
    book = _Book(initial)
    for (bits, kind), found in sizes.items():
        book.enter(NodeMask(bits), kind, sum(found), len(found))
    return book.closed()


class _Book:
    """Books many blocks as `booked` does one after another, without a machine state for each."""

    def __init__(self, initial: MachineState) -> None:
        self._initial = initial
        self._free = {
            (node, kind): table.free for node, held in initial.items() for kind, table in held.tables.items()
        }
        self._cells: dict[NodeId, NodeMask] = {}
        self._assignments: Counter[NodeId] = Counter()

    def enter(self, nodes: NodeMask, kind: ResourceName, size: int, blocks: int) -> None:
        """Put blocks on those of ``nodes`` that have ``kind``; what they have no room for is left out."""
        there = tuple(NodeId(node) for node in nodes if (node, kind) in self._free)
        cells = NodeMask.of(there)
        for node in there:
            taken = min(size, self._free[node, kind])
            self._free[node, kind] -= taken
            size -= taken
            self._assignments[node] += blocks
            self._cells[node] = cells

    def closed(self) -> MachineState:
        """The machine state that all of it amounts to."""
        return {
            node: NodeMemory(
                assignments=held.assignments + self._assignments[node],
                cells=self._cells.get(node, held.cells),
                tables={kind: self._table(node, kind, table) for kind, table in held.tables.items()},
            )
            for node, held in self._initial.items()
        }

    def _table(self, node: NodeId, kind: ResourceName, table: MemoryTable) -> MemoryTable:
        free = self._free[node, kind]
        return replace(table, reserved=table.reserved + table.free - free, free=free)


def adds_up(state: MemoryState) -> bool:
    """Tell whether the machine state is what the blocks amount to, on a machine of its own sizes."""
    vacant = {
        node: NodeMemory(
            assignments=0,
            cells=NodeMask.of((node,)),
            tables={
                kind: replace(table, reserved=0, free=table.allocatable)
                for kind, table in held.tables.items()
            },
        )
        for node, held in state.nodes.items()
    }
    return machine_states_equal(state.nodes, bookable_machine_state(vacant, state))


def machine_states_equal(stored: MachineState, expected: MachineState) -> bool:
    """Compare two machine states; reserved and free as sums over each node's cells."""
    return stored.keys() == expected.keys() and all(
        _same_node(held, expected[node])
        and all(_same_sums(stored, expected, held.cells, kind) for kind in held.tables)
        for node, held in stored.items()
    )


def _same_node(one: NodeMemory, other: NodeMemory) -> bool:
    return (
        one.assignments == other.assignments
        and one.cells == other.cells
        and one.tables.keys() == other.tables.keys()
        and all(_sizes(table) == _sizes(other.tables[kind]) for kind, table in one.tables.items())
    )


def _sizes(table: MemoryTable) -> tuple[int, int, int]:
    return table.total, table.system_reserved, table.allocatable


def _same_sums(one: MachineState, other: MachineState, cells: NodeMask, kind: ResourceName) -> bool:
    return _sums(one, cells, kind) == _sums(other, cells, kind)


def _sums(nodes: MachineState, cells: NodeMask, kind: ResourceName) -> tuple[int, int]:
    tables = [table for node in cells for table in _table_of(nodes, NodeId(node), kind)]
    return sum(table.reserved for table in tables), sum(table.free for table in tables)


def _table_of(nodes: MachineState, node: NodeId, kind: ResourceName) -> Iterable[MemoryTable]:
    """The table, or nothing: nodes of one group need not have the same huge page sizes."""
    held = nodes.get(node)
    table = held.tables.get(kind) if held else None
    return () if table is None else (table,)
