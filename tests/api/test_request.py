"""Requests as they come in: what is read, and what is refused in which words."""

from __future__ import annotations

import pytest

from agent.api.request import (
    MAX_BODY,
    MAX_HEAD,
    MAX_HEADERS,
    Call,
    Request,
    RequestError,
    RequestReader,
    place,
)


class Client:
    """Feeds a reader and remembers what it asked for."""

    def __init__(self) -> None:
        self.found: list[tuple[str, str]] = []
        self.proceeded = 0
        self.reader = RequestReader(self.find, self.proceed)

    def find(self, method: str, target: str) -> Call:
        self.found.append((method, target))
        if target == "/nothing":
            raise RequestError(404, "nothing there")
        return Call(work=lambda body: (200, {"size": len(body)}), slow=False)

    def proceed(self) -> None:
        self.proceeded += 1

    def send(self, raw: bytes, *, at_once: int) -> list[tuple[bytes, bool] | str]:
        """What is read of ``raw``, sent so many bytes at once: bodies and whether the connection stays."""
        parts = [raw[at : at + at_once] for at in range(0, len(raw), at_once)]
        read = [item for part in parts for item in self.reader.feed(part)]
        return [(item.body, item.stays) if isinstance(item, Request) else str(item) for item in read]


@pytest.fixture(params=[1, 7, 1 << 20], ids=["byte by byte", "in parts", "whole"])
def at_once(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.mark.parametrize(
    ("raw", "body", "stays", "asked"),
    [
        (b"GET /v1/status HTTP/1.1\r\n\r\n", b"", True, ("GET", "/v1/status")),
        (b"GET /v1/pods/a/b HTTP/1.0\r\nHost: x\r\n\r\n", b"", False, ("GET", "/v1/pods/a/b")),
        (b"DELETE /v1/pods?x=1 HTTP/1.1\r\nCONNECTION:Close\r\n\r\n", b"", False, ("DELETE", "/v1/pods?x=1")),
        (b"POST /v1/pods HTTP/1.1\r\nContent-Length:  3 \r\nX-Y: \xff\r\n\r\nabc", b"abc", True, ("POST", "/v1/pods")),
    ],
)  # fmt: skip
def test_a_request_is_read_whole(
    raw: bytes, body: bytes, stays: bool, asked: tuple[str, str], at_once: int
) -> None:
    client = Client()
    assert client.send(raw, at_once=at_once) == [(body, stays)]
    assert client.found == [asked]
    assert client.reader.end() == []


def test_requests_are_read_in_their_order_and_none_after_one_that_is_refused(at_once: int) -> None:
    client = Client()
    first = b"POST /a HTTP/1.1\r\nContent-Length: 2\r\n\r\n12\r\n"
    hidden = b"GET /c HTTP/1.1\r\n\r\n"
    refused = b"POST /nothing HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(hidden) + hidden
    assert client.send(first + refused + hidden, at_once=at_once) == [(b"12", True), "nothing there"]
    assert client.found == [("POST", "/a"), ("POST", "/nothing")]


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"GARBAGE\r\n\r\n", "Bad request syntax"),
        (b"GET /v1/status\r\n\r\n", "HTTP/0.9 is not spoken here"),
        (b"GET / HTTP/2.0\r\n\r\n", "HTTP/2.0 is not spoken here"),
        (b"HEAD /v1/status HTTP/1.1\r\n\r\n", "Unsupported method ('HEAD')"),
        (b"GET / HTTP/1.1\r\nno header\r\n\r\n", "Bad request syntax"),
        (b"POST / HTTP/1.1\r\nContent-Length : 3\r\n\r\nabc", "Bad request syntax"),
        (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", "Content-Length"),
        (b"POST / HTTP/1.1\r\nContent-Length: many\r\n\r\n", "Content-Length"),
        (b"POST / HTTP/1.1\r\nContent-Length: +3\r\n\r\n", "Content-Length"),
        (b"POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n", "Content-Length"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", "states its Content-Length"),
        (b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (MAX_BODY + 1), "too many for a manifest"),
        (b"GET / HTTP/1.1" + b"\r\na: b" * (MAX_HEADERS + 1) + b"\r\n\r\n", "Too many headers (at most 100)"),
        (b"GET / HTTP/1.1\r\na: " + b"b" * (MAX_HEAD + 1), "Too long a header"),
        (b"GET /" + b"b" * (MAX_HEAD + 1), "Too long a header"),
    ],
)  # fmt: skip
def test_what_is_no_request_is_refused_once(raw: bytes, words: str) -> None:
    client = Client()
    read = client.send(raw, at_once=4096)
    assert [words in str(item) for item in read] == [True]
    assert client.send(b"GET / HTTP/1.1\r\n\r\n", at_once=4096) == []


def test_another_protocol_is_not_spoken_and_what_follows_is_none(at_once: int) -> None:
    client = Client()
    upgrade = b"GET /a HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    assert client.send(upgrade + b"GET /b HTTP/1.1\r\n\r\n", at_once=at_once) == [(b"", False)]
    assert client.found == [("GET", "/a")]


def test_a_body_that_breaks_off_is_told() -> None:
    client = Client()
    assert client.send(b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc", at_once=100) == []
    assert [str(item) for item in client.reader.end()] == ["the request broke off after 3 of 9 bytes"]


def test_a_client_that_asks_first_is_told_to_send_unless_it_would_be_refused() -> None:
    client = Client()
    for target, proceeded in ((b"/a", 1), (b"/nothing", 1)):
        head = b"POST %s HTTP/1.1\r\nContent-Length: 1\r\nExpect: 100-Continue\r\n\r\n" % target
        client.send(head + (b"x" if target == b"/a" else b""), at_once=1000)
        assert client.proceeded == proceeded


@pytest.mark.parametrize(
    ("method", "target", "key", "parts", "query"),
    [
        ("GET", "/v1/status", "GET status", (), {}),
        ("DELETE", "/v1/pods/a%2Fb?grace=0&x", "DELETE pods", ("a/b",), {"grace": "0"}),
        ("GET", "http://localhost/v1/cpus", "GET cpus", (), {}),
    ],
)
def test_a_target_says_what_is_asked_for(
    method: str, target: str, key: str, parts: tuple[str, ...], query: dict[str, str]
) -> None:
    assert place(method, target) == (key, parts, query)


def test_outside_of_v1_is_nothing() -> None:
    assert place("GET", "/metrics")[0] == ""


def test_a_target_that_is_no_path_is_refused() -> None:
    with pytest.raises(RequestError, match="is not a path"):
        place("GET", "http://[x")
