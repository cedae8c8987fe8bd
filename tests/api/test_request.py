"""Heads of requests: what is read, and what is refused in which words."""

from __future__ import annotations

import pytest

from agent.api.request import MAX_HEADERS, RequestError, read_head


@pytest.mark.parametrize(
    ("raw", "stays", "length", "place"),
    [
        (b"GET /v1/status HTTP/1.1", True, 0, ("GET status", (), {})),
        (b"GET /v1/pods/a/b HTTP/1.0\r\nHost: x", False, 0, ("GET pods", ("a", "b"), {})),
        (b"DELETE /v1/pods/a%2Fb?grace=0&x HTTP/1.1\r\nCONNECTION:Close", False, 0, ("DELETE pods", ("a/b",), {"grace": "0"})),
        (b"POST /v1/pods HTTP/1.1\r\nContent-Length:  12 \r\nX-Y: \xff", True, 12, ("POST pods", (), {})),
        (b"GET /metrics HTTP/1.1", True, 0, ("", (), {})),
        (b"GET http://localhost/v1/cpus HTTP/1.1", True, 0, ("GET cpus", (), {})),
    ],
)  # fmt: skip
def test_a_head_is_read_whole(raw: bytes, stays: bool, length: int, place: object) -> None:
    head = read_head(raw)
    assert (head.stays, head.length) == (stays, length)
    key, parts, query = head.place()
    assert (key, parts if key else (), query) == place


@pytest.mark.parametrize(
    ("raw", "status", "words"),
    [
        (b"", 400, "Bad request syntax"),
        (b"GET /v1/status", 400, "Bad request syntax"),
        (b"PRI * HTTP/2.0", 505, "HTTP/2.0 is not spoken here"),
        (b"HEAD /v1/status HTTP/1.1", 501, "Unsupported method ('HEAD')"),
        (b"GET / HTTP/1.1\r\nno header", 400, "'no header' is not a header"),
        (b"GET / HTTP/1.1\r\nContent-Length : 3", 400, "is not a header"),
        (b"GET / HTTP/1.1\r\n folded: x", 400, "is not a header"),
        (b"GET / HTTP/1.1" + b"\r\na: b" * (MAX_HEADERS + 1), 431, "Too many headers (at most 100)"),
    ],
)
def test_what_is_no_head_is_refused(raw: bytes, status: int, words: str) -> None:
    with pytest.raises(RequestError) as caught:
        read_head(raw)
    assert (caught.value.status, words in caught.value.message) == (status, True)


@pytest.mark.parametrize("stated", ["-1", "many", "", "1_0", "+3", "\u0663"])
def test_a_length_that_is_no_number_is_refused(stated: str) -> None:
    head = read_head(f"POST /v1/pods HTTP/1.1\r\nContent-Length: {stated}".encode())
    with pytest.raises(RequestError, match="states its Content-Length"):
        _ = head.length


def test_a_target_that_is_no_path_is_refused() -> None:
    with pytest.raises(RequestError, match="is not a path"):
        read_head(b"GET http://[x HTTP/1.1").place()
