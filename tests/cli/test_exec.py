"""`numalet exec` as a process of its own; the container's cgroup is an ordinary directory here."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.api.routes import control_routes
from agent.api.server import ControlServer
from tests.containermanager.node import Node, pod


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("exec")
    owner = Node().stopped_owner(cgroup_root=str(root / "cgroup"))
    owner.start()
    owner.admit(pod("a"), "api")
    (root / "cgroup" / "poduid-a" / "main").mkdir(parents=True)
    server = ControlServer(root / "control.sock", control_routes(owner))
    server.start()
    yield root
    server.stop()


def run(root: Path, *command: str) -> subprocess.CompletedProcess[str]:
    socket = str(root / "control.sock")
    return subprocess.run(
        [sys.executable, "-m", "agent", "exec", "--socket", socket, "a", "main", *command],
        capture_output=True,
        text=True,
        check=False,
    )


def joined(root: Path) -> str:
    return (root / "cgroup" / "poduid-a" / "main" / "cgroup.procs").read_text()


def test_it_joins_the_cgroup_and_becomes_the_command(root: Path) -> None:
    result = run(root, "--", "sh", "-c", "echo $$ $1; exit 7", "sh", "--fast")
    assert (result.returncode, result.stderr) == (7, "")
    assert result.stdout == f"{joined(root)} --fast\n"


def test_options_of_the_command_are_its_own(root: Path) -> None:
    assert run(root, "echo", "-n", "--help").stdout == "--help"


@pytest.mark.parametrize(
    ("command", "status", "words"),
    [
        ("no-such-command", 127, "numalet: no-such-command: No such file or directory\n"),
        ("/etc/passwd", 126, "numalet: /etc/passwd: Permission denied\n"),
    ],
)
def test_a_command_that_cannot_be_run_ends_as_in_a_shell(
    root: Path, command: str, status: int, words: str
) -> None:
    result = run(root, "--", command)
    assert (result.returncode, result.stdout, result.stderr) == (status, "", words)


def test_without_a_command_it_is_wrong_use(root: Path) -> None:
    for command in ((), ("--",)):
        result = run(root, *command)
        assert result.returncode == 2
        assert "Missing argument 'COMMAND...'" in result.stderr
