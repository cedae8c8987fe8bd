"""What is free where, which NUMA nodes come closest to a request, and what is missing there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Final

from agent.domain.idset import CpuSet, NodeMask
from agent.domain.pod import CPU, ResourceName
from agent.domain.state import MemoryState
from agent.domain.topology import NodeId, Topology
from agent.explain.edits import Amounts
from agent.explain.english import listed, plural
from agent.explain.words import amount, bytes_text, nodes_text

MAX_SETS: Final = 256
"""More sets of NUMA nodes than this are not compared one by one."""
SHOWN_GROUPS: Final = 4

MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """Per NUMA node and resource what is ``free``, what pods can have at most, and what there is.

    ``capacity`` counts reserved CPUs too: the CPU manager's hints measure an empty machine by them.
    """

    free: Mapping[NodeId, Amounts]
    usable: Mapping[NodeId, Amounts]
    capacity: Mapping[NodeId, Amounts]
    memory: MemoryState

    @classmethod
    def of(cls, machine: Topology, available: CpuSet, reserved: CpuSet, memory: MemoryState) -> Ground:
        """``available`` are the CPUs that may be given exclusively now, ``reserved`` never are."""
        free: dict[NodeId, dict[ResourceName, int]] = {}
        usable: dict[NodeId, dict[ResourceName, int]] = {}
        capacity: dict[NodeId, dict[ResourceName, int]] = {}
        for node in machine.nodes:
            cpus, held = node.cpus, memory.nodes.get(node.id)
            tables = held.tables if held else {}
            free[node.id] = {CPU: len(cpus & available), **{kind: t.free for kind, t in tables.items()}}
            usable[node.id] = {CPU: len(cpus - reserved), **{k: t.allocatable for k, t in tables.items()}}
            capacity[node.id] = {CPU: len(cpus), **{k: t.allocatable for k, t in tables.items()}}
        return cls(free=free, usable=usable, capacity=capacity, memory=memory)

    def free_on(self, nodes: NodeMask, resource: ResourceName) -> int:
        """How much of ``resource`` one allocation on ``nodes`` could have now."""
        if resource != CPU and self.is_blocked(nodes):
            return 0
        return sum(self.free[NodeId(node)].get(resource, 0) for node in nodes)

    def usable_on(self, nodes: NodeMask, resource: ResourceName) -> int:
        """How much of ``resource`` pods could have on ``nodes`` if none were there."""
        return sum(self.usable[NodeId(node)].get(resource, 0) for node in nodes)

    def is_blocked(self, nodes: NodeMask) -> bool:
        """KEP-1769: a node never serves both allocations of its own and of a group."""
        held = [self.memory.nodes[NodeId(node)] for node in nodes if NodeId(node) in self.memory.nodes]
        if len(nodes) == 1:
            return any(len(one.cells) > 1 for one in held)
        return any(one.assignments and one.cells != nodes for one in held)

    def fewest(self, resource: ResourceName, size: int) -> int | None:
        """The fewest nodes that can hold ``size`` on an empty machine; None if all cannot."""
        return next((n for n in range(1, len(self.capacity) + 1) if self.largest(resource, n) >= size), None)

    def largest(self, resource: ResourceName, count: int) -> int:
        """What the ``count`` largest nodes have of ``resource``."""
        return sum(sorted((held.get(resource, 0) for held in self.capacity.values()), reverse=True)[:count])

    def closest(self, wanted: Amounts, count: int) -> NodeMask:
        """The set of ``count`` nodes that lacks least of ``wanted``; the lowest of equals."""
        return min(self._sets(wanted, count), key=lambda nodes: (self._lack(nodes, wanted), nodes.bits))

    def _lack(self, nodes: NodeMask, wanted: Amounts) -> float:
        """The sum of the missing shares: 1.0 is all of one resource."""
        return sum(
            max(0, size - self.free_on(nodes, resource)) / size for resource, size in wanted.items() if size
        )

    def _sets(self, wanted: Amounts, count: int) -> Iterator[NodeMask]:
        ids = sorted(self.free)
        if comb(len(ids), count) <= MAX_SETS:
            return map(NodeMask.of, combinations(ids, count))
        ranked = sorted(ids, key=lambda node: (self._lack(NodeMask.of((node,)), wanted), node))
        return iter((NodeMask.of(ranked[:count]),))

    def missing(self, nodes: NodeMask, wanted: Amounts) -> Amounts:
        """What ``nodes`` lack of ``wanted``; only what is missing."""
        lacks = {resource: size - self.free_on(nodes, resource) for resource, size in wanted.items()}
        return {resource: lack for resource, lack in lacks.items() if lack > 0}

    def scarce(self, nodes: NodeMask, wanted: Amounts) -> tuple[ResourceName, ...]:
        """The resources worth showing: not every set as wide as ``nodes`` has enough of them."""
        lacks = self.missing(nodes, wanted)
        narrow = [NodeMask.of((node,)) for node in self.free] if len(nodes) == 1 else []
        return tuple(
            resource
            for resource, size in wanted.items()
            if resource in lacks or any(self.free_on(node, resource) < size for node in narrow)
        )

    def offer(self, nodes: NodeMask, wanted: Amounts, multiple: int) -> Amounts:
        """The part of ``wanted`` that ``nodes`` have, in amounts one would write down."""
        return {
            resource: min(size, _round(resource, self.free_on(nodes, resource), multiple))
            for resource, size in wanted.items()
        }

    def overview(self, resources: Sequence[ResourceName]) -> str:
        """``NUMA node 0: 3 of 8 CPUs; NUMA nodes 1-7: 8 of 8 CPUs``; nodes that offer the same together."""
        same: dict[str, list[int]] = {}
        for node in sorted(self.free):
            same.setdefault(self._free_text(node, resources), []).append(node)
        groups = [f"{nodes_text(NodeMask.of(nodes))}: {text}" for text, nodes in same.items() if text]
        rest = len(groups) - SHOWN_GROUPS
        more = (f"and {plural(rest, 'group')} of nodes more",) if rest > 0 else ()
        return "; ".join((*groups[:SHOWN_GROUPS], *more))

    def _free_text(self, node: NodeId, resources: Sequence[ResourceName]) -> str:
        """Empty for a node that never has any of it."""
        usable, free = self.usable[node], self.free[node]
        parts = [
            f"{free[r]} of {amount(r, usable[r])}"
            if r == CPU
            else f"{r} {bytes_text(free[r])} of {bytes_text(usable[r])}"
            for r in resources
            if usable.get(r)
        ]
        held = self.memory.nodes.get(node)
        if parts and held and len(held.cells) > 1:
            parts.append(f"memory in use as one group, {nodes_text(held.cells)}")
        return ", ".join(parts)

    def shortage(self, nodes: NodeMask, wanted: Amounts) -> str:
        """``NUMA node 0 comes closest, 1 CPU is missing``."""
        lacks = self.missing(nodes, wanted)
        many = len(nodes) > 1
        who = f"{nodes_text(nodes)} {'come' if many else 'comes'} closest"
        if not lacks:
            return who
        what = listed([amount(resource, lack) for resource, lack in lacks.items()])
        single = len(lacks) == 1 and (lacks.get(CPU) == 1 or CPU not in lacks)
        return f"{who}, {what} {'is' if single else 'are'} missing"


def _round(resource: ResourceName, size: int, multiple: int) -> int:
    """Down to whole cores for CPUs, to MiB for memory; huge pages are whole already."""
    if resource == CPU:
        return size - size % multiple
    return size - size % MIB if size > MIB else size
