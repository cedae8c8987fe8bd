"""What is wrong with a stored state: beside this machine, beside the pod records, in itself.

Every finding is one sentence that names the place and both values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from agent.checkpoint.podrecord import PodRecord
from agent.domain.idset import CpuSet, union
from agent.domain.pod import PodUid, ResourceName
from agent.domain.state import Blocks, CpuState, MemoryState, MemoryTable, NodeMemory, NodeState, invariants
from agent.domain.topology import NodeId
from agent.domain.trace import WHOLE_POD
from agent.explain.words import blocks_text, cpus_text

V = TypeVar("V")
MachineMemory = Mapping[NodeId, NodeMemory]

_TOTALS: Final = {"total": "total"}
_SIZES: Final = {"total": "total", "system_reserved": "systemReserved", "allocatable": "allocatable"}


def unsound(state: NodeState) -> Iterator[str]:
    """The invariants that ``state`` breaks on whatever machine."""
    yield from invariants(state, _owned(state.cpu))


def _owned(cpu: CpuState) -> CpuSet:
    containers = union(cpus for pod in cpu.entries.values() for cpus in pod.values())
    return cpu.default | containers | union(cpu.pod_entries.values())


def cpu_differences(cpu: CpuState, expected: CpuSet) -> Iterator[str]:
    """Where the CPUs are others than the ``expected`` ones; a fresh state has none yet."""
    owned = _owned(cpu)
    if not owned:
        return
    strange = owned - expected
    for uid in sorted({*cpu.entries, *cpu.pod_entries}):
        held = union((*cpu.entries.get(uid, {}).values(), cpu.pod_entries.get(uid, CpuSet())))
        if held & strange:
            yield f"pod {uid} holds {cpus_text(held & strange)}: not on this machine"
    if cpu.default & strange:
        yield f"the default set has {cpus_text(cpu.default & strange)}: not on this machine"
    if expected - owned:
        yield f"{cpus_text(expected - owned)} of this machine: not in the state"


def memory_differences(memory: MemoryState, machine: MachineMemory, *, reserved: bool) -> Iterator[str]:
    """Where NUMA nodes or sizes are others than the ``machine``'s; a fresh state has none yet.

    Without ``reserved`` only the sizes of nodes are compared, not what is reserved of them.
    """
    if not memory.nodes:
        return
    for node in sorted(memory.nodes.keys() | machine.keys()):
        if node not in machine:
            yield f"NUMA node {node}: not on this machine"
        elif node not in memory.nodes:
            yield f"NUMA node {node} of this machine: not in the state"
        else:
            sizes = _SIZES if reserved else _TOTALS
            yield from _tables(node, memory.nodes[node].tables, machine[node].tables, sizes)


def _tables(
    node: NodeId,
    stored: Mapping[ResourceName, MemoryTable],
    machine: Mapping[ResourceName, MemoryTable],
    sizes: Mapping[str, str],
) -> Iterator[str]:
    for kind in sorted(stored.keys() | machine.keys()):
        one, other = stored.get(kind), machine.get(kind)
        if one is None or other is None:
            yield f"{kind} on NUMA node {node}: {'on this machine only' if one is None else 'not on this machine'}"
            continue
        for attribute, name in sizes.items():
            values = getattr(one, attribute), getattr(other, attribute)
            if values[0] != values[1]:
                yield f"{kind} on NUMA node {node}: {name} is {values[0]} in the state, {values[1]} here"


def booking_differences(memory: MemoryState, booked: MachineMemory) -> Iterator[str]:
    """Where a node's bookings are others than its blocks amount to, ``booked``; nodes are the same."""
    for node, held in sorted(memory.nodes.items()):
        other = booked[node]
        if held.assignments != other.assignments:
            yield (
                f"NUMA node {node}: numberOfAssignments is {held.assignments},"
                f" its blocks are {other.assignments}"
            )
        if held.cells != other.cells:
            yield f"NUMA node {node}: cells are {held.cells}, its blocks make them {other.cells}"
        for kind, table in sorted(held.tables.items()):
            if table.reserved != other.tables[kind].reserved:
                yield (
                    f"{kind} on NUMA node {node}: reserved is {table.reserved},"
                    f" its blocks take {other.tables[kind].reserved}"
                )


def record_differences(state: NodeState, records: Sequence[PodRecord]) -> Iterator[str]:
    """Where checkpoints and pod records do not say the same."""
    known = {record.uid for record in records}
    for uid in sorted(state.pods() - known):
        yield f"pod {uid} has no record: it was never acknowledged and is released at the next start"
    for record in records:
        who, uid = f"pod {record.namespace}/{record.name}", record.uid
        yield from _parts(who, _whole(record.cpus, record.pod_cpus), _held_cpus(state.cpu, uid), cpus_text)
        yield from _parts(
            who, _whole(record.blocks, record.pod_blocks), _held(state.memory, uid), blocks_text
        )


def _held_cpus(cpu: CpuState, uid: PodUid) -> Mapping[str, CpuSet]:
    return _whole(cpu.entries.get(uid, {}), cpu.pod_entries.get(uid))


def _held(memory: MemoryState, uid: PodUid) -> Mapping[str, Blocks]:
    return _whole(memory.entries.get(uid, {}), memory.pod_entries.get(uid))


def _whole(containers: Mapping[str, V], pod: V | None) -> Mapping[str, V]:
    """What containers hold, and what the pod as a whole does."""
    return containers if pod is None else {**containers, WHOLE_POD: pod}


def _parts(
    who: str, recorded: Mapping[str, V], stored: Mapping[str, V], text: Callable[[V], str]
) -> Iterator[str]:
    def said(held: V | None) -> str:
        return "nothing" if held is None else text(held) or "no memory"

    for name in sorted(recorded.keys() | stored.keys()):
        one, other = recorded.get(name), stored.get(name)
        if one != other:
            part = f"container {name}" if name != WHOLE_POD else "as a whole"
            yield f"{who}, {part}: its record says {said(one)}, the checkpoint {said(other)}"
