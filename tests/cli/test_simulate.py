"""`numalet simulate`: the same figures from any number of processes, and the decisions of `numalet plan`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from agent.cli import simulation
from agent.domain.pod import CPU
from agent.simulate.stream import arrivals
from tests.cli.command import Result, invoke
from tests.simulate.fleets import container, document, fleet_of, seeded, template, variant
from tests.sysfs.machines import FOLDER

MACHINE = FOLDER / "64amd64-4p2n4ca2co.json.xz"
SIZES = {"3": 2, "7": 1}


def stated(**more: Any) -> dict[str, Any]:
    """Six small machines in three cells, a hundred pods."""
    asked = document(
        variant("restricted"),
        variant("single-numa-node"),
        templates=[
            template("some", container("main", {"1": 2, "3": 1}), lifetime={"exponential": "10m"}),
            template("fat", container("main", "4"), lifetime={"lognormal": {"median": "5m", "sigma": 1}}),
        ],
        total=100,
    )
    asked["nodes"][0]["count"] = 6
    return {**asked, "cellNodes": 2, **more}


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    file = tmp_path / "fleet.yaml"
    file.write_text(json.dumps(stated()))
    return file


def simulated(spec: Path, *arguments: str) -> Result:
    return invoke("simulate", "--fleet", str(spec), "--jobs", "1", *arguments)


@pytest.mark.parametrize("score", ["least-allocated", "random"])
def test_the_figures_are_the_same_from_one_process_and_from_three(tmp_path: Path, score: str) -> None:
    spec = tmp_path / "fleet.yaml"
    spec.write_text(json.dumps(stated(scheduler={"score": score})))
    command = [sys.executable, "-m", "agent", "simulate", "--fleet", str(spec), "-o", "json", "--jobs"]
    one, three = (subprocess.run([*command, jobs], capture_output=True, check=True) for jobs in ("1", "3"))
    assert one.stdout == three.stdout
    assert json.loads(one.stdout)["cells"] == {"all": 3, "done": 3}


def test_another_seed_gives_other_figures(spec: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(json.dumps(stated(seed=2)))
    assert simulated(spec, "-o", "json").json["variants"] != simulated(other, "-o", "json").json["variants"]


def test_the_json_adds_up(spec: Path) -> None:
    for one in simulated(spec, "-o", "json").json["variants"]:
        assert one["pods"] == 100
        assert one["pods"] == one["admitted"] + sum(one["notPlaced"].values())
        assert one["admitted"] == one["running"] + one["ended"]
        assert one["exclusiveCPUs"] + one["freeCPUs"] == pytest.approx(1)
        assert sum(place["freeCPUs"] for place in one["numaNodes"]) / 9 == pytest.approx(one["freeCPUs"])


def test_the_text_compares_the_variants(spec: Path) -> None:
    result = simulated(spec)
    assert result.status == 0
    lines = result.out.splitlines()
    assert any(line.startswith("restricted pod ") and "%" in line for line in lines)
    assert any(line.startswith("single-numa-node pod ") and "%" in line for line in lines)
    assert any(line.startswith("TopologyAffinityError") for line in lines)
    assert result.err.splitlines()[-1] == "6 of 6 cells"


def test_the_chart_is_svg_in_a_file_or_on_standard_output(spec: Path, tmp_path: Path) -> None:
    file = tmp_path / "fleet.svg"
    assert simulated(spec, "--svg", str(file)).out
    told = simulated(spec, "--svg", "-").out
    assert told == file.read_text()
    assert ElementTree.fromstring(told).tag.endswith("svg")  # noqa: S314 - our own


def test_standard_output_takes_one_of_chart_and_json(spec: Path) -> None:
    result = simulated(spec, "--svg", "-", "-o", "json")
    assert (result.status, result.out) == (2, "")


def test_a_broken_specification_is_told_line_by_line(spec: Path) -> None:
    spec.write_text("apiVersion: numalet/v1\nkind: Fleet\nnodes: 3\nvariants: []\npods: {total: x}\n")
    result = simulated(spec)
    assert result.status == 2
    assert f"numalet: {spec}:1: $: nodes: expected a list of at least one" in result.err
    assert f'{spec}:5: $.pods.total: "x" is not a whole number' in result.err


def test_ctrl_c_shows_the_cells_that_are_done(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = simulation._Worker.run

    def interrupted(self: simulation._Worker, task: simulation.Task) -> Any:
        if task == (2, 0):
            raise KeyboardInterrupt
        return whole(self, task)

    monkeypatch.setattr(simulation._Worker, "run", interrupted)
    result = simulated(spec, "-o", "json")
    assert result.status == 130
    assert "interrupted after 2 of 3 cells" in result.err
    assert result.json["cells"] == {"all": 3, "done": 2}


def test_a_stream_without_departures_is_admitted_as_plan_admits_it(tmp_path: Path) -> None:
    """The pods of one recorded machine, in the order in which they came, as manifests."""
    asked = document(
        variant("restricted"),
        templates=[template("pod", container("main", SIZES, "64Mi"))],
        total=40,
        scheduler={"retries": 0},
    )
    asked["nodes"] = [{"name": "db", "count": 1, "machine": str(MACHINE)}]
    del asked["variants"][0]["config"]["reservedSystemCPUs"]
    spec = tmp_path / "fleet.yaml"
    spec.write_text(json.dumps(asked))
    (one,) = simulated(spec, "-o", "json").json["variants"]
    manifests = tmp_path / "manifests"
    manifests.mkdir()
    for number, cpu in enumerate(_drawn(asked)):
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"pod-{number}"},
            "spec": {"containers": [container("main", cpu, "64Mi")]},
        }
        (manifests / f"{number:03}.yaml").write_text(json.dumps(pod))
    planned = invoke("plan", "-f", str(manifests), "--machine", str(MACHINE), "-o", "json").json
    admitted = [pod for pod in planned["pods"] if pod["verdict"] == "admitted"]
    assert one["admitted"] == len(admitted) > 0
    assert sum(one["notPlaced"].values()) == len(planned["pods"]) - len(admitted) > 0
    free = {str(node["id"]): node["freeCPUCount"] for node in planned["numaNodes"]}
    assert one["overTime"]["exclusiveCPUs"][-1] == pytest.approx(1 - sum(free.values()) / 62)


def _drawn(asked: dict[str, Any]) -> list[str]:
    fleet = fleet_of(asked)
    stream = arrivals(seeded("1 0 pods"), fleet.classes, fleet.pods, fleet.horizon)
    return [str(fleet.classes[kind].request[CPU] // 1000) for _, kind, _ in stream]
