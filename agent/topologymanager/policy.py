"""The Topology manager: what a policy makes of the hints of all resources (KEP-693).

The kubelet forms every permutation of one hint per resource, ANDs its masks, and keeps the better
of each two by a rule that looks as if it depended on their order. It does not:

* A permutation is preferred if all its hints are and all its masks are equal. Preferred beats
  not preferred, and among preferred ones the first of a total order wins. So the candidates are
  just the masks that *every* list prefers, a preferred hint without affinity agreeing to all.
* Else the rule is a total order of the ANDs as well. With B, the bit count of the narrowest mask
  of the resource that needs most nodes: ANDs of B nodes first, then of B-1, B-2, …, then of B+1,
  B+2, …. A permutation's AND is all that counts, so `reachable` finds the set of ANDs.
* Ties: the lowest mask, or with prefer-closest-numa-nodes the lowest mean distance first.

Nothing here grows with the number of permutations. Hints without any opinion change neither and
are left out. The limit of 8 NUMA nodes that the kubelet needs is thus kept only if asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import compress
from operator import add, itemgetter, or_

from agent.domain.hints import ANY_NODE, ANY_NODE_BITS, NO_PREFERENCE, Hint, Hints, Impossible, Wishes
from agent.domain.idset import NodeMask, iter_bits
from agent.domain.maskspace import EXACT_NODES
from agent.domain.pod import ResourceName
from agent.domain.settings import Settings, TopologyPolicy, TopologyScope
from agent.domain.topology import Topology
from agent.domain.trace import Merged
from agent.errors import AdmissionError, ConfigError
from agent.topologymanager.options import policy_options
from agent.topologymanager.reachable import MaskList, OutOfReachError, reachable

Distances = Mapping[int, Mapping[int, int]]
_Lists = Mapping[tuple[int, ResourceName], Hints]

_NO_AFFINITY = frozenset((ANY_NODE_BITS,))
_DENSE = 16
"""Where at least one in so many sets is looked at, the sums of all of them are found sooner than theirs alone."""
_IMPOSSIBLE = Hints(preferred=(), other=(ANY_NODE_BITS,))


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyManager:
    """Merges hints under one policy. ``distances`` None: the lowest mask wins a tie."""

    policy: TopologyPolicy
    scope: TopologyScope
    nodes: NodeMask
    distances: Distances | None = None

    def merge(self, providers: Sequence[Wishes], container: str) -> Merged:
        """Merge what all providers wish for ``container``.

        Raises AdmissionError where best-effort would have to rank more masks than can be.
        """
        if self.policy is TopologyPolicy.NONE:
            return _taken(container, Hint(ANY_NODE, preferred=False))
        lists = _hint_lists(providers)
        hint = self._preferred(lists)
        if hint is not None:
            return _taken(container, hint)
        if self.policy is TopologyPolicy.BEST_EFFORT:
            return _taken(container, self._unpreferred(lists))
        return Merged(container, admitted=False, merging=partial(self._unpreferred, lists))

    def _preferred(self, lists: _Lists) -> Hint | None:
        single = self.policy is TopologyPolicy.SINGLE_NUMA_NODE
        wished = [_single_nodes(hints) if single else hints for hints in lists.values()]
        common = _preferred_by_all(wished, self.nodes.bits)
        if not common:
            return None
        mask = NodeMask(self._best(common, 0))
        return Hint(ANY_NODE if single and mask == self.nodes else mask, preferred=True)

    def _unpreferred(self, lists: _Lists) -> Hint:
        if self.policy is TopologyPolicy.SINGLE_NUMA_NODE:
            return Hint(ANY_NODE, preferred=False)
        return Hint(NodeMask(self._best_unpreferred(lists)), preferred=False)

    def _best_unpreferred(self, lists: _Lists) -> int:
        held = [MaskList(frozenset(h.preferred).union(h.other), h.complete) for h in lists.values()]
        try:
            masks = reachable(held, self.nodes.bits)
        except OutOfReachError as error:
            if self.policy is TopologyPolicy.BEST_EFFORT:
                raise _unranked(lists) from error
            return self.nodes.bits  # refused whichever mask it is
        return self._best(masks, max(map(_narrowest, held), default=0)) if masks else self.nodes.bits

    def _best(self, masks: Collection[int], count: int) -> int:
        """The first mask in the order: ``count`` bits, then fewer one by one, then more; then ties."""
        sizes = set(map(int.bit_count, masks))
        size = min(sizes, key=lambda bits: (bits > count, abs(bits - count)))
        tied = list(compress(masks, map(size.__eq__, map(int.bit_count, masks))))
        if self.distances is None or len(tied) == 1:
            return min(tied)
        return min(zip(_distance_sums(tied, self.distances), tied, strict=True))[1]


def _taken(container: str, hint: Hint) -> Merged:
    return Merged(container, admitted=True, merging=lambda: hint)


def new_topology_manager(settings: Settings, topology: Topology) -> TopologyManager:
    """Check the options against the machine; raise ConfigError with the kubelet's text.

    As in the kubelet, policy none looks at no option.
    """
    policy, scope, nodes = settings.topology_policy, settings.topology_scope, topology.all_nodes
    if policy is TopologyPolicy.NONE:
        return TopologyManager(policy=policy, scope=scope, nodes=nodes)
    options = policy_options(settings.topology_options)
    distances = _distances(topology) if options.prefer_closest else None
    most = options.max_allowable_nodes
    if most is not None and len(nodes) > most:
        raise ConfigError(
            f"unsupported on machines with more than {most} NUMA Nodes",
            hint=f"this one has {len(nodes)}; raise max-allowable-numa-nodes or leave it out",
        )
    if policy is TopologyPolicy.SINGLE_NUMA_NODE:
        distances = None  # the reference takes the lowest node, whatever its distance to itself
    return TopologyManager(policy=policy, scope=scope, nodes=nodes, distances=distances)


def _distances(topology: Topology) -> Distances:
    ids = [node.id for node in topology.nodes]
    for node in topology.nodes:
        if len(node.distances) != len(ids):
            raise ConfigError(
                "cannot discover NUMA topology: error getting NUMA distances from cadvisor",
                hint=f"NUMA node {node.id} shows {len(node.distances)} distances for {len(ids)} nodes;"
                " prefer-closest-numa-nodes cannot be used on this machine",
            )
    return {node.id: dict(zip(ids, node.distances, strict=True)) for node in topology.nodes}


def _distance_sums(masks: Sequence[int], distances: Distances) -> Iterable[int]:
    """Per mask the sum over all ordered pairs of its nodes: ranks masks of one size as the mean does."""
    ids = tuple(iter_bits(reduce(or_, masks)))
    if len(masks) * _DENSE < 1 << len(ids):
        return (_distance_sum(mask, distances) for mask in masks)
    return map(_all_distance_sums(ids, distances).__getitem__, masks)


def _distance_sum(mask: int, distances: Distances) -> int:
    nodes = tuple(iter_bits(mask))
    if len(nodes) == 1:
        return distances[nodes[0]][nodes[0]]
    pick = itemgetter(*nodes)
    return sum(map(sum, map(pick, pick(distances))))


def _all_distance_sums(ids: Sequence[int], distances: Distances) -> Mapping[int, int]:
    """The sums of every set of ``ids``: each from the one without its last node."""
    masks, sums = [0], [0]
    for position, node in enumerate(ids):
        there_and_back = [distances[node][node]]
        for other in ids[:position]:
            apart = distances[node][other] + distances[other][node]
            there_and_back += [length + apart for length in there_and_back]
        sums += map(add, sums, there_and_back)
        masks += [mask | 1 << node for mask in masks]
    return dict(zip(masks, sums, strict=True))


def _hint_lists(providers: Sequence[Wishes]) -> _Lists:
    """One list per provider and resource that has an opinion."""
    return {
        (position, resource): _IMPOSSIBLE if isinstance(wish, Impossible) else wish
        for position, wishes in enumerate(providers)
        for resource, wish in wishes.items()
        if wish is not NO_PREFERENCE
    }


def _single_nodes(hints: Hints) -> Hints:
    kept = tuple(mask for mask in hints.preferred if mask == ANY_NODE_BITS or mask.bit_count() == 1)
    return replace(hints, preferred=kept, other=())


def _preferred_by_all(lists: Sequence[Hints], nodes: int) -> set[int]:
    """The masks, cut to ``nodes``, that some preferred permutation yields; never the empty one."""
    if not all(hints.preferred for hints in lists):
        return set()
    choosy = [hints.preferred for hints in lists if ANY_NODE_BITS not in hints.preferred]
    if choosy:
        shortest, *rest = sorted(choosy, key=len)
        common = set(shortest).intersection(*rest)
    else:
        common = {nodes}.union(*(hints.preferred for hints in lists))
    return {mask & nodes for mask in common} - {0}


def _narrowest(held: MaskList) -> int:
    """The bit count of the narrowest mask; a hint without affinity has none, and 0 if all are such."""
    masks = held.masks - _NO_AFFINITY if ANY_NODE_BITS in held.masks else held.masks
    return min(map(int.bit_count, masks), default=0)


def _unranked(lists: _Lists) -> AdmissionError:
    covers = {
        key: reduce(or_, {*hints.preferred, *hints.other} - _NO_AFFINITY, 0).bit_count()
        for key, hints in lists.items()
    }
    key = max(covers, key=lambda key: (covers[key], key))
    return AdmissionError(
        f"no NUMA placement is preferred by all resources, and with {covers[key]} NUMA nodes that hold"
        f" {key[1]} the other placements are too many to rank",
        reason="TopologyAffinityError",
        hint=f"placements are ranked on up to {EXACT_NODES} NUMA nodes; ask for what fewer nodes can give,"
        " or use topology policy none",
    )
