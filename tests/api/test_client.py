"""What the client says when no daemon answers, or something else does."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from agent.api.client import ControlClient, ControlError


def failure(path: Path, timeout: float = 5) -> ControlError:
    with pytest.raises(ControlError) as caught:
        ControlClient(path, timeout=timeout).call("GET", "/v1/status")
    assert caught.value.status == 0
    return caught.value


def answering(path: Path, answer: bytes) -> threading.Thread:
    """Somebody who answers one connection with ``answer``, or never if it is empty."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        with listener:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)
                if not answer:
                    connection.recv(1)

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


def test_no_socket_means_no_daemon(tmp_path: Path) -> None:
    error = failure(tmp_path / "control.sock")
    assert error.message == f"no daemon answers on {tmp_path}/control.sock"
    assert error.hint.startswith("start it: systemctl start numalet")


def test_a_dead_socket_means_no_daemon(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "s"))
    assert "no daemon answers" in failure(tmp_path / "s").message


STRANGER = "what listens there answers as no numalet daemon does"


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"SSH-2.0\r\n", STRANGER),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{", "the connection ended without an answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\noops", STRANGER),
        (b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", STRANGER),
    ],
)
def test_whatever_else_answers_is_no_daemon(tmp_path: Path, answer: bytes, told: str) -> None:
    thread = answering(tmp_path / "s", answer)
    error = failure(tmp_path / "s")
    assert error.message == f"{tmp_path}/s: {told}"
    assert "--socket names another" in error.hint
    thread.join()


def test_a_daemon_that_does_not_answer_in_time_is_told(tmp_path: Path) -> None:
    thread = answering(tmp_path / "s", b"")
    assert "timed out" in failure(tmp_path / "s", 0.1).message
    thread.join()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_without_permission_the_way_out_is_root(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir(mode=0o755)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "s"))
        listener.listen()
        (folder / "s").chmod(0o600)
        child = os.fork()
        if child == 0:
            os.chdir(folder)
            os.setuid(65534)
            try:
                ControlClient(Path("s")).call("GET", "/v1/status")
            except ControlError as error:
                os._exit(0 if (error.hint, error.message) == ("use root", "s: permission denied") else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
