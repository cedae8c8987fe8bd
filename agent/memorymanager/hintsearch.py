"""The search for sets of NUMA nodes that can serve a memory request (KEP-1769, topology hints).

Every mask of nodes is looked at; one can serve if it passes three rules:

* capacity: its allocatable memory suffices for every type. The narrowest size that passes is the
  minimum affinity size, whatever is in use or grouped at the moment; masks of that size are
  preferred.
* single vs multi: a node never serves both allocations of its own and of a group. A single-node
  mask must not be in a group; a wider mask must be untouched, or be exactly the group that all
  of its used nodes are in.
* free memory: it suffices for every type, counting what the pod can reuse on exactly this mask.

All types are tested at once: a node's bytes are packed into one int with a field per type, a sum
over nodes then sums every field, and after adding (guard bit - request) to each field the guard
bits that are set tell which types suffice. Sums wrap at 64 bits, as the kubelet's do.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, repeat
from typing import Final

from agent.domain.hints import Hints
from agent.domain.idset import NodeMask
from agent.domain.maskspace import EXACT_NODES, MaskSpace, at_hand, mask_space, of_other_sizes
from agent.domain.pod import ResourceName
from agent.domain.state import NodeMemory
from agent.domain.topology import NodeId
from agent.memorymanager.machinestate import UINT64_MAX, MachineState
from agent.memorymanager.requests import Requests
from agent.memorymanager.reuse import MemoryReuse

FIELD_BITS: Final = 80
"""Width of a packed field: a sum of 64-bit sizes over 2^15 nodes, and the guard bit above it."""


@dataclass(frozen=True, slots=True)
class _Packed:
    """A request in packed form: the lowest 64 bits of each field, its top bit, and top bit - request."""

    types: tuple[ResourceName, ...]
    words: int
    guard: int
    slack: int

    @classmethod
    def of(cls, requests: Requests) -> _Packed:
        types = tuple(requests)
        words, guard = _pack([UINT64_MAX] * len(types)), _pack([1 << FIELD_BITS - 1] * len(types))
        return cls(types, words, guard, guard - _pack([requests[kind] for kind in types]))

    def allocatable(self, held: NodeMemory) -> int:
        return _pack([t.allocatable if (t := held.tables.get(kind)) else 0 for kind in self.types])

    def free(self, held: NodeMemory) -> int:
        return _pack([t.free if (t := held.tables.get(kind)) else 0 for kind in self.types])

    def reusable(self, reuse: MemoryReuse, mask: int) -> int:
        return _pack([reuse.of(mask, kind) for kind in self.types])

    def suffices(self, packed: int) -> bool:
        return (packed & self.words) + self.slack & self.guard == self.guard


@dataclass(frozen=True, slots=True)
class SingleOrMulti:
    """The single vs multi rule as bit tests."""

    used: int
    """Nodes with assignments."""
    grouped: int
    """Nodes whose cells are more than the node itself."""
    groups: frozenset[int]
    """Groups on whose extent all their used nodes agree."""

    @classmethod
    def of(cls, nodes: MachineState) -> SingleOrMulti:
        """Read the rule's bits from the machine state."""
        used = grouped = 0
        cells: dict[NodeId, int] = {}
        for node, held in nodes.items():
            group = held.cells.bits
            if group & (group - 1):
                grouped |= 1 << node
            if held.assignments > 0:
                used |= 1 << node
                cells[node] = group
        groups = frozenset(
            group
            for group in cells.values()
            if group & (group - 1) and all(cells[node] == group for node in cells if group >> node & 1)
        )
        return cls(used, grouped, groups)

    def allowed(self, masks: Sequence[int]) -> list[int]:
        """Those of ``masks`` that pass the rule."""
        used, grouped, groups = self.used, self.grouped, self.groups
        if not used and not grouped:
            return list(masks)
        return [m for m in masks if not m & (used if m & (m - 1) else grouped) or m in groups]

    def would_split(self, mask: int) -> bool:
        """Tell whether an allocation on a single node would take it out of the group that uses it."""
        return not mask & (mask - 1) and bool(mask & self.grouped)

    def violated_by(self, mask: int) -> bool:
        """Tell whether an allocation on ``mask`` would break the rule.

        Laxer than `allowed`, as in the kubelet: a single-node mask always passes here.
        """
        return bool(mask & (mask - 1)) and not self.allowed((mask,))


def calculate_hints(nodes: MachineState, requests: Requests, reuse: MemoryReuse) -> Hints | None:
    """The masks that can serve ``requests``; None where no mask that was looked at can."""
    request = _Packed.of(requests)
    ids = _searched(nodes, request)
    search = _Search(
        space=mask_space(ids),
        widest=len(nodes),
        request=request,
        free=[request.free(nodes[node]) for node in ids],
        reusing=_fitting_with_reuse(nodes, request, reuse),
        rule=SingleOrMulti.of(nodes),
    )
    fitting = at_hand(search.space, search.fitting)
    narrowest, preferred = next(iter(fitting()), (0, []))
    if not preferred:
        return None
    size = narrowest
    if narrowest > _fewest_nodes(nodes, requests):
        size = _min_affinity_size(search.space, [request.allocatable(nodes[node]) for node in ids], request)
    return Hints(
        preferred=tuple(preferred) if narrowest == size else (),
        other=of_other_sizes(search.space, fitting, size),
        complete=search.space.complete,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """The search over the sets in ``space``, up to ``widest`` nodes of the machine.

    ``free`` is what each node of the space has, packed; ``reusing`` are masks that suffice together
    with what can be reused on them.
    """

    space: MaskSpace
    widest: int
    request: _Packed
    free: Sequence[int]
    reusing: Sequence[int]
    rule: SingleOrMulti

    def fitting(self) -> Iterator[tuple[int, list[int]]]:
        """Sizes, ascending, each with the masks of as many nodes that can serve; no size without any."""
        words, guard, slack = self.request.words, self.request.guard, self.request.slack
        none: tuple[int, ...] = ()
        listed = zip(self.space.levels, self.space.sums(self.free), strict=True)
        wider = repeat((none, none), self.widest - len(self.space.levels))
        for size, (masks, sums) in enumerate(chain(listed, wider), start=1):
            fits = [
                mask
                for mask, free in zip(masks, sums, strict=True)
                if (free & words) + slack & guard == guard
            ]
            if self.reusing:
                fits += [mask for mask in self.reusing if mask.bit_count() == size]
            if allowed := self.rule.allowed(fits):
                yield size, allowed


def _searched(nodes: MachineState, request: _Packed) -> tuple[NodeId, ...]:
    """The nodes whose sets are searched: all, as the kubelet; on a large machine those that hold something.

    A preferred mask never has a node that holds nothing: it could do without.
    """
    ids = tuple(sorted(nodes))
    if len(ids) <= EXACT_NODES:
        return ids
    return tuple(node for node in ids if request.allocatable(nodes[node]))


def searched_completely(nodes: MachineState, requests: Requests) -> bool:
    """Tell whether `calculate_hints` looks at every set of nodes that hold some of ``requests``."""
    return mask_space(_searched(nodes, _Packed.of(requests))).complete


def _fitting_with_reuse(nodes: MachineState, request: _Packed, reuse: MemoryReuse) -> list[int]:
    """Masks that have capacity and suffice only together with what is reusable on them."""
    fitting = []
    for mask in sorted(reuse.masks):
        held = [nodes[NodeId(node)] for node in NodeMask(mask)]
        free = sum(map(request.free, held))
        if (
            not request.suffices(free)
            and request.suffices(free + request.reusable(reuse, mask))
            and request.suffices(sum(map(request.allocatable, held)))
        ):
            fitting.append(mask)
    return fitting


def _fewest_nodes(nodes: MachineState, requests: Requests) -> int:
    """A lower bound of the minimum affinity size, and most often that size: per type the largest nodes."""
    return max(_nodes_needed(nodes, kind, size) for kind, size in requests.items())


def _nodes_needed(nodes: MachineState, kind: ResourceName, size: int) -> int:
    held = sorted((t.allocatable for h in nodes.values() if (t := h.tables.get(kind))), reverse=True)
    return bisect_left(list(accumulate(held)), size) + 1


def _min_affinity_size(space: MaskSpace, allocatable: Sequence[int], request: _Packed) -> int:
    """The narrowest size with capacity for every type."""
    words, guard, slack = request.words, request.guard, request.slack
    for size, sums in enumerate(space.sums(allocatable), start=1):
        if guard in [(held & words) + slack & guard for held in sums]:
            return size
    return len(space.ids)


def best_mask(hints: Hints) -> NodeMask:
    """The best of some hints: preferred first, then fewest nodes, then lowest value."""
    return NodeMask(min(hints.preferred or hints.other, key=_narrowness))


def containing(hints: Hints, affinity: NodeMask) -> Hints | None:
    """Those of ``hints`` that contain ``affinity``; None if there are none."""
    needed = affinity.bits
    preferred = tuple([mask for mask in hints.preferred if mask & needed == needed])
    other = tuple([mask for mask in hints.other if mask & needed == needed])
    return Hints(preferred, other, hints.complete) if preferred or other else None


def satisfies(nodes: MachineState, affinity: NodeMask, requests: Requests) -> bool:
    """Tell whether the free memory on ``affinity`` suffices, reuse not counted."""
    request = _Packed.of(requests)
    return request.suffices(sum(request.free(nodes[node]) for node in nodes if node in affinity))


def _narrowness(mask: int) -> tuple[int, int]:
    return mask.bit_count(), mask


def _pack(sizes: Sequence[int]) -> int:
    packed = 0
    for field, size in enumerate(sizes):
        packed |= size << field * FIELD_BITS
    return packed
