"""The head of an HTTP/1.1 request to the control API, read completely or refused in words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from agent.errors import NumaletError

MAX_BODY: Final = 10 << 20
MAX_HEAD: Final = 64 << 10
MAX_HEADERS: Final = 100
METHODS: Final = ("GET", "POST", "DELETE")

_VERSION = re.compile(r"HTTP/1\.[01]")
_LENGTH = re.compile(r"[0-9]+")


class RequestError(NumaletError):
    """A request that cannot be served; ``status`` is the HTTP status."""

    def __init__(self, status: int, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Request line and headers; header names are in lower case, of a repeated one the last counts."""

    method: str
    target: str
    version: str
    headers: Mapping[str, str]

    @property
    def stays(self) -> bool:
        """Whether the connection is to serve another request after this one."""
        return self.version == "HTTP/1.1" and self.headers.get("connection", "").lower() != "close"

    @property
    def expects_continue(self) -> bool:
        """Whether the client sends the body only once it is asked to."""
        return self.headers.get("expect", "").lower() == "100-continue"

    @property
    def length(self) -> int:
        """Bytes of the body. Raises RequestError where that is not stated, or too many."""
        stated = self.headers.get("content-length", "0")
        if "transfer-encoding" in self.headers or not _LENGTH.fullmatch(stated):
            raise RequestError(411, "a request states its Content-Length")
        length = int(stated[:20])
        if length > MAX_BODY:
            raise RequestError(400, f"{length} bytes are too many for a manifest (at most {MAX_BODY})")
        return length

    def place(self) -> tuple[str, tuple[str, ...], Mapping[str, str]]:
        """What is asked for: the route's key (``GET pods``), path parts after it, query.

        The key is empty outside of ``/v1``. Raises RequestError for a target that is none.
        """
        try:
            url = urlsplit(self.target)
        except ValueError as error:
            raise RequestError(400, f"{self.target} is not a path: {error}") from error
        version, _, rest = url.path.lstrip("/").partition("/")
        name, *parts = (unquote(part) for part in rest.split("/"))
        return f"{self.method} {name}" if version == "v1" else "", tuple(parts), dict(parse_qsl(url.query))


def read_head(raw: bytes) -> Head:
    """Read what stands before the empty line. Raises RequestError."""
    first, *lines = raw.decode("latin-1").split("\r\n")
    words = first.split()
    if len(words) != 3:
        raise RequestError(400, f"Bad request syntax ({first[:80]!r})")
    method, target, version = words
    if not _VERSION.fullmatch(version):
        raise RequestError(505, f"{version[:20]} is not spoken here, HTTP/1.1 is")
    if method not in METHODS:
        raise RequestError(501, f"Unsupported method ({method[:20]!r})")
    if len(lines) > MAX_HEADERS:
        raise RequestError(431, f"Too many headers (at most {MAX_HEADERS})")
    headers = {}
    for line in lines:
        name, colon, text = line.partition(":")
        if not colon or not name or name != name.strip():
            raise RequestError(400, f"{line[:80]!r} is not a header")
        headers[name.lower()] = text.strip()
    return Head(method=method, target=target, version=version, headers=headers)
