"""`numalet verify`: is the kernel's state what was decided?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.api.routes import control_routes
from agent.api.server import ControlServer
from agent.cgroup.layout import CgroupDir
from tests.cli.command import Command
from tests.containermanager.node import Node, budgeted

MAIN = CgroupDir("poduid-team/main")


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
def numalet(node: Node, tmp_path: Path) -> Iterator[Command]:
    owner = node.owner()
    server = ControlServer(tmp_path / "control.sock", control_routes(owner))
    server.start()
    command = Command(owner, tmp_path)
    command("apply", "-f", command.file("team.yaml", budgeted("team")))
    yield command
    server.stop()


def test_a_kernel_that_has_what_was_decided(numalet: Command) -> None:
    done = numalet("verify")
    assert (done.status, done.out) == (0, "the kernel has what was decided\n")
    assert numalet("verify", "-o", "json").json == {"deviations": []}


def test_each_deviation_is_a_line_and_the_exit_status_tells(numalet: Command, node: Node) -> None:
    node.cgroups.write(MAIN, "cpu.max", "1000 100000")
    node.cgroups.write(MAIN, "cpuset.cpus", "1")
    done = numalet("verify")
    assert done.status == 1
    assert done.out.splitlines() == [
        f"{MAIN} has cpuset.cpus 1, wanted 1-2",
        f"{MAIN} has cpu.max 1000 100000, wanted max 100000",
    ]
    assert len(numalet("verify", "-o", "json").json["deviations"]) == 2
    numalet.owner.reconcile()
    assert numalet("verify").status == 0
