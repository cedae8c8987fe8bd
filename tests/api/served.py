"""Routes to answer, and requests as they are."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

from agent.api.request import RequestError
from agent.api.server import Route
from agent.errors import StateError

Json = dict[str, Any]


def fail(error: Exception) -> Route:
    def route(_parts: tuple[str, ...], _query: object, _body: bytes) -> Json:
        raise error

    return route


ROUTES: dict[str, Route] = {
    "GET echo": lambda parts, query, body: {"parts": list(parts), "query": dict(query), "size": len(body)},
    "POST echo": lambda parts, query, body: {"parts": list(parts), "query": dict(query), "size": len(body)},
    "GET missing": fail(RequestError(404, "no such pod", hint="look elsewhere")),
    "GET full": fail(StateError("the disk is full", hint="free some")),
    "GET broken": fail(ZeroDivisionError("a fault of ours")),
    "GET file": fail(FileNotFoundError(2, "a fault of ours")),
}


def raw(path: Path, request: bytes, *, end: bool = True) -> bytes:
    """Send bytes as they are, return all that comes back."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(str(path))
        connection.sendall(request)
        if end:
            connection.shutdown(socket.SHUT_WR)
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
        return answer
