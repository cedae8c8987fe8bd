"""`NodeState`: every allocation on this machine, one immutable value.

The layout is the kubelet's (KEP-5526 state design): `CpuState` is what `cpu_manager_state` holds,
`MemoryState` what `memory_manager_state` holds. Mappings are never written to after construction;
a change copies the one level it touches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import compress
from operator import is_not
from typing import TypeVar

from agent.domain.idset import NO_CPUS, CpuSet, NodeMask, union
from agent.domain.pod import PodUid, ResourceName
from agent.domain.topology import NodeId

ContainerCpus = Mapping[str, CpuSet]
V = TypeVar("V")


@dataclass(frozen=True, kw_only=True)
class CpuState:
    """Who holds which CPUs.

    ``default`` is the node shared pool (reserved CPUs included unless strictly reserved);
    ``entries`` the set of each container that has one, pod-shared containers too;
    ``pod_entries`` the whole set of each pod that was allocated as one.
    """

    default: CpuSet = NO_CPUS
    entries: Mapping[PodUid, ContainerCpus] = field(default_factory=dict)
    pod_entries: Mapping[PodUid, CpuSet] = field(default_factory=dict)

    @cached_property
    def held(self) -> CpuSet:
        """The CPUs that pods hold, online or not."""
        containers = [cpus for pod in self.entries.values() for cpus in pod.values()]
        return union([*self.pod_entries.values(), *containers])

    def of(self, uid: PodUid, container: str) -> CpuSet | None:
        """The container's own entry, None where it runs in the node shared pool."""
        return self.entries.get(uid, {}).get(container)

    def with_entry(self, uid: PodUid, container: str, cpus: CpuSet) -> CpuState:
        """This state with ``cpus`` entered for the container."""
        pod = {**self.entries.get(uid, {}), container: cpus}
        return replace(self, entries=with_pod(self.entries, uid, pod))

    def granting(self, uid: PodUid, container: str, cpus: CpuSet) -> CpuState:
        """This state with ``cpus`` entered for a container that has no entry, and out of the shared pool."""
        pod = {**self.entries.get(uid, {}), container: cpus}
        after = CpuState(
            default=self.default - cpus,
            entries=with_pod(self.entries, uid, pod),
            pod_entries=self.pod_entries,
        )
        if "held" in vars(self):  # nothing was taken out: it need not be gathered from all pods again
            vars(after)["held"] = self.held | cpus
        return after

    def without_entry(self, uid: PodUid, container: str) -> CpuState:
        """This state without the container's entry; a pod without entries is dropped."""
        left = {name: cpus for name, cpus in self.entries.get(uid, {}).items() if name != container}
        return replace(self, entries=_with(self.entries, uid, left))


@dataclass(frozen=True, slots=True)
class Block:
    """``size`` bytes of one memory type, somewhere on ``nodes``."""

    nodes: NodeMask
    type: ResourceName
    size: int


Blocks = tuple[Block, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTable:
    """Bytes of one memory type on one NUMA node; ``allocatable == reserved + free``."""

    total: int
    system_reserved: int
    allocatable: int
    reserved: int
    free: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMemory:
    """One NUMA node's tables.

    ``cells`` is the group of nodes that serve cross-node allocations together with this one (the
    node alone where there is none); ``assignments`` counts the blocks on it.
    """

    assignments: int
    cells: NodeMask
    tables: Mapping[ResourceName, MemoryTable]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryState:
    """Who holds which memory. ``nodes`` is empty under policy None."""

    nodes: Mapping[NodeId, NodeMemory] = field(default_factory=dict)
    entries: Mapping[PodUid, Mapping[str, Blocks]] = field(default_factory=dict)
    pod_entries: Mapping[PodUid, Blocks] = field(default_factory=dict)

    def of(self, uid: PodUid, container: str) -> Blocks | None:
        """The container's blocks, None where nothing is held for it."""
        return self.entries.get(uid, {}).get(container)

    def with_entry(self, uid: PodUid, container: str, blocks: Blocks) -> MemoryState:
        """This state with ``blocks`` entered for the container; `nodes` are not touched."""
        pod = {**self.entries.get(uid, {}), container: blocks}
        return replace(self, entries=with_pod(self.entries, uid, pod))

    def without_entry(self, uid: PodUid, container: str) -> MemoryState:
        """This state without the container's blocks; `nodes` are not touched."""
        left = {name: b for name, b in self.entries.get(uid, {}).items() if name != container}
        return replace(self, entries=_with(self.entries, uid, left))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """Every allocation on the machine."""

    cpu: CpuState = field(default_factory=CpuState)
    memory: MemoryState = field(default_factory=MemoryState)

    def pods(self) -> frozenset[PodUid]:
        """The pods that hold anything."""
        return frozenset().union(
            self.cpu.entries, self.cpu.pod_entries, self.memory.entries, self.memory.pod_entries
        )

    def holds(self, uid: PodUid) -> bool:
        """Whether the pod holds anything."""
        cpu, memory = self.cpu, self.memory
        return any(uid in held for held in (cpu.entries, cpu.pod_entries, memory.entries, memory.pod_entries))


def _with(
    entries: Mapping[PodUid, Mapping[str, V]], uid: PodUid, pod: Mapping[str, V]
) -> Mapping[PodUid, Mapping[str, V]]:
    return with_pod(entries, uid, pod) if pod else without_pod(entries, uid)


def changed_pods(before: Mapping[PodUid, object], after: Mapping[PodUid, object]) -> set[PodUid]:
    """The pods that are in one of the two only, or whose value is another: none is ever written to.

    A value that is equal, but not the same object, may be taken for another.
    """
    if before is after:
        return set()
    fewer, more = sorted((before, after), key=len)
    others = _copy(more)
    newest = {others.popitem()[0] for _ in range(len(more) - len(fewer))}
    if others == fewer:  # as it is, mostly: a pod came, or the last one went again
        return newest
    changed = set(compress(after, map(is_not, after.values(), map(before.get, after))))
    stayed = len(after) - len(changed - before.keys())
    return changed if stayed == len(before) else changed | (before.keys() - after.keys())


def with_pod(entries: Mapping[PodUid, V], uid: PodUid, value: V) -> Mapping[PodUid, V]:
    """``entries`` with ``value`` as the pod's."""
    with_it = _copy(entries)
    with_it[uid] = value
    return with_it


def without_pod(entries: Mapping[PodUid, V], uid: PodUid) -> Mapping[PodUid, V]:
    """``entries`` without the pod's; the same mapping if it has none."""
    if uid not in entries:
        return entries
    left = _copy(entries)
    del left[uid]
    return left


def _copy(entries: Mapping[PodUid, V]) -> dict[PodUid, V]:
    """A dict's own copy is one of its memory; ``dict()`` and ``**`` enter each item once one has been deleted."""
    return entries.copy() if isinstance(entries, dict) else dict(entries)


def invariants(
    state: NodeState, online: CpuSet, strictly_reserved: CpuSet = NO_CPUS, kept: CpuSet = NO_CPUS
) -> Iterator[str]:
    """Yield a sentence for each invariant that ``state`` breaks; none for a sound state.

    Exclusive CPUs are disjoint from the shared pool and between pods, the shared pool is all of
    ``online`` (less ``strictly_reserved``) that nobody holds, a pod's set covers its containers' sets
    and goes with the last of them, and per NUMA node and type reserved + free = allocatable. Pods
    may hold ``kept`` besides: CPUs that went offline or became reserved since.
    """
    yield from _cpu_invariants(state.cpu, online - strictly_reserved, kept)
    yield from memory_invariants(state.memory)


def _cpu_invariants(cpu: CpuState, expected: CpuSet, kept: CpuSet) -> Iterator[str]:
    yield from _holding_invariants(cpu, cpu.default)
    nobodys = expected - cpu.held - cpu.default
    strange = (cpu.default | cpu.held - kept) - expected
    if nobodys or strange:
        yield f"CPUs {nobodys or 'none'} belong to nobody, CPUs {strange or 'none'} do not exist"


def holding_invariants(cpu: CpuState) -> Iterator[str]:
    """Yield a sentence for each invariant that what pods hold breaks, on whatever machine."""
    yield from _holding_invariants(cpu, NO_CPUS)


def _holding_invariants(cpu: CpuState, owned: CpuSet) -> Iterator[str]:
    yield from _abandoned(cpu.entries, cpu.pod_entries, "CPUs")
    for uid in sorted({*cpu.entries, *cpu.pod_entries}):
        pod = cpu.pod_entries.get(uid, NO_CPUS)
        held = pod
        for name, cpus in sorted(cpu.entries.get(uid, {}).items()):
            held |= cpus
            if uid in cpu.pod_entries and not cpus <= pod:
                yield f"container {name} of pod {uid} holds CPUs {cpus - pod} outside its pod's set {pod}"
        if not held.isdisjoint(owned):
            yield f"pod {uid} holds CPUs {held & owned} that are also in the shared pool or another pod's"
        owned |= held


def _abandoned(
    entries: Mapping[PodUid, object], pod_entries: Mapping[PodUid, object], noun: str
) -> Iterator[str]:
    for uid in sorted(pod_entries.keys() - entries.keys()):
        yield f"pod {uid} holds {noun}, none of its containers does"


def memory_invariants(memory: MemoryState) -> Iterator[str]:
    """Yield a sentence for each invariant that the memory part breaks."""
    yield from _abandoned(memory.entries, memory.pod_entries, "memory")
    for node, held in sorted(memory.nodes.items()):
        yield from _cell_invariants(memory, node, held)
        yield from _table_invariants(node, held)
    yield from _booking_invariants(memory)


def _cell_invariants(memory: MemoryState, node: NodeId, held: NodeMemory) -> Iterator[str]:
    if node not in held.cells:
        yield f"NUMA node {node} is not in its own cells {held.cells}"
    for other in held.cells:
        peer = memory.nodes.get(NodeId(other))
        if peer is None or peer.cells != held.cells:
            yield f"NUMA node {node} has cells {held.cells}, node {other} does not agree"


def _table_invariants(node: NodeId, held: NodeMemory) -> Iterator[str]:
    for kind, table in sorted(held.tables.items()):
        if table.reserved + table.free != table.allocatable or min(table.free, table.reserved) < 0:
            yield (
                f"{kind} on NUMA node {node}: reserved {table.reserved} + free {table.free}"
                f" is not allocatable {table.allocatable}"
            )


def _booking_invariants(memory: MemoryState) -> Iterator[str]:
    """What is reserved over all nodes is the sum of the blocks."""
    booked: dict[ResourceName, int] = {}
    for held in memory.nodes.values():
        for kind, table in held.tables.items():
            booked[kind] = booked.get(kind, 0) + table.reserved
    for uid in {*memory.entries, *memory.pod_entries}:
        for block in counted_blocks(memory, uid):
            booked[block.type] = booked.get(block.type, 0) - block.size
    for kind, rest in sorted(booked.items()):
        if rest > 0:
            yield f"{kind}: {rest} bytes are reserved without a block"
        elif rest < 0:
            yield f"{kind}: {-rest} bytes are in blocks but not reserved"


def counted_blocks(memory: MemoryState, uid: PodUid) -> Sequence[Block]:
    """The blocks that are booked for a pod: its own where it was allocated as one."""
    own = memory.pod_entries.get(uid)
    if own is not None:
        return own
    return [block for blocks in memory.entries.get(uid, {}).values() for block in blocks]
