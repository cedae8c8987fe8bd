"""The command line's side of the control API."""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from agent.errors import NumaletError

Json = dict[str, Any]


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
        connection = _UnixConnection(self.path, self.timeout)
        try:
            with suppress(BrokenPipeError, ConnectionResetError):  # refused unread: the answer says why
                connection.request(method, target, body)
            response = connection.getresponse()
            answer = _object(response.read())
        except (OSError, HTTPException, ValueError) as error:
            raise self._unreachable(error) from error
        finally:
            connection.close()
        if response.status != 200:
            problem = answer.get("error", {})
            raise ControlError(response.status, problem.get("message", "?"), hint=problem.get("hint", ""))
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
        return ControlError(0, f"{self.path}: {error}", hint="see the daemon's log")


def _object(raw: bytes) -> Json:
    """The object that is the answer; ValueError for anything else."""
    answer = json.loads(raw)
    if not isinstance(answer, dict) or not isinstance(answer.get("error", {}), dict):
        raise ValueError("what listens there answers as no numalet daemon does")
    return answer


class _UnixConnection(HTTPConnection):
    def __init__(self, path: Path, timeout: float | None) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))
