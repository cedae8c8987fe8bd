"""Topology hints for CPUs: which sets of NUMA nodes can serve a request (KEP-693)."""

from __future__ import annotations

from collections.abc import Mapping

from agent.domain.hints import Hints, Impossible, Wish
from agent.domain.idset import CpuSet, NodeMask
from agent.domain.maskspace import mask_space
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
        must = self._nodes_of(reusable)
        missing = request - len(reusable)
        fewest = self.min_affinity_size(request)
        able = [
            (mask, size)
            for mask, size, total in zip(space.masks, space.sizes, space.sums(free), strict=True)
            if total >= missing and must & mask == must
        ]
        if not able:
            return Impossible(self._why(sum(free) + len(reusable), request, complete=space.complete))
        if self.spans:
            sockets = -(-fewest // self.nodes_per_socket)
            wide = {m for m, size in able if size != fewest and self.spans[m].bit_count() != sockets}
            preferred = tuple(mask for mask, _ in able if mask not in wide)
            other = tuple(mask for mask, _ in able if mask in wide)
        else:
            preferred = tuple(mask for mask, size in able if size == fewest)
            other = tuple(mask for mask, size in able if size != fewest)
        return Hints(preferred, other, complete=space.complete)

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

    def _why(self, free: int, request: int, *, complete: bool) -> str:
        if complete or free < request:
            return f"{request} CPUs requested, only {free} free on NUMA nodes {NodeMask.of(self.ids)}"
        return (
            f"{request} CPUs requested, no small set of NUMA nodes has as many free,"
            f" and {len(self.ids)} nodes are too many to look at all sets"
        )


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
