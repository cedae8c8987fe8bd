"""Completion in a real bash: commands, options, and the names of live pods and their containers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import Command
from tests.containermanager.node import budgeted, parsed, pod

COMPLETE = """
source <(numalet completion bash)
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_numalet_completion "$1" "${@: -1}" "${@: -2:1}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def on_path(tmp_path: Path) -> str:
    """A directory with the command, as it is installed."""
    script = tmp_path / "numalet"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m agent "$@"\n')
    script.chmod(0o755)
    return str(tmp_path)


def completed(on_path: str, socket: str, *words: str) -> list[str]:
    """What bash offers for the last of the words."""
    environ = os.environ | {"PATH": f"{on_path}:{os.environ['PATH']}", "NUMALET_SOCKET": socket}
    command = ["bash", "--norc", "-c", COMPLETE, "bash", "numalet", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environ)
    assert done.stderr == ""
    return done.stdout.split()


def test_commands_and_options_are_completed(on_path: str) -> None:
    assert completed(on_path, "/none", "de") == ["delete", "describe", "debug"]
    assert completed(on_path, "/none", "top", "--so") == ["--sort", "--socket"]
    assert completed(on_path, "/none", "top", "--sort", "") == ["cpu", "memory", "throttled"]
    assert completed(on_path, "/none", "state", "sh") == ["show"]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("describe", "pod", ""), ["team", "upf-1.edge", "telco/upf-1.edge"]),
        (("describe", "pod", "upf-1."), ["upf-1.edge"]),
        (("delete", "telco/"), ["telco/upf-1.edge"]),
        (("events", "--pod", "t"), ["team", "telco/upf-1.edge"]),
        (("exec", "team", ""), ["main", "helper"]),
        (("exec", "telco/upf-1.edge", "m"), ["main"]),
        (("attach", "team", ""), ["main", "helper"]),
        (("debug", "tea"), ["team"]),
        (("exec", "nobody", ""), []),
    ],
)
def test_pods_and_containers_are_those_of_the_daemon(
    numalet: Command, on_path: str, words: tuple[str, ...], offered: list[str]
) -> None:
    numalet.owner.admit(parsed(budgeted("team")), "api")
    for namespace in ("default", "telco"):
        numalet.owner.admit(pod("upf-1.edge", cpu="1", namespace=namespace, uid=f"uid-{namespace}"), "api")
    assert completed(on_path, numalet.socket, *words) == offered


def test_a_socket_named_on_the_line_is_asked(numalet: Command, on_path: str) -> None:
    numalet.owner.admit(pod("a"), "api")
    assert completed(on_path, "/none", "delete", "--socket", numalet.socket, "") == ["a"]


def test_without_a_daemon_nothing_is_offered_and_nothing_complains(on_path: str) -> None:
    assert completed(on_path, "/none", "describe", "pod", "") == []
