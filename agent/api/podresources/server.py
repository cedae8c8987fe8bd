"""The PodResources API on a unix socket, as the kubelet serves it: gRPC, v1 and v1alpha1.

Beside it gRPC's own health and reflection services, so that standard tools can look in. One thread
serves all clients with asyncio; it sleeps while nobody calls, and loads gRPC when somebody does.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Final

from agent.api.unixsocket import socket_place
from agent.containermanager.snapshot import Snapshot

_BACKLOG: Final = 256


class PodResourcesServer:
    """Serves what ``snapshot`` shows; takes the socket at once, with ``mode``. Raises HostError."""

    def __init__(
        self,
        path: Path,
        mode: int,
        snapshot: Callable[[], Snapshot],
        count: Callable[[str, str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = path
        self._snapshot = snapshot
        self._count = count
        self._clock = clock
        self._listener = socket.socket(socket.AF_UNIX)
        try:
            with socket_place(path, mode, "podResourcesSocket"):
                self._listener.bind(str(path))
                self._listener.listen(_BACKLOG)
        except BaseException:
            self._listener.close()
            raise
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._woken = asyncio.Event()
        self._thread = Thread(target=self._run, name="pod-resources", daemon=True)

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def stop(self) -> None:
        """Stop serving, if it was begun, and remove the socket."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._end)
            self._thread.join()
        self._loop.close()
        self._listener.close()
        self.path.unlink(missing_ok=True)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())

    def _end(self) -> None:
        self._stopping.set()
        self._woken.set()

    async def _serve(self) -> None:
        self._loop.add_reader(self._listener, self._woken.set)
        await self._woken.wait()
        self._loop.remove_reader(self._listener)
        if self._stopping.is_set():
            return
        from agent.api.podresources.services import server_of  # noqa: PLC0415 - gRPC and protobuf take 7 MB and a fifth of the start

        server = server_of(self._snapshot, self._count, self._clock)
        await server.start(sock=self._listener)
        await self._stopping.wait()
        await server.stop(self._listener)
