"""Merging the hints of several resources on large machines."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agent.domain.hints import Hints, Wishes
from agent.domain.maskspace import mask_space
from agent.domain.pod import ResourceName
from agent.domain.settings import Settings, TopologyPolicy
from agent.domain.topology import NodeId, NumaNode, Topology
from agent.topologymanager.policy import TopologyManager, new_topology_manager
from scripts.bench.registry import benchmark

Predicate = Callable[[int], bool]

_RESOURCES = 4
_CLOSEST = {"prefer-closest-numa-nodes": "true"}


def _manager(policy: TopologyPolicy, nodes: int, options: dict[str, str] | None = None) -> TopologyManager:
    numa = tuple(
        NumaNode(id=NodeId(a), distances=tuple(10 + abs(a - b) for b in range(nodes))) for a in range(nodes)
    )
    settings = Settings(topology_policy=policy, topology_options=options or {})
    return new_topology_manager(settings, Topology(cpus=(), nodes=numa))


def _wishes(nodes: int, prefers: Sequence[Predicate], least: int = 1) -> list[Wishes]:
    """A resource for each of ``prefers``, with all sets of at least ``least`` nodes as hints."""
    space = mask_space(tuple(range(nodes)))
    masks = [mask for mask in space.masks if mask.bit_count() >= least]
    return [
        {
            ResourceName(f"example.com/{number}"): Hints(
                preferred=tuple(filter(prefer, masks)),
                other=tuple(mask for mask in masks if not prefer(mask)),
                complete=space.complete,
            )
        }
        for number, prefer in enumerate(prefers)
    ]


def _one_node(mask: int) -> bool:
    return mask.bit_count() == 1


def _everything(mask: int) -> bool:
    return mask > 0


def _node(number: int) -> Predicate:
    return lambda mask: mask == 1 << number


def _first_nodes(count: int) -> Predicate:
    return lambda mask: mask == (1 << count) - 1


def _merge(manager: TopologyManager, providers: Sequence[Wishes]) -> Callable[[], object]:
    return lambda: manager.merge(providers, "main")


def _agreeing(nodes: int) -> Callable[[], object]:
    return _merge(_manager(TopologyPolicy.RESTRICTED, nodes), _wishes(nodes, [_one_node] * _RESOURCES))


def _disagreeing(nodes: int) -> Callable[[], object]:
    prefers = [_node(number) for number in range(_RESOURCES)]
    return _merge(_manager(TopologyPolicy.BEST_EFFORT, nodes), _wishes(nodes, prefers))


@benchmark(aim=10)
def agree_8_nodes() -> Callable[[], object]:
    """4 resources x 255 hints, a node that all prefer."""
    return _agreeing(8)


@benchmark(aim=10)
def disagree_8_nodes() -> Callable[[], object]:
    """4 resources x 255 hints, none that all prefer."""
    return _disagreeing(8)


@benchmark(aim=100)
def agree_16_nodes() -> Callable[[], object]:
    """4 resources x 65,535 hints, a node that all prefer."""
    return _agreeing(16)


@benchmark(aim=100)
def all_preferred_16_nodes() -> Callable[[], object]:
    """4 resources x 65,535 hints, all of them preferred."""
    wishes = _wishes(16, [_everything] * _RESOURCES)
    return _merge(_manager(TopologyPolicy.RESTRICTED, 16), wishes)


@benchmark(aim=100)
def disagree_16_nodes() -> Callable[[], object]:
    """4 resources x 65,535 hints, none that all prefer."""
    return _disagreeing(16)


@benchmark(aim=100)
def disagree_closest_16_nodes() -> Callable[[], object]:
    """4 resources x 39,203 hints of 8 nodes and more, none that all prefer, ranked by distance."""
    wishes = _wishes(16, [_first_nodes(8 + number) for number in range(_RESOURCES)], least=8)
    return _merge(_manager(TopologyPolicy.BEST_EFFORT, 16, _CLOSEST), wishes)


@benchmark(aim=20)
def two_of_34_nodes_with_cpus() -> Callable[[], object]:
    """34 nodes with memory, 2 with CPUs; cpu and memory agree."""
    cpu, memory = _wishes(2, [_one_node]), _wishes(34, [_one_node])
    return _merge(_manager(TopologyPolicy.BEST_EFFORT, 34), [*cpu, *memory])


@benchmark(aim=20)
def two_of_34_nodes_with_cpus_disagree() -> Callable[[], object]:
    """34 nodes with memory, 2 with CPUs; cpu and memory disagree."""
    cpu, memory = _wishes(2, [_first_nodes(2)]), _wishes(34, [_one_node])
    return _merge(_manager(TopologyPolicy.BEST_EFFORT, 34), [*cpu, *memory])


@benchmark(aim=20)
def single_numa_node_64_nodes() -> Callable[[], object]:
    """4 resources on 64 nodes under single-numa-node."""
    wishes = _wishes(64, [_one_node] * _RESOURCES)
    return _merge(_manager(TopologyPolicy.SINGLE_NUMA_NODE, 64), wishes)
