"""The TCP face: pages by path, on the address asked for, with no way to bring the daemon down."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from http.client import HTTPConnection

import pytest

from agent.api.http import Page, PageServer, Request
from agent.config.address import Address
from agent.errors import HostError


def broken(_request: Request) -> Page:
    raise ZeroDivisionError


PAGES = {
    "/metrics": lambda request: Page(200, request.accept.encode()),
    "/readyz": lambda _request: Page(503, b"not yet\n"),
    "/broken": broken,
}


@pytest.fixture(scope="module")
def server() -> Iterator[PageServer]:
    server = PageServer(Address("127.0.0.1", 0), PAGES)
    server.start()
    yield server
    server.stop()


def get(port: int, path: str, host: str = "127.0.0.1") -> tuple[int, bytes]:
    connection = HTTPConnection(host, port, timeout=10)
    connection.request("GET", path, headers={"Accept": "application/x"})
    response = connection.getresponse()
    answer = response.status, response.read()
    connection.close()
    return answer


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        ("/metrics", 200, b"application/x"),
        ("/metrics?name=x", 200, b"application/x"),
        ("/readyz", 503, b"not yet\n"),
        ("/other", 404, b"not found\n"),
        ("/broken", 500, b"internal error\n"),
    ],
)
def test_pages(server: PageServer, path: str, status: int, body: bytes) -> None:
    assert get(server.port, path) == (status, body)


def has_ipv6() -> bool:
    with socket.socket(socket.AF_INET6) as probe:
        return probe.connect_ex(("::1", 9)) in {0, errno.ECONNREFUSED}


def test_ipv6() -> None:
    if not has_ipv6():
        with pytest.raises(HostError, match="cannot serve metrics on ::1"):
            PageServer(Address("::1", 0), PAGES)
        return
    server = PageServer(Address("::1", 0), PAGES)
    server.start()
    assert get(server.port, "/metrics", "::1") == (200, b"application/x")
    server.stop()


def test_a_port_that_is_taken_is_a_clear_error(server: PageServer) -> None:
    with pytest.raises(
        HostError, match=f"cannot serve metrics on 127.0.0.1:{server.port}: .*in use"
    ) as caught:
        PageServer(Address("127.0.0.1", server.port), PAGES)
    assert caught.value.hint == "choose another metricsBindAddress"


@pytest.mark.parametrize("host", ["203.0.113.1", "a" * 70])
def test_an_address_that_is_not_ours_is_a_clear_error(host: str) -> None:
    with pytest.raises(HostError, match="cannot serve metrics on"):
        PageServer(Address(host, 0), PAGES)


def test_a_server_that_never_served_can_be_stopped() -> None:
    PageServer(Address("127.0.0.1", 0), PAGES).stop()
