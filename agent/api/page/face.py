"""The page's answers: the document, and the part of it that changes, for those who ask for this host.

A page of another site can have its own name lead to our address (DNS rebinding), and would then read
what we serve to ourselves: so the Host header must be an IP address, `localhost`, or the configured name.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from html import escape
from importlib.resources import files
from ipaddress import ip_address
from math import isnan
from socket import gethostname
from threading import Lock
from typing import Final
from urllib.parse import parse_qs

from agent.api.http import Page, Request
from agent.api.page.content import View, main
from agent.config.address import Address
from agent.containermanager import ContainerManager, Snapshot
from agent.containermanager.events import Event
from agent.drawing.palette import stylesheet

HTML: Final = "text/html; charset=utf-8"
MOST_KEPT: Final = 32
"""Rendered views that are kept until something changes."""
USUAL_WIDTH: Final = 1040
_WIDTHS: Final = (280, 4000)
_SCALES: Final = (1.0, 3.0)


class Face:
    """The page of a daemon that serves at ``address``."""

    def __init__(self, owner: ContainerManager, address: Address) -> None:
        self.owner = owner
        self.host = address.host
        here = files("agent.api.page")
        self._template = (here / "page.html").read_text("utf-8")
        self._style = stylesheet() + "\n" + (here / "page.css").read_text("utf-8")
        self._script = (here / "page.js").read_text("utf-8")
        self._headers = _security(self._style, self._script)
        self._rendered = _Rendered()

    def document(self, request: Request) -> Page:
        """``/``."""
        if not is_ours(request.host, self.host):
            return _misdirected(request.host)
        parts = {
            "name": escape(gethostname()),
            "style": self._style,
            "script": self._script,
            "live": self._live(_view(request.query)),
        }
        head, *rest = self._template.split("{{")
        filled = (parts[name] + after for name, _, after in (piece.partition("}}") for piece in rest))
        return Page(200, "".join((head, *filled)).encode(), HTML, self._headers)

    def live(self, request: Request) -> Page:
        """``/live``: the part that changes; 304 for who has the newest."""
        if not is_ours(request.host, self.host):
            return _misdirected(request.host)
        body = self._live(_view(request.query)).encode()
        tag = f'"{sha256(body).hexdigest()[:32]}"'
        headers = {**self._headers, "ETag": tag}
        if request.if_none_match == tag:
            return Page(304, b"", HTML, headers)
        return Page(200, body, HTML, headers)

    def _live(self, view: View) -> str:
        return self._rendered.get(self.owner.snapshot(), self.owner.events.since(0), view)


class _Rendered:
    """The HTML by view, as long as nothing has changed: polling costs a comparison."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._values: tuple[object, ...] = ()
        self._texts: tuple[object, ...] = ()
        self._views: dict[View, str] = {}

    def get(self, snapshot: Snapshot, events: tuple[Event, ...], view: View) -> str:
        pods = (*snapshot.pods.values(), *snapshot.rejected.values())
        # Immutable, and new objects where they differ: their identity says enough.
        values = (snapshot.topology, snapshot.state, snapshot.managers, *events[-1:], *pods)
        texts = (snapshot.failures, snapshot.problems, snapshot.degraded, snapshot.withdrawn)
        with self._lock:
            if texts != self._texts or not _identical(values, self._values) or len(self._views) >= MOST_KEPT:
                self._values, self._texts, self._views = values, texts, {}
            if view not in self._views:
                self._views[view] = main(snapshot, events, view)
            return self._views[view]


def _identical(some: tuple[object, ...], others: tuple[object, ...]) -> bool:
    return len(some) == len(others) and all(one is other for one, other in zip(some, others, strict=True))


def _view(query: str) -> View:
    """What is asked for, within bounds; what is no number is as if not said."""
    asked = parse_qs(query[:20_000])
    return View(
        width=int(_number(asked, "width", USUAL_WIDTH, _WIDTHS)),
        scale=_number(asked, "scale", 1.0, _SCALES),
        opened=frozenset(asked.get("open", ())),
    )


def _number(asked: Mapping[str, list[str]], name: str, usual: float, bounds: tuple[float, float]) -> float:
    try:
        number = float(asked[name][0])
    except (KeyError, ValueError):
        return usual
    low, high = bounds
    return usual if isnan(number) else min(max(number, low), high)


def is_ours(host: str, configured: str) -> bool:
    """Whether a Host header names an IP address, `localhost`, or the configured host."""
    name, colon, port = host.rpartition(":")
    if not colon or not port.isdigit():
        name = host
    bare = name[1:-1] if name.startswith("[") and name.endswith("]") else name
    if bare.lower() in {"localhost", configured.lower()} - {""}:
        return True
    try:
        ip_address(bare)
    except ValueError:
        return False
    return True


def _misdirected(host: str) -> Page:
    text = (
        f"this is not {host[:100]!a}: ask for the IP address, localhost, or the host of metricsBindAddress\n"
    )
    return Page(421, text.encode())


def _security(style: str, script: str) -> Mapping[str, str]:
    """Nothing is loaded, run, framed or sent anywhere but what this page consists of."""
    policy = {
        "default-src": "'none'",
        "script-src": _digest(script),
        "style-src": _digest(style),
        "img-src": "data:",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    return {
        "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Frame-Options": "DENY",
        "Cache-Control": "no-store",
    }


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
