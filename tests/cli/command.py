"""Running the `numalet` command in this process, as a shell would see it."""

from __future__ import annotations

import json
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from agent.cli.app import run_command_line
from agent.containermanager import ContainerManager


@dataclass(frozen=True)
class Result:
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def invoke(*arguments: str) -> Result:
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = run_command_line(arguments)
    return Result(status, out.getvalue(), err.getvalue())


@dataclass(frozen=True)
class Command:
    """The command, and the owner behind the socket it talks to."""

    owner: ContainerManager
    root: Path

    @property
    def socket(self) -> str:
        return str(self.root / "control.sock")

    def __call__(self, command: str, *arguments: str) -> Result:
        return invoke(command, "--socket", self.socket, *arguments)

    def file(self, name: str, *documents: dict[str, Any]) -> str:
        path = self.root / name
        path.write_text("---\n".join(json.dumps(document) + "\n" for document in documents))
        return str(path)
