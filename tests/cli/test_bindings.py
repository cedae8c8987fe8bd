"""The commands on a container that is a unit of systemd's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.api.routes import control_routes
from agent.api.server import ControlServer
from agent.config import Config
from agent.config.model import BindingPolicy
from tests.cli.command import Command
from tests.containermanager.node import Node, manifest

DB = "db.service"
PLACE = f"/sys/fs/cgroup/system.slice/{DB}"


@pytest.fixture
def node() -> Node:
    node = Node(Config(bindings=BindingPolicy.ALL))
    node.outside.start(DB, CPUWeight=300)
    return node


@pytest.fixture
def numalet(node: Node, tmp_path: Path) -> Iterator[Command]:
    owner = node.owner()
    server = ControlServer(tmp_path / "control.sock", control_routes(owner))
    server.start()
    yield Command(owner, tmp_path)
    server.stop()


def db() -> dict[str, Any]:
    document = manifest("db")
    document["metadata"]["annotations"] = {"numalet/unit.main": DB}
    return document


def test_a_bound_pod_is_described_by_what_its_unit_has(node: Node, numalet: Command) -> None:
    assert numalet("apply", "-f", numalet.file("db.yaml", db())).status == 0
    container = numalet("describe", "pod", "db", "-o", "json").json["containers"][0]
    assert (container["binding"], container["cgroup"]) == (f"unit {DB}", PLACE)
    assert {line["file"]: line["actual"] for line in container["settings"]}["cpuset.cpus"] == "1-2"
    assert all(line["met"] for line in container["settings"])
    assert container["kernel"]["processes"] == "1"
    text = numalet("describe", "pod", "db").out
    assert f"is                     unit {DB}; the pod's collective limits do not hold over it" in text
    assert "NOT AS WANTED" not in text
    assert numalet("verify").status == 0
    node.outside.force(node.outside.place(DB), "cpu.max", "50000 100000")
    assert "NOT AS WANTED" in numalet("describe", "pod", "db").out
    assert (
        f"pod default/db: container main (unit {DB}): system.slice/{DB} has cpu.max" in numalet("verify").out
    )
    assert numalet("delete", "db").status == 0
    assert node.outside.cgroups.populated(node.outside.place(DB))


def test_work_comes_into_a_unit_by_systemd_alone(numalet: Command) -> None:
    numalet("apply", "-f", numalet.file("db.yaml", db()))
    done = numalet("exec", "db", "main", "--", "true")
    assert done.status == 1
    assert f"container main is unit {DB}: processes come into it there" in done.err


def test_a_refused_binding_says_why_and_the_way_out(numalet: Command) -> None:
    document = db()
    document["metadata"]["annotations"] = {"numalet/unit.main": "nowhere.service"}
    done = numalet("apply", "-f", numalet.file("db.yaml", document))
    assert done.status == 1
    assert "BindingError" in done.out + done.err
    assert "unit nowhere.service is not-found, not loaded" in done.out + done.err
