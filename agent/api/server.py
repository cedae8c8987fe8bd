"""The control API: HTTP/JSON on a unix socket, for root, the daemon's own user, and members of `controlSocketGroup`.

``GET /v1/status|pods|cpus|nodes|deviations``, ``GET /v1/pods/NAMESPACE/NAME``, ``POST /v1/pods`` with
a manifest as body, ``DELETE /v1/pods/NAMESPACE/NAME``, ``GET /v1/events?since=NUMBER&run=RUN&
wait=SECONDS&pod=NAMESPACE/NAME`` (answers as soon as there is an event after that one of that run). Errors are
``{"error": {"message", "hint"}}`` with status 400 (bad input), 403, 404, 409 (refused), 411 or 500.

One thread reads, answers what is quick and writes: with a thread for each caller, hundreds of them hold up an
admission with every lock it takes and every file it writes, because each time all of them want Python's lock.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from threading import Thread
from typing import Any, Final

from agent.api.connection import Connection, problem, refused
from agent.api.ending import end_all
from agent.api.request import Answer, Call, RequestError, place
from agent.api.unixsocket import socket_place
from agent.api.workers import Workers
from agent.errors import HostError, NumaletError

log = logging.getLogger(__name__)

IDLE_SECONDS: Final = 30.0
_BACKLOG: Final = 256
_UCRED: Final = struct.Struct("3I")
_SO_PEERGROUPS: Final = 59
"""asm-generic/socket.h, Linux 4.13: the peer's supplementary groups when it connected."""
_GROUPS_BYTES: Final = 1024
"""The most that socket.getsockopt takes: 256 groups."""

Json = dict[str, Any]
Query = Mapping[str, str]
Route = Callable[[tuple[str, ...], Query, bytes], Json]
"""What serves one method on one path: (path parts after the name, query, body) -> JSON."""


class ControlServer:
    """Serves ``routes`` (keys like ``"GET pods"``) on a unix socket; takes it at once. Raises HostError.

    Routes in ``quick`` neither wait nor look at the kernel: they are answered on the spot. Each call of another
    has a thread of its own.
    """

    def __init__(
        self,
        path: Path,
        routes: Mapping[str, Route],
        group: int | None = None,
        quick: AbstractSet[str] = frozenset(),
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self.path = path
        self._idle_seconds = idle_seconds
        self._routes = routes
        self._quick = quick
        self._group: int | None = None
        self._listener = socket.socket(socket.AF_UNIX)
        try:
            with socket_place(path, 0o600, "controlSocket"):
                self._listener.bind(str(path))
                self._listener.listen(_BACKLOG)
            if group is not None:
                self.admit_group(group)
        except BaseException:
            self._listener.close()
            raise
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._workers = Workers("control-call")
        self._open: set[asyncio.Transport] = set()
        self._thread = Thread(target=self._run, name="control-api", daemon=True)

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

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
        self._group = group

    def stop(self) -> None:
        """Stop serving, if it was begun, and remove the socket."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()
        self._loop.close()
        self._listener.close()
        self.path.unlink(missing_ok=True)

    def _find(self, connection: socket.socket, method: str, target: str) -> Call:
        check_peer(connection, self._group)
        key, parts, query = place(method, target)
        route = self._routes.get(key)
        if route is None:
            raise RequestError(404, f"nothing at {method} {target.partition('?')[0]}")
        return Call(
            work=lambda body: self._answer(key, lambda: route(parts, query, body)),
            slow=key not in self._quick,
        )

    @staticmethod
    def _answer(key: str, call: Callable[[], Json]) -> Answer:
        try:
            return 200, call()
        except RequestError as error:
            return refused(error)
        except NumaletError as error:
            return 409, problem(error.message, error.hint)
        except Exception as error:
            log.exception("control request failed: %s", key)
            return 500, problem(f"internal error: {error}", "see the daemon's log")

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        server = await self._loop.create_unix_server(
            lambda: Connection(self._find, self._loop, self._workers, self._open, self._idle_seconds),
            sock=self._listener,
            backlog=_BACKLOG,
        )
        await self._stopping.wait()
        await end_all(self._listener, server.close, self._open)
        self._workers.end()


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
