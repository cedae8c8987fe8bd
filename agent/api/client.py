"""The command line's side of the control API."""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from agent.errors import NumaletError

Json = dict[str, Any]

_PART: Final = 1 << 16
_STRANGER: Final = "what listens there answers as no numalet daemon does"


class ControlError(NumaletError):
    """The daemon refused a request; ``status`` is its HTTP status, 0 where it was not reached."""

    def __init__(self, status: int, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status


class ControlClient:
    """Calls the daemon that listens on ``path``; raises ControlError."""

    def __init__(self, path: Path, *, timeout: float | None = 120.0) -> None:
        self.path = path
        self.timeout = timeout

    def call(self, method: str, target: str, body: bytes = b"") -> Json:
        """Make one request and return the answer's JSON."""
        head = f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(self.timeout)
                connection.connect(str(self.path))
                with suppress(BrokenPipeError, ConnectionResetError):  # refused unread: the answer says why
                    connection.sendall(head.encode("ascii") + body)
                status, raw = _answer(connection)
            answer = _object(raw)
        except (OSError, ValueError) as error:
            raise self._unreachable(error) from error
        if status != 200:
            problem = answer.get("error", {})
            raise ControlError(status, problem.get("message", "?"), hint=problem.get("hint", ""))
        return answer

    def _unreachable(self, error: Exception) -> ControlError:
        if isinstance(error, FileNotFoundError | ConnectionRefusedError):
            return ControlError(
                0,
                f"no daemon answers on {self.path}",
                hint="start it: systemctl start numalet, or numalet run --config FILE; --socket names another socket",
            )
        if isinstance(error, PermissionError):
            return ControlError(0, f"{self.path}: permission denied", hint="use root")
        return ControlError(
            0, f"{self.path}: {error}", hint="see the daemon's log; --socket names another socket"
        )


class _Answer:
    """An HTTP answer, as httptools tells it."""

    def __init__(self) -> None:
        self.body = b""
        self.is_whole = False

    def on_body(self, part: bytes) -> None:
        self.body += part

    def on_message_complete(self) -> None:
        self.is_whole = True


def _answer(connection: socket.socket) -> tuple[int, bytes]:
    """Status and body; ValueError for what is no answer."""
    answer = _Answer()
    parser = HttpResponseParser(answer)
    while not answer.is_whole:
        part = connection.recv(_PART)
        if not part:
            raise ValueError("the connection ended without an answer")
        try:
            parser.feed_data(part)
        except (HttpParserError, HttpParserUpgrade) as error:
            raise ValueError(_STRANGER) from error
    return parser.get_status_code(), answer.body


def _object(raw: bytes) -> Json:
    """The object that is the answer; ValueError for anything else."""
    try:
        answer = json.loads(raw)
    except ValueError as error:
        raise ValueError(_STRANGER) from error
    if not isinstance(answer, dict) or not isinstance(answer.get("error", {}), dict):
        raise ValueError(_STRANGER)
    return answer
