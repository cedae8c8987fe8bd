"""Clients of the PodResources API that break rules: each loses its own call or connection, nobody else anything."""

from __future__ import annotations

import gc
import logging
import random
import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import grpc
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection

from agent.api.podresources.connection import MAX_REQUEST
from agent.api.podresources.server import PodResourcesServer
from tests.containermanager.node import Node
from tests.podresources.reference import Client
from tests.podresources.serving import Serving, serving

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
LIST = "/v1.PodResourcesLister/List"
NO_MESSAGE = b"\0\0\0\0\0"
HEADERS = {
    ":method": "POST",
    ":scheme": "http",
    ":path": LIST,
    ":authority": "localhost",
    "te": "trailers",
    "content-type": "application/grpc",
}


@pytest.fixture
def both(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[tuple[Serving, Client]]:
    """A server and a client; in the end the next client finds it well and its log without a traceback."""
    caplog.set_level(logging.INFO)
    with serving(tmp_path) as both:
        yield both
        with Client(both[0].path) as other:  # the first may not know yet that it was hung up on
            assert other.list() == {}
    assert [record for record in caplog.records if record.exc_info] == []


def conversation(path: Path, sent: bytes) -> bytes:
    """What the server says to someone who says just this and hangs up his half."""
    with socket.socket(socket.AF_UNIX) as wire:
        wire.settimeout(60)
        wire.connect(str(path))
        try:
            wire.sendall(sent)
            wire.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: wire.recv(1 << 16), b""))
        except ConnectionError:
            return b""


def framed(headers: dict[str, str], body: bytes) -> bytes:
    """A connection with one call, as bytes; no rule is looked after."""
    config = H2Configuration(validate_outbound_headers=False, normalize_outbound_headers=False)
    client = H2Connection(config)
    client.initiate_connection()
    client.send_headers(1, list(headers.items()))
    client.send_data(1, body, end_stream=True)
    return client.data_to_send()


@pytest.mark.parametrize("seed", range(20))
def test_noise(both: tuple[Serving, Client], seed: int) -> None:
    noise = random.Random(seed).randbytes(200)  # noqa: S311 - noise that comes again
    conversation(both[0].path, PREFACE + noise)
    conversation(both[0].path, noise)


@pytest.mark.parametrize("missing", HEADERS)
def test_a_call_without_a_header(both: tuple[Serving, Client], missing: str) -> None:
    headers = {name: text for name, text in HEADERS.items() if name != missing}
    conversation(both[0].path, framed(headers, NO_MESSAGE))
    assert both[0].counts["requests_total", "v1"] == 0


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"", grpc.StatusCode.INTERNAL),
        (NO_MESSAGE[:3], grpc.StatusCode.INTERNAL),
        (b"\0\0\0\0\5ab", grpc.StatusCode.INTERNAL),
        (b"\0\0\0\0\3\xff\xff\xff", grpc.StatusCode.INTERNAL),
        (b"\1\0\0\0\0", grpc.StatusCode.UNIMPLEMENTED),
    ],
    ids=["nothing", "half-a-prefix", "half-a-message", "no-message-of-the-kind", "compressed"],
)
def test_a_call_that_is_no_message(both: tuple[Serving, Client], sent: bytes, code: grpc.StatusCode) -> None:
    answer = conversation(both[0].path, framed(HEADERS, sent))
    reader = H2Connection(H2Configuration(header_encoding="utf-8"))
    reader.initiate_connection()
    reader.send_headers(1, list(HEADERS.items()))
    headers = [pair for event in reader.receive_data(answer) for pair in getattr(event, "headers", ())]
    assert ("grpc-status", str(code.value[0])) in headers
    assert both[0].counts == {}


def test_a_call_that_never_ends_is_cut_off(both: tuple[Serving, Client]) -> None:
    served, client = both
    call = client.channel.unary_unary(LIST, bytes, bytes)
    with pytest.raises(grpc.RpcError) as caught:
        call(bytes(MAX_REQUEST + 1), timeout=60)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert served.counts == {}


def test_who_has_just_connected_is_hung_up_on_at_the_end(tmp_path: Path) -> None:
    path, owner = tmp_path / "kubelet.sock", Node().owner()
    for _ in range(20):
        server = PodResourcesServer(path, 0o600, owner.snapshot, lambda *_: None)
        server.start()
        with socket.socket(socket.AF_UNIX) as newborn:
            newborn.settimeout(60)
            newborn.connect(str(path))
            server.stop()
            with suppress(ConnectionResetError):  # it was not accepted yet
                while newborn.recv(100):
                    pass
        gc.collect()  # tells of what was left open


def test_a_log_that_tells_everything_tells_no_headers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with serving(tmp_path) as (_served, client):
        client.list()
    assert {record.name.split(".")[0] for record in caplog.records} <= {"agent", "asyncio"}


def test_a_client_that_does_not_read_keeps_nobody_waiting(both: tuple[Serving, Client]) -> None:
    served, client = both
    with closing(socket.socket(socket.AF_UNIX)) as wire:
        wire.connect(str(served.path))
        wire.sendall(framed(HEADERS, NO_MESSAGE))
        assert client.list() == {}
