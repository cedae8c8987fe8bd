"""The TCP face: ``/metrics`` for Prometheus, ``/healthz`` and ``/readyz`` for supervisors."""

from __future__ import annotations

import logging
import socket
import sys
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn

from agent.api.serving import Serving
from agent.config.address import Address
from agent.errors import HostError

log = logging.getLogger(__name__)

Page = tuple[int, bytes, str]
"""Status, body, content type."""
Pages = Mapping[str, Callable[[str], Page]]
"""What serves each path, given the request's Accept header."""


class PageServer:
    """Serves ``pages`` on ``address``; ``port`` is the one in use. Raises HostError where it cannot."""

    def __init__(self, address: Address, pages: Pages) -> None:
        try:
            self._server = _Server(address, pages)
        except (OSError, UnicodeError) as error:
            where = f"{address.host or '*'}:{address.port}"
            raise HostError(
                f"cannot serve metrics on {where}: {error}", hint="choose another metricsBindAddress"
            ) from error
        self.port: int = self._server.server_address[1]
        self._serving = Serving(self._server, "metrics")

    def start(self) -> None:
        """Begin to serve."""
        self._serving.start()

    def stop(self) -> None:
        """Stop serving, if it was begun."""
        self._serving.stop()


class _Server(ThreadingMixIn, TCPServer):
    # Not http.server's HTTPServer: that one asks the DNS for its own name before it listens.
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, address: Address, pages: Pages) -> None:
        self.pages = pages
        if ":" in address.host:
            self.address_family = socket.AF_INET6
        super().__init__((address.host, address.port), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is no news."""
        log.debug("page connection broke off: %s", sys.exception())


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 30

    def do_GET(self) -> None:
        status, body, kind = self._page()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _page(self) -> Page:
        page = self.server.pages.get(self.path.partition("?")[0])
        if page is None:
            return 404, b"not found\n", "text/plain"
        try:
            return page(self.headers.get("Accept", ""))
        except Exception:
            log.exception("page failed: %s", self.path)
            return 500, b"internal error\n", "text/plain"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        log.debug(format, *args)
