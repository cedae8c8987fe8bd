"""The TCP face: ``/metrics`` for Prometheus, ``/healthz`` and ``/readyz`` for supervisors, ``/`` for people.

It only reads: GET and HEAD are all it knows, so that nothing on TCP can change anything.
"""

from __future__ import annotations

import logging
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import Final

from agent.api.serving import Serving
from agent.config.address import Address
from agent.errors import HostError

log = logging.getLogger(__name__)

_TEXT: Final = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Request:
    """What a page may want to know of the request; an absent header is empty."""

    accept: str = ""
    host: str = ""
    if_none_match: str = ""
    query: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """An answer: status, body, content type, further headers."""

    status: int
    body: bytes
    kind: str = _TEXT
    headers: Mapping[str, str] = field(default_factory=dict)


Pages = Mapping[str, Callable[[Request], Page]]
"""What serves each path."""


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

    server_version = "numalet"
    sys_version = ""

    def do_GET(self) -> None:
        page = self._page()
        self._head(page)
        self.wfile.write(page.body)

    def do_HEAD(self) -> None:
        self._head(self._page())

    def _refuse(self) -> None:
        refusal = Page(405, b"this address is for reading: GET and HEAD\n", headers={"Allow": "GET, HEAD"})
        self._head(refusal)
        self.wfile.write(refusal.body)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _refuse  # noqa: N815 - http.server's names

    def _head(self, page: Page) -> None:
        self.send_response(page.status)
        self.send_header("Content-Type", page.kind)
        if page.status != HTTPStatus.NOT_MODIFIED:
            self.send_header("Content-Length", str(len(page.body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        for name, value in page.headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _page(self) -> Page:
        path, _, query = self.path.partition("?")
        page = self.server.pages.get(path)
        if page is None:
            return Page(404, b"not found\n")
        get = self.headers.get
        try:
            return page(Request(get("Accept", ""), get("Host", ""), get("If-None-Match", ""), query))
        except Exception:
            log.exception("page failed: %s", path)
            return Page(500, b"internal error\n")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        log.debug(format, *args)
