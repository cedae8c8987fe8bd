"""Whatever goes wrong: what, where and the way out on stderr, an exit status, and never a traceback."""

from __future__ import annotations

import os
import pty
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import Command, invoke
from tests.containermanager.node import pod

READING = (
    ("get", "pods"),
    ("get", "nodes", "-o", "json"),
    ("describe", "pod", "a"),
    ("status",),
    ("top", "--interval", "0.1"),
    ("events",),
    ("events", "-f"),
    ("verify",),
)
NUMALET = (sys.executable, "-m", "agent")


def answering(path: Path, answer: bytes) -> threading.Thread:
    """Something that is no daemon, and answers everything alike."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    listening.listen()

    def serve() -> None:
        while True:
            connection, _ = listening.accept()
            with connection:
                if connection.recv(65536) == b"stop":
                    listening.close()
                    return
                connection.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


@pytest.fixture(
    params=[
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{bad}", id="not JSON"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", id="JSON of another kind"),
        pytest.param(b"HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\n[]", id="an error of another kind"),
        pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n", id="not HTTP"),
        pytest.param(b"", id="nothing"),
    ]
)
def impostor(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    path = tmp_path / "control.sock"
    thread = answering(path, request.param)
    yield str(path)
    with socket.socket(socket.AF_UNIX) as last:
        last.connect(str(path))
        last.sendall(b"stop")
    thread.join()


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_what_is_no_daemon_is_said_to_be_none(impostor: str, command: tuple[str, ...]) -> None:
    result = invoke(*command, "--socket", impostor)
    assert (result.status, result.out) == (3, "")
    assert result.err.startswith(f"numalet: {impostor}: ")
    assert "internal error" not in result.err


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_without_a_daemon_the_way_to_start_one_is_told(tmp_path: Path, command: tuple[str, ...]) -> None:
    result = invoke(*command, "--socket", str(tmp_path / "none"))
    assert (result.status, result.out) == (3, "")
    assert result.err.splitlines() == [
        f"numalet: no daemon answers on {tmp_path}/none",
        "  start it: systemctl start numalet, or numalet run --config FILE; --socket names another socket",
    ]


def test_a_socket_that_is_not_for_us_asks_for_root(numalet: Command) -> None:
    """The directory of the socket is root's alone."""
    numalet("get", "pods")  # everything is imported: the project's files may be root's alone, too
    us = os.geteuid()
    os.seteuid(65534)
    try:
        result = numalet("get", "pods")
    finally:
        os.seteuid(us)
    assert result.status == 3
    assert result.err.splitlines() == [f"numalet: {numalet.socket}: permission denied", "  use root"]


@pytest.mark.parametrize("command", [("get", "pods"), ("status",), ("events",), ("describe", "pod", "a")])
def test_a_reader_that_goes_away_is_no_error(numalet: Command, command: tuple[str, ...]) -> None:
    numalet.owner.admit(pod("a"), "api")
    read, write = os.pipe()
    os.close(read)
    try:
        arguments = [*NUMALET, *command, "--socket", numalet.socket]
        done = subprocess.run(arguments, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


def test_what_nobody_thought_of_is_one_line_and_where_is_told_on_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(_path: Path) -> None:
        raise KeyError("numaNodes")

    monkeypatch.setattr("agent.cli.show.ControlClient", broken)
    result = invoke("get", "pods")
    assert result.status == 70
    assert result.err.splitlines() == [
        "numalet: internal error: KeyError: 'numaNodes'",
        "  a fault of numalet: NUMALET_DEBUG=1 in the environment shows where",
    ]
    monkeypatch.setenv("NUMALET_DEBUG", "1")
    with pytest.raises(KeyError):
        invoke("get", "pods")


def on_a_terminal(*arguments: str, **environ: str) -> bytes:
    """What the command writes to a terminal."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "PYTHONIOENCODING": "utf-8", **environ}
    with subprocess.Popen([*NUMALET, *arguments], stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        shown = b""
        try:
            while chunk := os.read(ours, 65536):
                shown += chunk
        except OSError:  # EIO: the other side is closed
            pass
        process.wait()
    os.close(ours)
    return shown


def test_colours_are_for_terminals_and_for_who_wants_them(numalet: Command) -> None:
    numalet.owner.admit(pod("a"), "api")
    command = ("get", "pods", "--socket", numalet.socket)
    coloured = on_a_terminal(*command)
    assert b"\x1b[32mAdmitted\x1b[0m" in coloured
    plain = coloured.replace(b"\x1b[32m", b"").replace(b"\x1b[0m", b"")
    assert on_a_terminal("--no-color", *command) == plain
    assert on_a_terminal(*command, "--no-color") == plain
    assert on_a_terminal(*command, NO_COLOR="yes") == plain
    assert plain.replace(b"\r\n", b"\n").decode() == numalet("get", "pods").out
