"""A thread that serves a socket, and sleeps while nobody calls: `serve_forever` would look twice a second."""

from __future__ import annotations

from contextlib import suppress
from socket import SHUT_RDWR
from socketserver import TCPServer
from threading import Event, Thread


class Serving:
    """Serves ``server`` in a thread called ``name`` from `start` to `stop`."""

    def __init__(self, server: TCPServer, name: str) -> None:
        self._server = server
        self._stopping = Event()
        self._thread = Thread(target=self._serve, name=name, daemon=True)

    def _serve(self) -> None:
        while not self._stopping.is_set():
            self._server.handle_request()

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def stop(self) -> None:
        """Stop serving, if it was begun, and close the socket."""
        self._stopping.set()
        with suppress(OSError):  # wakes the thread that waits for a caller
            self._server.socket.shutdown(SHUT_RDWR)
        if self._thread.is_alive():
            self._thread.join()
        self._server.server_close()
