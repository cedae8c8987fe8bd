"""Pods on nodes: figures worked out by hand, and what has to add up in any run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.admission import Admitted, Rejected, admit, decide
from agent.cli.simulation import simulate
from agent.domain.pod import CPU, MEMORY, PodUid
from agent.domain.state import invariants
from agent.domain.trace import Refused
from agent.simulate.cell import Cell, node_kinds
from agent.simulate.report import figures
from tests.simulate.fleets import (
    cell_of,
    container,
    document,
    example,
    fleet_of,
    results,
    seeded,
    template,
    variant,
)

THREE_CPUS = [template("three", container("main", "3"))]


def test_a_split_rest_is_refused_by_one_policy_and_given_by_another() -> None:
    """9 CPUs to give on a machine, 4 and 5 of a NUMA node: two pods of 3 leave 1 and 2, the third is split."""
    strict, lenient = results(
        document(variant("single-numa-node"), variant("best-effort"), templates=THREE_CPUS, total=7)
    )
    assert strict.admitted.total() == 4
    assert strict.lost == {"TopologyAffinityError": 3}
    assert lenient.admitted.total() == 6
    assert lenient.lost == {"Unschedulable": 1}
    assert not lenient.refusals


def test_a_refused_pod_is_tried_on_as_many_other_nodes_as_retries_say() -> None:
    """The fuller machine is asked first: it takes two pods and refuses the five that come after."""
    for retries, admitted, refusals in ((0, 2, 5), (1, 4, 2 + 3 * 2), (2, 4, 2 + 3 * 2)):
        stated = document(variant("single-numa-node"), templates=THREE_CPUS, total=7)
        (result,) = results({**stated, "scheduler": {"retries": retries}})
        assert result.admitted.total() == admitted
        assert result.refusals == {"TopologyAffinityError": refusals}


def test_what_is_left_is_counted_as_of_no_use() -> None:
    """In the end each machine has 1 and 2 CPUs left of 9, on NUMA nodes without room for 3."""
    fleet = fleet_of(document(variant("single-numa-node"), templates=THREE_CPUS, total=7))
    outcome = simulate(fleet, 1, lambda _: None)
    last = outcome.results[0].looks[-1]
    assert (last.requested, last.allocatable) == (12_000, 18_000)
    assert (last.exclusive, last.free.cpus) == (12, 6)
    assert dict(last.free.useless) == {0: 6, 1: 6, 2: 6}
    (found,) = figures(fleet, outcome.results)
    assert found.useless[0] <= found.free < 1


def test_memory_that_is_gone_strands_cpus() -> None:
    """60 of 64 GiB of a NUMA node in one pod of 1 CPU: the other CPUs there serve no pod of 8 GiB."""
    big = template("big", container("main", "1", {"60Gi": 1}))
    (result,) = results(document(variant("single-numa-node"), templates=[big], total=4))
    last = result.looks[-1]
    assert (last.exclusive, last.free.cpus, last.free.useless[0]) == (4, 14, 14)


def test_a_pod_that_ends_makes_room() -> None:
    short = template("short", container("main", "9"), lifetime={"constant": "1s"})
    (result,) = results(document(variant("none", "container"), templates=[short], total=30))
    assert result.admitted.total() == 30
    assert result.ended >= 29


@pytest.mark.parametrize(("score", "machines"), [("most-allocated", 1), ("least-allocated", 2)])
def test_the_scheduler_packs_or_spreads(score: str, machines: int) -> None:
    ones = [template("one", container("main", "1"))]
    fleet = fleet_of(
        document(variant("restricted"), templates=ones, total=4) | {"scheduler": {"score": score}}
    )
    cell = cell_of(fleet, 0)
    cell.run(seeded(1))
    assert sum(bool(node.state.pods()) for node in cell.nodes) == machines


def test_a_pod_that_no_machine_could_ever_take_is_unschedulable() -> None:
    (result,) = results(
        document(variant("none", "container"), templates=[template("big", container("main", "64"))], total=3)
    )
    assert result.lost == {"Unschedulable": 3}


def test_a_node_takes_no_more_pods_than_max_pods() -> None:
    stated = document(
        variant("restricted"), templates=[template("tiny", container("main", "100m", "1Mi"))], total=9
    )
    stated["nodes"][0]["maxPods"] = 2
    (result,) = results(stated)
    assert result.admitted.total() == 4


@pytest.mark.parametrize("place", range(4))
def test_everything_adds_up(place: int) -> None:
    fleet = example(800)
    cell = cell_of(fleet, place)
    result = cell.run(seeded(7))
    assert result.arrived.total() == 800
    assert result.arrived.total() == result.admitted.total() + result.lost.total()
    assert result.admitted.total() == result.running + result.ended
    assert result.running == len(cell._ends)
    assert all(
        look.exclusive + look.free.cpus == result.looks[0].exclusive + result.looks[0].free.cpus
        for look in result.looks
    )
    _nodes_add_up(cell)


def _nodes_add_up(cell: Cell) -> None:
    for index, node in enumerate(cell.nodes):
        managers = node.kind.managers
        assert not list(invariants(node.state, managers.machine.online))
        here = [(number, kind) for _, number, where, kind in cell._ends if where == index]
        assert node.state.pods() <= {f"pod-{number}" for number, _ in here}
        for name in (CPU, MEMORY):
            asked = sum(cell.fleet.classes[kind].request.get(name, 0) for _, kind in here)
            assert node.free[name] == node.kind.allocatable[name] - asked
        assert node.pods_left == node.kind.most_pods - len(here)


class Forgetful(dict[int, str]):
    """Remembers no refusal, so that each is decided anew."""

    def get(self, key: int, default: str = "") -> str:  # type: ignore[override]
        return ""


def test_a_remembered_refusal_is_what_the_node_would_say_again() -> None:
    fleet, whole_cores = example(1000), 3
    remembering, forgetful = cell_of(fleet, whole_cores), cell_of(fleet, whole_cores)
    for node in forgetful.nodes:
        node.refused = Forgetful()
    one, other = remembering.run(seeded(3)), forgetful.run(seeded(3))
    assert one.remembered > 0
    assert other.remembered == 0
    one.remembered = 0
    assert one == other


def test_a_decision_is_the_daemons_less_the_way_out_of_a_refusal() -> None:
    fleet = fleet_of(document(variant("single-numa-node"), templates=THREE_CPUS, total=1))
    (kind,) = node_kinds(fleet, fleet.variants[0])
    state, verdicts = kind.empty, []
    for number in range(3):
        pod = replace(fleet.classes[0].pods[0], uid=PodUid(f"pod-{number}"))
        full, bare = admit(kind.managers, state, pod), decide(kind.managers, state, pod)
        state = full.state
        verdicts.append(type(full))
        if isinstance(full, Rejected):
            assert full.remedy
            *steps, last = full.trace
            assert isinstance(last, Refused)
            full = replace(full, remedy="", trace=(*steps, replace(last, remedy="")))
        assert bare == full
    assert verdicts == [Admitted, Admitted, Rejected]


def test_every_variant_gets_the_same_pods() -> None:
    arrived = [result.arrived for result in simulate(example(50), 1, lambda _: None).results]
    assert all(counts == arrived[0] for counts in arrived)
