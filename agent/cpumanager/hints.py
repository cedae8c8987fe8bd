"""Topology hints for CPUs: which sets of NUMA nodes can serve a request (KEP-693)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from agent.domain.hints import Deferred, Hints, Impossible, Wish
from agent.domain.idset import CpuSet, NodeMask
from agent.domain.maskspace import Levels, MaskSpace, at_hand, mask_space, of_other_sizes
from agent.domain.topology import NodeId, Topology


class HintSearch:
    """The search over all sets of the nodes that have CPUs; the tables are built once."""

    def __init__(self, topology: Topology, *, align_by_socket: bool) -> None:
        self.ids = tuple(topology.cpu_nodes)
        self.cpus = tuple(topology.node_cpus[NodeId(node)].bits for node in self.ids)
        self.largest = sorted(map(int.bit_count, self.cpus), reverse=True)
        self.nodes_per_socket = len(self.ids) // max(1, len(topology.sockets))
        self.spans = _spans(topology, self.ids) if align_by_socket and self.nodes_per_socket else {}

    def wish(self, available: CpuSet, reusable: CpuSet, request: int) -> Wish:
        """The sets that can serve ``request`` CPUs.

        A set serves when it holds all ``reusable`` CPUs and these with the ``available`` ones in it
        suffice. It is preferred when it has as few nodes as an empty machine would need, or with
        align-by-socket as few sockets.
        """
        space = mask_space(self.ids)
        free = [(cpus & available.bits).bit_count() for cpus in self.cpus]
        missing = request - len(reusable)
        able = at_hand(space, partial(_able, space, free, missing, self._nodes_of(reusable)))
        fewest = self.min_affinity_size(request)
        if sum(free) < missing:
            return Impossible(self._too_few(sum(free) + len(reusable), request))
        other: tuple[int, ...] | Deferred
        if self.spans:
            preferred, other = self._by_sockets(able, fewest)
        else:
            preferred = next((tuple(masks) for size, masks in able() if size == fewest), ())
            other = of_other_sizes(space, able, fewest)
        if preferred or any(masks for _, masks in able()):
            return Hints(preferred, other, complete=space.complete)
        return Impossible(self._none_narrow(request))

    def _by_sockets(self, able: Levels, fewest: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Preferred and other sets under align-by-socket."""
        sockets = -(-fewest // self.nodes_per_socket)
        preferred: list[int] = []
        other: list[int] = []
        for size, masks in able():
            for mask in masks:
                near = size == fewest or self.spans[mask].bit_count() == sockets
                (preferred if near else other).append(mask)
        return tuple(preferred), tuple(other)

    def min_affinity_size(self, request: int) -> int:
        """The fewest nodes whose CPUs, taken or not, can hold ``request``; all if none can."""
        total = 0
        for count, cpus in enumerate(self.largest, start=1):
            total += cpus
            if total >= request:
                return count
        return len(self.largest)

    def _nodes_of(self, cpus: CpuSet) -> int:
        return sum(1 << node for node, own in zip(self.ids, self.cpus, strict=True) if own & cpus.bits)

    def _too_few(self, free: int, request: int) -> str:
        return f"{request} CPUs requested, only {free} free on NUMA nodes {NodeMask.of(self.ids)}"

    def _none_narrow(self, request: int) -> str:
        return (
            f"{request} CPUs requested, no small set of NUMA nodes has as many free,"
            f" and {len(self.ids)} nodes are too many to look at all sets"
        )


def _able(space: MaskSpace, free: Sequence[int], missing: int, must: int) -> Iterator[tuple[int, list[int]]]:
    """By size, the sets that have ``missing`` CPUs free and contain ``must``."""
    for size, (masks, sums) in enumerate(zip(space.levels, space.sums(free), strict=True), start=1):
        serving = [mask for mask, total in zip(masks, sums, strict=True) if total >= missing]
        yield size, [mask for mask in serving if mask & must == must] if must else serving


def _spans(topology: Topology, ids: tuple[int, ...]) -> Mapping[int, int]:
    """For each set of nodes the sockets it touches, one bit a socket."""
    own = {
        1 << node: sum(
            1 << place
            for place, cpus in enumerate(topology.sockets.values())
            if not cpus.isdisjoint(topology.node_cpus[NodeId(node)])
        )
        for node in ids
    }
    spans = {0: 0}
    for mask in mask_space(ids).masks:
        rest = mask & (mask - 1)
        spans[mask] = spans[rest] | own[mask ^ rest]
    return spans
