"""The specification of a fleet: what it becomes, and every problem with its line and place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agent.domain.pod import CPU, MEMORY, ResourceName
from agent.errors import ConfigError
from agent.simulate.fleet import Fleet
from agent.simulate.spec import load_fleet
from tests.simulate.fleets import (
    EXAMPLE,
    Json,
    container,
    document,
    example,
    fleet_of,
    template,
    variant,
)
from tests.sysfs.machines import FOLDER, discovered

RECORDED = "64amd64-4p2n4ca2co"


def stated() -> Json:
    return document(variant("restricted"), templates=[template("one", container("main", "2"))], total=10)


def problems(change: Callable[[Json], object]) -> str:
    asked = stated()
    change(asked)
    with pytest.raises(ConfigError) as caught:
        fleet_of(asked)
    return str(caught.value)


def test_the_example_is_read_whole() -> None:
    fleet = example(20_000)
    assert fleet.nodes == 100
    assert [len(shape.topology.cpus) for shape in fleet.shapes] == [64, 96]
    assert fleet.shapes[1].topology.nodes[3].hugepages == {1 << 20: 16}
    assert sum(one.weight for one in fleet.classes) == pytest.approx(14)
    assert [(one.name, one.cpus) for one in fleet.demands] == [("smallest", 1), ("median", 2), ("large", 8)]


def test_distributions_unfold_into_all_sizes_with_their_weights() -> None:
    fleet = fleet_of(
        document(
            variant("restricted"),
            templates=[template("one", container("main", {"2": 3, "4": 1}, {"1Gi": 1, "2Gi": 1}), weight=8)],
            total=1,
        )
    )
    gib = 1 << 30
    assert {(one.request[CPU], one.request[MEMORY]): one.weight for one in fleet.classes} == {
        (2000, gib): 3.0,
        (2000, 2 * gib): 3.0,
        (4000, gib): 1.0,
        (4000, 2 * gib): 1.0,
    }


def test_what_can_be_scheduled_is_capacity_less_reservations_and_huge_pages() -> None:
    asked = stated()
    asked["nodes"][0]["hugepages"] = {"hugepages-1Gi": "4Gi"}
    asked["variants"][0]["config"] |= {
        "kubeReserved": {"memory": "1Gi"},
        "evictionHard": {"memory.available": "1Gi"},
    }
    (allocatable,) = fleet_of(asked).variants[0].allocatable
    gib = 1 << 30
    assert allocatable == {CPU: 9000, MEMORY: (128 - 8 - 2) * gib, ResourceName("hugepages-1Gi"): 8 * gib}


def test_a_recorded_machine_is_taken_as_it_is() -> None:
    asked = stated()
    asked["nodes"] = [{"name": "db", "count": 1, "machine": str(FOLDER / f"{RECORDED}.json.xz")}]
    assert fleet_of(asked).shapes[0].topology == discovered(RECORDED)


def _parts(count: int) -> Fleet:
    asked = stated()
    asked["nodes"] = [dict(asked["nodes"][0], name=name, count=count) for name in ("a", "b", "c")]
    return fleet_of(asked | {"cellNodes": 4})


@pytest.mark.parametrize("count", [1, 2, 5, 7])
def test_cells_share_all_nodes_and_all_pods(count: int) -> None:
    fleet = _parts(count)
    cells = [fleet.cell_shapes(cell) for cell in range(fleet.cells)]
    assert sorted(shape for cell in cells for shape in cell) == sorted([0, 1, 2] * count)
    assert all(0 < len(cell) <= 5 for cell in cells)
    assert sum(fleet.cell_pods(cell) for cell in range(fleet.cells)) == fleet.pods


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda d: d.update(kind="Pod"), '$.kind: "Pod" is not supported (expected "Fleet")'),
        (lambda d: d.update(sede=1), '$.sede: unknown field (did you mean "seed"?)'),
        (lambda d: d.pop("pods"), "$: pods is missing"),
        (lambda d: d.update(nodes=[]), "$: nodes: expected a list of at least one"),
        (lambda d: d.update(nodes=[{}]), "$.nodes[0]: count is missing"),
        (lambda d: d.update(nodes=["x"]), '$.nodes[0]: "x" is not a map of name'),
        (
            lambda d: d["nodes"].append(d["nodes"][0]),
            '$.nodes[1].name: "small" is already the name of $.nodes[0]',
        ),
        (lambda d: d["nodes"][0].update(cores=0), "$.nodes[0].cores: 0 is not a whole number from 1 to"),
        (lambda d: d["nodes"][0].update(cores=4000), "$.nodes[0]: 8000 CPUs in 2 NUMA nodes are too many"),
        (lambda d: d["nodes"][0].update(memory="lots"), '$.nodes[0].memory: "lots" is not a quantity'),
        (
            lambda d: d["nodes"][0].update(hugepages={"hugepages-3Mi": "3Mi"}),
            '$.nodes[0].hugepages: "hugepages-3Mi" is not a size of huge pages',
        ),
        (lambda d: d["nodes"][0].update(machine="no.json"), "$.nodes[0].machine: cannot read the recording"),
        (
            lambda d: d["nodes"][0].update(machine="no.json"),
            "$.nodes[0].cores: a recorded machine is as it is",
        ),
        (
            lambda d: d["variants"][0]["config"].update(stateDir="/x"),
            "$.variants[0].config.stateDir: decides nothing about pods",
        ),
        (
            lambda d: d["variants"][0]["config"].update(topologyManagerPolicy="strict"),
            '$.variants[0].config.topologyManagerPolicy: "strict" must be one of',
        ),
        (
            lambda d: d["variants"][0]["config"].update(
                reservedMemory=[{"numaNode": 9, "limits": {"memory": "1Gi"}}]
            ),
            '$.variants[0].config: on nodes "small":',
        ),
        (lambda d: d["pods"].update(total=0), "$.pods.total: 0 is not a whole number from 1"),
        (lambda d: d["pods"].update(perHour=-1), "$.pods.perHour: -1 is not a number above zero"),
        (
            lambda d: d["pods"]["templates"][0].update(lifetime={"weibull": "1h"}),
            "$.pods.templates[0].lifetime: expected one of {constant: 2h}",
        ),
        (
            lambda d: d["pods"]["templates"][0].update(lifetime={"lognormal": {"median": "1h"}}),
            "$.pods.templates[0].lifetime.lognormal: sigma is missing",
        ),
        (
            lambda d: d["pods"]["templates"][0]["spec"].update(containers=[container("main", "two")]),
            '$.pods.templates[0].spec.containers[0].resources.limits.cpu: "two" is not a quantity',
        ),
        (
            lambda d: d["pods"]["templates"][0]["spec"].update(containers=[container("main", {"2": 0})]),
            "$.pods.templates[0].spec.containers[0].resources.limits.cpu.2: the weight 0 is not",
        ),
        (
            lambda d: d["pods"]["templates"][0]["spec"].update(containers=[container("main", {})]),
            "$.pods.templates[0].spec.containers[0].resources.limits.cpu: an empty distribution",
        ),
        (
            lambda d: d["pods"]["templates"][0]["spec"].update(
                containers=[container("main", {str(n): 1 for n in range(1, 300)})]
            ),
            "$.pods.templates[0].spec: its distributions amount to 299 sizes (at most 256)",
        ),
        (lambda d: d["pods"]["templates"][0].update(name="No"), '$.pods.templates[0].name: "No"'),
    ],
)
def test_a_problem_is_told_with_its_place(change: Callable[[Json], object], expected: str) -> None:
    assert expected in problems(change)


def test_all_problems_are_told_at_once_with_their_lines() -> None:
    text = EXAMPLE.read_text().replace("cores: 16", "cores: many").replace("constant: 90m", "constant: 90")
    lines = {number for number, line in enumerate(text.splitlines(), 1) if "many" in line or "90}" in line}
    with pytest.raises(ConfigError) as caught:
        load_fleet(text.encode(), "fleet.yaml", lambda name: discovered(Path(name).name))
    told = str(caught.value).splitlines()
    assert {int(line.split(":")[1]) for line in told} == lines
    assert len(told) == 2
