"""The control API: HTTP/JSON on a unix socket, for root, the daemon's own user, and members of `controlSocketGroup`.

``GET /v1/status|pods|cpus|nodes|deviations``, ``GET /v1/pods/NAMESPACE/NAME``, ``POST /v1/pods`` with
a manifest as body, ``DELETE /v1/pods/NAMESPACE/NAME``, ``GET /v1/events?since=NUMBER&run=RUN&
wait=SECONDS&pod=NAMESPACE/NAME`` (answers as soon as there is an event after that one of that run). Errors are
``{"error": {"message", "hint"}}`` with status 400 (bad input), 403, 404, 409 (refused), 411 or 500.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import struct
import sys
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from agent.api.serving import Serving
from agent.api.unixsocket import socket_place
from agent.errors import HostError, NumaletError

log = logging.getLogger(__name__)

MAX_BODY: Final = 10 << 20
_UCRED: Final = struct.Struct("3I")
_SO_PEERGROUPS: Final = 59
"""asm-generic/socket.h, Linux 4.13: the peer's supplementary groups when it connected."""
_GROUPS_BYTES: Final = 1024
"""The most that socket.getsockopt takes: 256 groups."""

Json = dict[str, Any]


class RequestError(NumaletError):
    """A request that cannot be served; ``status`` is the HTTP status."""

    def __init__(self, status: int, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status


Query = Mapping[str, str]
Route = Callable[[tuple[str, ...], Query, bytes], Json]
"""What serves one method on one path: (path parts after the name, query, body) -> JSON."""


class ControlServer:
    """Serves ``routes`` (keys like ``"GET pods"``) on a unix socket; one thread per connection."""

    def __init__(self, path: Path, routes: Mapping[str, Route], group: int | None = None) -> None:
        self.path = path
        self._server = _Server(path, routes)
        if group is not None:
            self.admit_group(group)
        self._serving = Serving(self._server, "control-api")

    def start(self) -> None:
        """Begin to serve."""
        self._serving.start()

    def admit_group(self, group: int | None) -> None:
        """Members of this group may do what root may; None: nobody else may. Raises HostError."""
        try:
            self.path.chmod(0o600)
            os.chown(self.path, -1, os.getegid() if group is None else group)
            if group is not None:
                self.path.chmod(0o660)
        except OSError as error:
            text = f"cannot give {self.path} to group {group}: {error.strerror or error}"
            raise HostError(text, hint="choose another controlSocketGroup") from error
        self._server.group = group

    def stop(self) -> None:
        """Stop serving, if it was begun, and remove the socket."""
        self._serving.stop()
        self.path.unlink(missing_ok=True)


class _Server(ThreadingMixIn, UnixStreamServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, path: Path, routes: Mapping[str, Route]) -> None:
        self.routes = routes
        self.group: int | None = None
        with socket_place(path, 0o600, "controlSocket"):
            super().__init__(str(path), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is no news."""
        log.debug("control connection broke off: %s", sys.exception())


def check_peer(connection: socket.socket, group: int | None) -> None:
    """Raise RequestError unless root, our own user or a member of ``group`` is at the other end."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    _pid, uid, gid = _UCRED.unpack(raw)
    if uid in {0, os.geteuid()} or (group is not None and group in {gid, *_supplementary(connection)}):
        return
    hint = "use root" if group is None else "use root, or join the group of the control socket"
    raise RequestError(403, f"user {uid} may not control numalet", hint=hint)


def _supplementary(connection: socket.socket) -> tuple[int, ...]:
    """The peer's supplementary groups; of a user with more than 256 none, who is then no member."""
    try:
        raw = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _GROUPS_BYTES)
    except OSError:
        return ()
    return struct.unpack(f"{len(raw) // 4}I", raw)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    server_version = "numalet"
    timeout = 30

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def _serve(self) -> None:
        try:
            check_peer(self.connection, self.server.group)
            status, answer = 200, self._answer()
        except RequestError as refusal:
            status, answer = refusal.status, _error(refusal.message, refusal.hint)
        except NumaletError as error:
            status, answer = 409, _error(error.message, error.hint)
        except (ConnectionError, TimeoutError):
            raise  # nobody is there to be answered
        except Exception as error:
            log.exception("control request failed: %s %s", self.command, self.path)
            status, answer = 500, _error(f"internal error: {error}", "see the daemon's log")
        self._send(status, answer)

    def _answer(self) -> Json:
        url = urlsplit(self.path)
        version, _, rest = url.path.lstrip("/").partition("/")
        name, *parts = (unquote(part) for part in rest.split("/"))
        route = self.server.routes.get(f"{self.command} {name}") if version == "v1" else None
        if route is None:
            raise RequestError(404, f"nothing at {self.command} {url.path}")
        return route(tuple(parts), dict(parse_qsl(url.query)), self._body())

    def _body(self) -> bytes:
        stated = self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers or not (stated.isascii() and stated.isdigit()):
            raise RequestError(411, "a request states its Content-Length")
        length = int(stated[:20])
        if length > MAX_BODY:
            raise RequestError(400, f"{length} bytes are too many for a manifest (at most {MAX_BODY})")
        body = self.rfile.read(length)
        if len(body) < length:
            raise RequestError(400, f"the request broke off after {len(body)} of {length} bytes")
        return body

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What http.server refuses by itself is answered as JSON, too."""
        self._send(int(code), _error(message or HTTPStatus(code).phrase, explain or ""))

    def _send(self, status: int, answer: Json) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        if status != HTTPStatus.OK:
            # The body may be unread: what follows on this connection would not be a request.
            self.send_header("Connection", "close")
            self.close_connection = True
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "control socket"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        log.debug(format, *args)


def _error(message: str, hint: str) -> Json:
    return {"error": {"message": message, "hint": hint}}
