"""`numalet top`: tables, JSON, and a terminal that is drawn over and left as it was."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent.api.routes import control_routes
from agent.api.server import ControlServer
from agent.cli.top import _cpus_text
from tests.cli.command import Command
from tests.cli.test_usage import cgroup
from tests.containermanager.node import Node, budgeted, parsed

PATIENCE = 60.0


@pytest.fixture
def numalet(tmp_path: Path) -> Iterator[Command]:
    """A pod of two containers whose cgroups are plain files; the third is missing."""
    document = budgeted("team")
    document["spec"]["containers"].append({"name": "late"})
    owner = Node().stopped_owner(cgroup_root=str(tmp_path))
    owner.start()
    owner.admit(parsed(document), "api")
    server = ControlServer(tmp_path / "control.sock", control_routes(owner))
    server.start()
    cgroup(tmp_path / "poduid-team")
    cgroup(tmp_path / "poduid-team/main", memory_max="max\n", memory_current="1048576\n")
    cgroup(tmp_path / "poduid-team/shared.pool")
    cgroup(tmp_path / "poduid-team/shared.pool/helper", memory_current="3145728\n")
    yield Command(owner, tmp_path)
    server.stop()


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_pods_and_their_containers_are_shown_once_where_nobody_watches(numalet: Command) -> None:
    result = numalet("top", "--interval", "0.1")
    assert rows(result.out) == [
        ["POD", "CONTAINER", "CPU", "OF", "CPUS", "THROTTLED", "MEMORY", "LIMIT", "PROCS"],
        ["default/team", "0.00", "0%", "1.0", "GiB", "2.0", "GiB", "3"],
        ["helper", "0.00", "3", "0%", "3", "MiB", "2.0", "GiB", "3"],
        ["late", "-", "3", "-", "-", "-", "-"],
        ["main", "0.00", "1-2", "0%", "1", "MiB", "-", "3"],
    ]
    assert "\x1b" not in result.out


def test_containers_are_sorted_by_what_is_asked_for(numalet: Command) -> None:
    names = [row[0] for row in rows(numalet("top", "pods", "--sort", "memory", "--interval", "0.1").out)[2:]]
    assert names == ["helper", "main", "late"]


def test_json_is_one_object_a_look(numalet: Command) -> None:
    lines = numalet("top", "-n", "2", "--interval", "0.1", "-o", "json").out.splitlines()
    assert len(lines) == 2
    [team] = json.loads(lines[1])["pods"]
    assert team["use"] == {
        "cpus": 0.0,
        "throttled": 0.0,
        "throttled_seconds": 0.0,
        "memory": 1 << 30,
        "limit": 2 << 30,
        "processes": 3,
    }
    assert {one["name"]: one["use"] is None for one in team["containers"]} == {
        "main": False,
        "helper": False,
        "late": True,
    }


def test_a_cpus_time_is_shown_beside_its_owner() -> None:
    use = {
        "user": 0.25,
        "nice": 0.25,
        "system": 0.1,
        "irq": 0.01,
        "softirq": 0.04,
        "steal": 0.0,
        "busy": 0.65,
    }
    text = _cpus_text([{"id": 3, "numaNode": 1, "owner": "default/team/main", "use": use}])
    assert rows(text)[1] == ["3", "1", "65%", "50%", "10%", "5%", "0%", "default/team/main"]


def test_cpus_cannot_be_sorted_by_what_they_do_not_have(numalet: Command) -> None:
    result = numalet("top", "cpus", "--sort", "memory")
    assert result.status == 2
    assert "cpus cannot be sorted by memory" in result.err


@dataclass
class Terminal:
    """The command on a terminal of its own."""

    process: subprocess.Popen[bytes]
    side: int
    shown: bytes = b""

    def until(self, text: bytes) -> None:
        while text not in self.shown:
            ready, _, _ = select.select([self.side], [], [], PATIENCE)
            assert ready, self.shown
            self.shown += os.read(self.side, 4096)


@pytest.fixture
def terminal(numalet: Command) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "agent", "top", "--socket", numalet.socket, "--interval", "0.2"]
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    ) as process:
        os.close(theirs)
        try:
            yield Terminal(process, ours)
        finally:
            process.kill()
            os.close(ours)


def test_a_terminal_is_drawn_over_until_a_key_ends_it(terminal: Terminal) -> None:
    terminal.until(b"numalet top pods")
    drawn = terminal.shown.count(b"\x1b[H")
    while terminal.shown.count(b"\x1b[H") < drawn + 2:
        terminal.shown += os.read(terminal.side, 4096)
    os.write(terminal.side, b"q")
    terminal.until(b"\x1b[?1049l")
    assert terminal.process.wait(PATIENCE) == 0
    assert terminal.shown.startswith(b"\x1b[?1049h")
