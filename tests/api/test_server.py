"""Requests over the control socket: what is answered, to how many at once, and what comes to grief without harm."""

from __future__ import annotations

import gc
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path

import pytest

from agent.api.client import ControlClient, ControlError
from agent.api.connection import Connection
from agent.api.request import MAX_BODY, RequestReader
from agent.api.server import ControlServer
from tests.api.served import ROUTES, Json, raw


def refused(path: Path, target: str) -> ControlError:
    with pytest.raises(ControlError) as caught:
        ControlClient(path).call("GET", target)
    return caught.value


@pytest.mark.usefixtures("server")
def test_a_request_reaches_its_route_with_parts_query_and_body(path: Path) -> None:
    answer = ControlClient(path).call("POST", "/v1/echo/a%2Fb/c?grace=2&source=x%20y", b"12345")
    assert answer == {"parts": ["a/b", "c"], "query": {"grace": "2", "source": "x y"}, "size": 5}


@pytest.mark.parametrize(
    ("target", "status", "message", "hint"),
    [
        ("/v1/missing", 404, "no such pod", "look elsewhere"),
        ("/v1/full", 409, "the disk is full", "free some"),
        ("/v1/broken", 500, "internal error: a fault of ours", "see the daemon's log"),
        ("/v1/file", 500, "internal error: [Errno 2] a fault of ours", "see the daemon's log"),
        ("/v1/nothing", 404, "nothing at GET /v1/nothing", ""),
        ("/v2/echo", 404, "nothing at GET /v2/echo", ""),
        ("/", 404, "nothing at GET /", ""),
    ],
)
@pytest.mark.usefixtures("server")
def test_errors_carry_status_message_and_hint(
    path: Path, target: str, status: int, message: str, hint: str
) -> None:
    error = refused(path, target)
    assert (error.status, error.message, error.hint) == (status, message, hint)


@pytest.mark.usefixtures("server")
def test_two_hundred_clients_at_once_are_all_served(path: Path) -> None:
    begin = threading.Barrier(200)

    def call(number: int) -> Json:
        begin.wait()
        return ControlClient(path).call("POST", f"/v1/echo/{number}", b"x" * number)

    with ThreadPoolExecutor(200) as clients:
        answers = list(clients.map(call, range(200)))
    assert [(answer["parts"], answer["size"]) for answer in answers] == [([str(n)], n) for n in range(200)]


@pytest.mark.usefixtures("server")
def test_a_slow_client_holds_up_nobody(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as slow:
        slow.connect(str(path))
        slow.sendall(b"POST /v1/echo HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc")
        assert ControlClient(path).call("GET", "/v1/echo")["size"] == 0


@pytest.mark.usefixtures("server")
def test_a_connection_can_be_used_again(path: Path) -> None:
    class Unix(HTTPConnection):
        def connect(self) -> None:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.connect(str(path))

    connection = Unix("localhost")
    for size in (3, 0, 5):
        connection.request("POST", "/v1/echo", b"x" * size)
        assert json.loads(connection.getresponse().read())["size"] == size
    connection.close()


@pytest.mark.usefixtures("server")
def test_requests_sent_at_once_are_answered_in_their_order(path: Path) -> None:
    sizes = (3, 0, 70_000, 1)
    request = b"".join(
        b"POST /v1/echo HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s\r\n" % (n, b"x" * n) for n in sizes
    )
    answers = raw(path, request).split(b"\r\n\r\n")[1:]
    assert [json.JSONDecoder().raw_decode(answer.decode())[0]["size"] for answer in answers] == list(sizes)


@pytest.mark.parametrize("quick", [set(), {"GET echo"}], ids=["in-threads", "on-the-spot"])
def test_who_asks_without_reading_is_answered_once_he_reads(vacant: Path, quick: set[str]) -> None:
    text = "x" * 100_000
    server = ControlServer(vacant, {"GET echo": lambda *_: {"text": text}}, quick=quick)
    server.start()
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(0.2)
        client.connect(str(vacant))
        request, sent = b"GET /v1/echo HTTP/1.1\r\nPadding: %s\r\n\r\n" % (b"x" * 5000), 0
        with suppress(TimeoutError):  # he is not listened to for ever, either
            while sent < 500:
                client.sendall(request)
                sent += 1
        assert sent < 500
        client.settimeout(60)
        client.shutdown(socket.SHUT_WR)
        answers = b"".join(iter(lambda: client.recv(1 << 20), b""))
    assert answers.count(text.encode()) == sent
    server.stop()


@pytest.mark.usefixtures("server")
def test_a_client_that_waits_to_be_asked_for_the_body_is_asked(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(60)
        client.connect(str(path))
        client.sendall(b"POST /v1/echo HTTP/1.0\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
        assert client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(b"abc")
        answer = b"".join(iter(lambda: client.recv(1000), b""))
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert answer.endswith(b'"size": 3}')


@pytest.mark.parametrize(
    "sent", [b"", b"GET /v1/ec", b"POST /v1/echo HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc"]
)
def test_a_client_that_says_no_more_is_hung_up_on(vacant: Path, sent: bytes) -> None:
    server = ControlServer(vacant, ROUTES, idle_seconds=0.01)
    server.start()
    with suppress(ConnectionError):  # before it could send
        assert raw(vacant, sent, end=False) == b""
    server.stop()


def test_who_waits_for_an_answer_keeps_neither_others_waiting_nor_the_end(vacant: Path) -> None:
    asked, answer = threading.Event(), threading.Event()

    def wait(_parts: tuple[str, ...], _query: object, _body: bytes) -> Json:
        asked.set()
        answer.wait()
        return {}

    server = ControlServer(vacant, {**ROUTES, "GET wait": wait}, quick={"GET echo"})
    server.start()
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(60)
        client.connect(str(vacant))
        client.sendall(b"GET /v1/wait HTTP/1.1\r\n\r\n")
        assert asked.wait(60)
        assert ControlClient(vacant).call("GET", "/v1/echo")["size"] == 0
        server.stop()
        assert client.recv(100) == b""
    answer.set()  # nobody is there any more


def test_who_has_just_connected_is_hung_up_on_at_the_end(vacant: Path) -> None:
    for _ in range(20):
        server = ControlServer(vacant, ROUTES)
        server.start()
        with socket.socket(socket.AF_UNIX) as newborn:
            newborn.settimeout(60)
            newborn.connect(str(vacant))
            server.stop()
            with suppress(ConnectionResetError):  # it was not accepted yet
                assert newborn.recv(1) == b""
        gc.collect()  # tells of what was left open


def test_a_connection_that_is_over_leaves_nothing_for_the_garbage_collector_to_find(vacant: Path) -> None:
    def there() -> list[object]:
        return [one for one in gc.get_objects() if type(one) in {Connection, RequestReader}]

    gc.collect()
    gc.disable()
    try:
        before, threads = there(), set(threading.enumerate())  # of other tests
        server = ControlServer(vacant, ROUTES)
        server.start()
        assert ControlClient(vacant).call("POST", "/v1/echo", b"123")["size"] == 3
        server.stop()
        for worker in set(threading.enumerate()) - threads:
            worker.join(60)  # who has answered may hold the request a moment longer
        assert all(any(one is other for other in before) for one in there())
    finally:
        gc.enable()


def test_who_does_not_take_his_answer_does_not_hold_up_the_end(vacant: Path) -> None:
    large = "x" * (4 << 20)
    server = ControlServer(vacant, {"GET large": lambda *_: {"text": large}}, quick={"GET large"})
    server.start()
    with socket.socket(socket.AF_UNIX) as greedy:
        greedy.settimeout(60)
        greedy.connect(str(vacant))
        greedy.sendall(b"GET /v1/large HTTP/1.1\r\n\r\n")
        assert greedy.recv(1, socket.MSG_PEEK) == b"H"
        server.stop()
        assert len(b"".join(iter(lambda: greedy.recv(1 << 16), b""))) < len(large)


@pytest.mark.parametrize(
    ("request_", "status", "words"),
    [
        pytest.param(b"POST /v1/echo HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc", 400, "broke off after 3 of 9 bytes", id="cut short"),
        pytest.param(b"POST /v1/echo HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400, "Invalid character in Content-Length", id="negative length"),
        pytest.param(b"POST /v1/echo HTTP/1.1\r\nContent-Length: many\r\n\r\n", 400, "Invalid character in Content-Length", id="no number"),
        pytest.param(b"POST /v1/echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", 411, "states its Content-Length", id="chunked"),
        pytest.param(b"POST /v1/echo HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n", 400, "Content-Length overflow", id="huge length"),
        pytest.param(b"PUT /v1/echo HTTP/1.1\r\n\r\n", 501, "Unsupported method", id="method"),
        pytest.param(b"GARBAGE\r\n\r\n", 400, "Bad request syntax", id="garbage"),
        pytest.param(b"GET /v1/echo HTTP/1.1\r\n" + b"a: b\r\n" * 500 + b"\r\n", 431, "Too many headers", id="headers"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("server")
def test_a_bad_request_gets_a_clear_answer_as_json(
    path: Path, request_: bytes, status: int, words: str
) -> None:
    head, _, body = raw(path, request_).partition(b"\r\n\r\n")
    if head.startswith(b"{"):  # HTTP/0.9 has no head
        body = head
    else:
        assert int(head.split()[1]) == status
        assert b"Connection: close" in head
    assert words in json.dumps(json.loads(body)["error"])
    assert ControlClient(path).call("GET", "/v1/echo")["size"] == 0


@pytest.mark.usefixtures("server")
def test_the_rest_of_a_refused_request_is_not_taken_for_the_next_one(path: Path) -> None:
    hidden = b"GET /v1/echo HTTP/1.1\r\n\r\n"
    request = b"POST /v1/nothing HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(hidden) + hidden
    assert raw(path, request).count(b"HTTP/1.1 ") == 1


@pytest.mark.usefixtures("server")
def test_a_body_that_is_too_large_is_refused_in_words(path: Path) -> None:
    with pytest.raises(ControlError, match="are too many for a manifest") as caught:
        ControlClient(path).call("POST", "/v1/echo", b"x" * (MAX_BODY + 1))
    assert caught.value.status == 400


@pytest.mark.usefixtures("server")
def test_a_client_that_hangs_up_before_the_answer_is_no_news(
    path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(20):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(b"GET /v1/echo HTTP/1.1\r\n\r\n" * 50)
    assert ControlClient(path).call("GET", "/v1/echo")["size"] == 0
    assert capsys.readouterr().err == ""
    assert [record for record in caplog.records if record.levelname != "DEBUG"] == []
