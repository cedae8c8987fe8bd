"""Completion in zsh and fish, with the names of a live daemon's pods (bash: tests/cli/test_completion.py)."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.vm.node import PATIENCE, Node, best_effort, container, mixed, wait_until

pytestmark = pytest.mark.vm

ZSH_SETUP = """
PS1='> '
autoload -Uz compinit && compinit -u -D
eval "$(numalet completion zsh)"
tell() {{ print -r -- "$BUFFER" >{told}.new && mv {told}.new {told} }}
zle -N tell
bindkey '^Xt' tell
bindkey '^I' complete-word
touch {ready}
"""


@pytest.fixture
def environ(node: Node, tmp_path: Path) -> dict[str, str]:
    """Two pods with dots and dashes in their names, and the command on the path."""
    first, second = mixed("upf-1.edge"), best_effort("upf-1.core")
    first["spec"]["containers"].append(container("side-2"))
    second["metadata"]["namespace"] = "telco-5g"
    node.apply(first, second)
    script = tmp_path / "bin" / "numalet"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m agent "$@"\n')
    script.chmod(0o755)
    return os.environ | {
        "PATH": f"{script.parent}:{os.environ['PATH']}",
        "NUMALET_SOCKET": str(node.client.path),
        "HOME": str(tmp_path),
        "TERM": "xterm",
    }


@pytest.fixture(autouse=True)
def _gone(node: Node, environ: dict[str, str]) -> Iterator[None]:
    yield
    node.client.call("DELETE", "/v1/pods/telco-5g/upf-1.core?grace=0")


def test_fish_offers_pods_and_containers(environ: dict[str, str]) -> None:
    program = (
        "numalet completion fish | source; "
        "complete -C 'numalet describe pod '; echo ====; complete -C 'numalet exec upf-1.edge si'"
    )
    done = subprocess.run(
        ["fish", "--no-config", "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env=environ,
        timeout=2 * PATIENCE,
    )
    pods, containers = done.stdout.split("====\n")
    assert pods.split() == ["telco-5g/upf-1.core", "upf-1.edge"]
    assert containers.split() == ["side", "side-2"]


class Zsh:
    """An interactive zsh on a terminal of its own; what it shows is read and kept."""

    def __init__(self, work: Path, environ: dict[str, str]) -> None:
        self.ready, self.told = work / "ready", work / "told"
        self.setup = work / "setup.zsh"
        self.setup.write_text(ZSH_SETUP.format(ready=self.ready, told=self.told))
        self.shown: list[bytes] = []
        self.side, theirs = pty.openpty()
        self.shell = subprocess.Popen(
            ["zsh", "-f", "-i"],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environ,
            start_new_session=True,
        )
        os.close(theirs)

    def send(self, keys: str, until: Path) -> None:
        """Type; return when the file is there."""
        os.write(self.side, keys.encode())
        wait_until(
            lambda: self._read() or until.exists(), f"{until} is there; shown: {self.shown}", 2 * PATIENCE
        )

    def completed(self, typed: str) -> str:
        """What is on the line after Tab; the line is then emptied."""
        self.told.unlink(missing_ok=True)
        self.send(f"{typed}\t\x18t\x15", self.told)
        return self.told.read_text().rstrip()

    def _read(self) -> bool:
        while select.select([self.side], [], [], 0)[0]:
            self.shown.append(os.read(self.side, 4096))
        return False

    def close(self) -> None:
        """Leave nothing behind."""
        self.shell.kill()
        self.shell.wait()
        os.close(self.side)


@pytest.fixture
def zsh(environ: dict[str, str], tmp_path: Path) -> Iterator[Zsh]:
    """Set up as the help of `numalet completion` says."""
    shell = Zsh(tmp_path, environ)
    try:
        shell.send(f"source {shell.setup}\n", shell.ready)
        yield shell
    finally:
        shell.close()


def test_zsh_completes_pods_and_containers(zsh: Zsh) -> None:
    assert zsh.completed("numalet delete tel") == "numalet delete telco-5g/upf-1.core"
    assert zsh.completed("numalet exec upf-1.edge m") == "numalet exec upf-1.edge main"
