"""Requests to the control API: HTTP/1.1 as httptools (llhttp) reads it, within bounds, refused in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from socket import socket
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from agent.errors import NumaletError

MAX_BODY: Final = 10 << 20
MAX_HEAD: Final = 64 << 10
"""Bytes, of a head that does not end; one that comes at once may be longer by what is read at once."""
MAX_HEADERS: Final = 100
VERSIONS: Final = ("1.0", "1.1")
METHODS: Final = ("GET", "POST", "DELETE")

Json = dict[str, Any]
Answer = tuple[int, Json]
"""HTTP status and body."""


class RequestError(NumaletError):
    """A request that cannot be served; ``status`` is the HTTP status."""

    def __init__(self, status: int, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What answers a request, given its body; ``slow`` if it may take its time."""

    work: Callable[[bytes], Answer]
    slow: bool


Find = Callable[[socket, str, str], Call]
"""(connection, method, target) -> what answers it. Raises RequestError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A whole request; ``stays`` says whether the connection is to serve another one after it."""

    call: Call
    body: bytes
    stays: bool


class RequestReader:
    """The requests of one connection, each looked up as soon as its head is there, before its body is read.

    After a RequestError, or a call for another protocol, it reads no more: what follows would not be a request. ``proceed`` is called where the
    client sends a body only once it is asked to. The methods ``on_...`` are the parser's to call.
    """

    def __init__(self, find: Callable[[str, str], Call], proceed: Callable[[], None]) -> None:
        self._find = find
        self._proceed = proceed
        self._parser = HttpRequestParser(self)
        self._read: list[Request | RequestError] = []
        self._is_done = False
        """Whether what follows is no request."""
        self._head_bytes = 0
        """What came of a head that is not complete."""
        self._call: Call | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._target, self._body, self._length = b"", bytearray(), 0

    def feed(self, data: bytes) -> list[Request | RequestError]:
        """The requests that ``data`` completes, in their order, and then at most one refusal."""
        if self._is_done:
            return []
        self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:  # it was answered as if it had not asked for another protocol
            self._is_done = True
        except HttpParserError as error:
            self._refuse(RequestError(400, f"Bad request syntax: {error}"))
        if self._head_bytes > MAX_HEAD:
            self._refuse(RequestError(431, f"Too long a header (at most {MAX_HEAD} bytes)"))
        return self._taken()

    def end(self) -> list[Request | RequestError]:
        """As `feed`, where nothing more comes."""
        if self._call:
            here = len(self._body)
            self._refuse(RequestError(400, f"the request broke off after {here} of {self._length} bytes"))
        return self._taken()

    def close(self) -> None:
        """Let go of the parser, which has this reader's methods: nobody else would for long."""
        self._is_done = True
        del self._parser

    def _taken(self) -> list[Request | RequestError]:
        taken, self._read = self._read, []
        return taken

    def _refuse(self, refusal: RequestError) -> None:
        if not self._is_done:
            self._is_done = True
            self._read.append(refusal)
            self._call = None

    def on_message_begin(self) -> None:
        """A request begins."""
        self._call, self._headers = None, []
        self._target, self._body, self._length = b"", bytearray(), 0

    def on_url(self, part: bytes) -> None:
        """Its target, or a part of that."""
        self._target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        """One of its headers."""
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Its head is there."""
        self._head_bytes = 0
        try:
            self._begin(dict(self._headers))
        except RequestError as refusal:
            self._refuse(refusal)

    def _begin(self, headers: Mapping[bytes, bytes]) -> None:
        method, version = self._parser.get_method().decode("latin-1"), self._parser.get_http_version()
        if self._is_done:
            return
        if version not in VERSIONS:
            raise RequestError(505, f"HTTP/{version} is not spoken here, HTTP/1.1 is")
        if method not in METHODS:
            raise RequestError(501, f"Unsupported method ({method!r})")
        if len(self._headers) > MAX_HEADERS:
            raise RequestError(431, f"Too many headers (at most {MAX_HEADERS})")
        if b"transfer-encoding" in headers:
            raise RequestError(411, "a request states its Content-Length")
        self._length = int(headers.get(b"content-length", b"0"))
        if self._length > MAX_BODY:
            raise RequestError(400, f"{self._length} bytes are too many for a manifest (at most {MAX_BODY})")
        self._call = self._find(method, self._target.decode("latin-1"))
        if headers.get(b"expect", b"").lower() == b"100-continue" and self._length:
            self._proceed()

    def on_body(self, part: bytes) -> None:
        """Of its body."""
        if self._call:
            self._body += part

    def on_message_complete(self) -> None:
        """All of it is there."""
        if self._call:
            stays = self._parser.should_keep_alive() and not self._parser.should_upgrade()
            self._read.append(Request(call=self._call, body=bytes(self._body), stays=stays))
            self._call = None


def place(method: str, target: str) -> tuple[str, tuple[str, ...], Mapping[str, str]]:
    """What is asked for: the route's key (``GET pods``), path parts after it, query.

    The key is empty outside of ``/v1``. Raises RequestError for a target that is none.
    """
    try:
        url = urlsplit(target)
    except ValueError as error:
        raise RequestError(400, f"{target} is not a path: {error}") from error
    version, _, rest = url.path.lstrip("/").partition("/")
    name, *parts = (unquote(part) for part in rest.split("/"))
    return f"{method} {name}" if version == "v1" else "", tuple(parts), dict(parse_qsl(url.query))
