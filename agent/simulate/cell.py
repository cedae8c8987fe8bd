"""One cell under one variant: pods come, a scheduler picks nodes by free amounts, the nodes decide, pods end.

The scheduler is kube-scheduler's NodeResourcesFit: it counts requests against what is allocatable and knows
nothing of NUMA nodes. What it picked may refuse the pod; then the next best is asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import Final

from agent.admission import Managers, Rejected, adapted, decide, new_managers, remove_pod
from agent.domain.pod import CPU, MEMORY, PodUid, ResourceName
from agent.domain.settings import CpuPolicy
from agent.domain.state import NodeState
from agent.domain.topology import NodeId, Topology
from agent.simulate.fleet import Amounts, Fleet, PodClass, Score, Variant
from agent.simulate.result import SAMPLES, UNSCHEDULABLE, Free, Result
from agent.simulate.stream import Randomness, arrivals

SCORED: Final = (CPU, MEMORY)
"""What NodeResourcesFit weighs by default, equally."""
_SIGNS: Final = {Score.MOST_ALLOCATED: -1.0, Score.LEAST_ALLOCATED: 1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeKind:
    """A shape under a variant: its managers, how it begins, and the CPUs of each NUMA node that can be given."""

    managers: Managers
    empty: NodeState
    allocatable: Amounts
    most_pods: int
    numa_nodes: tuple[tuple[NodeId, int], ...]


def node_kinds(fleet: Fleet, variant: Variant) -> tuple[NodeKind, ...]:
    """What the nodes of each shape are under ``variant``; costs enough to be done once a process."""
    return tuple(
        _kind(new_managers(settings, shape.topology), shape.topology, allocatable, shape.most_pods)
        for shape, settings, allocatable in zip(
            fleet.shapes, variant.settings, variant.allocatable, strict=True
        )
    )


def _kind(managers: Managers, topology: Topology, allocatable: Amounts, most_pods: int) -> NodeKind:
    exclusive = managers.settings.cpu_policy is CpuPolicy.STATIC  # or else no CPU is anybody's alone
    return NodeKind(
        managers=managers,
        empty=adapted(managers, NodeState()),
        allocatable=allocatable,
        most_pods=most_pods,
        numa_nodes=tuple(
            (node, (cpus - managers.cpu.reserved).bits)
            for node, cpus in topology.node_cpus.items()
            if node >= 0 and exclusive
        ),
    )


class _Node:
    """One node: what it decided, and what a scheduler believes to be free."""

    __slots__ = ("cpu", "free", "kind", "memory", "pods_left", "refused", "shape", "share", "state")

    def __init__(self, shape: int, kind: NodeKind) -> None:
        self.shape = shape
        self.kind = kind
        self.state = kind.empty
        self.free = dict(kind.allocatable)
        self.cpu, self.memory = self.free[CPU], self.free[MEMORY]  # the two that each pod is compared with
        self.pods_left = kind.most_pods
        self.refused: dict[int, str] = {}
        """Reason by class of pod: a decision depends on the state, so it holds until that changes."""
        self.share = 0.0

    def changed(self, state: NodeState, request: Amounts, sign: int) -> None:
        """A pod was admitted (1) or removed (-1)."""
        self.state = state
        free, sizes = self.free, self.kind.allocatable
        for name, amount in request.items():
            if name in free:
                free[name] -= sign * amount
        self.cpu, self.memory = free[CPU], free[MEMORY]
        self.pods_left -= sign
        self.refused.clear()
        self.share = sum(1 - free[name] / sizes[name] for name in SCORED if sizes[name])


class Cell:
    """A simulation under way."""

    def __init__(
        self, fleet: Fleet, variant: int, cell: int, kinds: Sequence[NodeKind], randomness: Randomness
    ) -> None:
        self.fleet = fleet
        self.variant = variant
        self.randomness = randomness
        self.nodes = [_Node(shape, kinds[shape]) for shape in fleet.cell_shapes(cell)]
        self.pods = fleet.cell_pods(cell)
        self.result = Result(cells=1)
        self._ends: list[tuple[float, int, int, int]] = []
        self._looked = 0
        self._weights = [
            [_weight(one, kind.allocatable) for kind in kinds] for one in fleet.classes
        ]  # what a pod adds to the share of a node that takes it

    def run(self, stream: Randomness) -> Result:
        """Place the pods that ``stream`` draws; every variant gets the same ones."""
        fleet = self.fleet
        for number, (now, kind, end) in enumerate(arrivals(stream, fleet.classes, self.pods, fleet.horizon)):
            self._advance(now)
            self._arrive(number, kind, end)
        self._advance(fleet.horizon)
        self.result.running = len(self._ends)
        return self.result

    def _advance(self, now: float) -> None:
        """Let pods end, and look at the nodes, up to ``now``."""
        step = self.fleet.horizon / SAMPLES
        while self._looked < SAMPLES and (at := step * (self._looked + 1)) <= now:
            self._end(at)
            self._look(self._looked)
            self._looked += 1
        self._end(now)

    def _end(self, now: float) -> None:
        ends = self._ends
        while ends and ends[0][0] <= now:
            _, number, place, kind = heappop(ends)
            node = self.nodes[place]
            state = remove_pod(node.kind.managers, node.state, _uid(number))
            node.changed(state, self.fleet.classes[kind].request, -1)
            self.result.ended += 1

    def _arrive(self, number: int, kind: int, end: float) -> None:
        one, result = self.fleet.classes[kind], self.result
        result.arrived[kind] += 1
        reason = UNSCHEDULABLE
        pod = None
        for place in self._picked(kind, one):
            node = self.nodes[place]
            reason = node.refused.get(kind, "")
            if reason:
                result.remembered += 1
            else:
                pod = pod or replace(one.pods[self.variant], uid=_uid(number))
                decision = decide(node.kind.managers, node.state, pod)
                if not isinstance(decision, Rejected):
                    node.changed(decision.state, one.request, 1)
                    heappush(self._ends, (end, number, place, kind))
                    result.admitted[kind] += 1
                    return
                reason = node.refused[kind] = decision.reason
            result.refusals[reason] += 1
        result.lost[reason] += 1

    def _picked(self, kind: int, one: PodClass) -> Iterator[int]:
        """The nodes to ask, the best first, the lowest number of equals; at most one more than retries."""
        ranked = self._ranked(kind, one.request)
        for _ in range(min(len(ranked), self.fleet.retries + 1)):
            best = min(ranked)
            yield best[1]
            ranked.remove(best)

    def _ranked(self, kind: int, request: Amounts) -> list[tuple[float, int]]:
        """The nodes with room, each with its rank: less is better."""
        cpu, memory = request.get(CPU, 0), request.get(MEMORY, 0)
        rest = [(name, amount) for name, amount in request.items() if name not in SCORED]
        roomy = [
            (place, node)
            for place, node in enumerate(self.nodes)
            if node.cpu >= cpu
            and node.memory >= memory
            and node.pods_left
            and (not rest or _has(node.free, rest))
        ]
        if self.fleet.score is Score.RANDOM:
            return [(self.randomness.random(), place) for place, _ in roomy]
        sign, weights = _SIGNS[self.fleet.score], self._weights[kind]
        return [(sign * (node.share + weights[node.shape]), place) for place, node in roomy]

    def _look(self, number: int) -> None:
        look, places = self.result.looks[number], self.result.places
        for node in self.nodes:
            allocatable = node.kind.allocatable[CPU]
            look.allocatable += allocatable
            look.requested += allocatable - node.free[CPU]
            for numa, seen, held in self._free(node):
                look.free.add(seen)
                look.exclusive += held
                if number >= SAMPLES // 2:
                    places.setdefault((node.shape, numa), Free()).add(seen)

    def _free(self, node: _Node) -> Iterator[tuple[NodeId, Free, int]]:
        """Of each NUMA node: what is free, and how many CPUs are held."""
        default, memory = node.state.cpu.default.bits, node.state.memory.nodes
        for numa, cpus in node.kind.numa_nodes:
            free = (default & cpus).bit_count()
            room = (
                memory[numa].tables[MEMORY].free if numa in memory else None
            )  # None: not bound to NUMA nodes
            useless = {
                index: free
                for index, demand in enumerate(self.fleet.demands)
                if free < demand.cpus or (room is not None and room < demand.memory)
            }
            yield numa, Free(looks=1, cpus=free, useless=Counter(useless)), cpus.bit_count() - free


def _uid(number: int) -> PodUid:
    return PodUid(f"pod-{number}")


def _weight(one: PodClass, sizes: Amounts) -> float:
    return sum(one.request.get(name, 0) / sizes[name] for name in SCORED if sizes[name])


def _has(free: Amounts, wanted: Iterable[tuple[ResourceName, int]]) -> bool:
    return all(free.get(name, 0) >= amount for name, amount in wanted)
