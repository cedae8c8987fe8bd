"""The control socket itself: who may call, and what else is found in its place."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.api.client import ControlClient
from agent.api.request import RequestError
from agent.api.server import ControlServer, check_peer
from agent.errors import HostError
from tests.api.served import ROUTES, raw


def test_the_socket_is_its_owners_alone(vacant: Path) -> None:
    before = os.umask(0o002)
    server = ControlServer(vacant, ROUTES)
    assert os.umask(before) == 0o002
    assert stat.S_IMODE(vacant.stat().st_mode) == 0o600
    server.stop()


def as_user(uid: int, folder: Path, work: Callable[[], int]) -> int:
    """Do ``work`` in ``folder`` in a child process, as another user; its exit status."""
    child = os.fork()
    if child == 0:
        try:
            os.chdir(folder)  # from inside, nobody asks who may pass the folders above
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            os._exit(work())
        finally:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@root_only
def test_another_user_is_refused_even_where_the_sockets_mode_lets_him_in(
    server: ControlServer, path: Path
) -> None:
    assert server.path == path
    path.chmod(0o666)

    def work() -> int:
        answer = raw(Path(path.name), b"GET /v1/echo HTTP/1.1\r\n\r\n")
        expected = b"user 65534 may not control numalet"
        return 0 if answer.startswith(b"HTTP/1.1 403") and expected in answer else 1

    assert as_user(65534, path.parent, work) == 0
    assert ControlClient(path).call("GET", "/v1/echo")["size"] == 0


@root_only
def test_the_peer_is_who_made_the_connection(vacant: Path) -> None:
    vacant.parent.mkdir(mode=0o755)

    def connect() -> int:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(vacant.name)
        return 0

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(vacant))
        listener.listen()
        vacant.chmod(0o666)
        assert as_user(0, vacant.parent, connect) == 0
        connection, _ = listener.accept()
        with connection:
            check_peer(connection, None)
        assert as_user(1234, vacant.parent, connect) == 0
        connection, _ = listener.accept()
        with connection, pytest.raises(RequestError, match="user 1234 may not") as caught:
            check_peer(connection, None)
        assert caught.value.status == 403


def test_our_own_user_may_call() -> None:
    one, other = socket.socketpair()
    with one, other:
        check_peer(one, None)


def test_a_socket_left_by_a_dead_daemon_is_replaced(vacant: Path) -> None:
    vacant.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(vacant))
    server = ControlServer(vacant, ROUTES)
    server.start()
    assert ControlClient(vacant).call("GET", "/v1/echo")["size"] == 0
    server.stop()
    assert not vacant.exists()


def test_a_second_daemon_is_told_that_another_answers(server: ControlServer, path: Path) -> None:
    with pytest.raises(HostError, match="another daemon answers on"):
        ControlServer(path, ROUTES)
    assert server.path.is_socket()
    assert ControlClient(path).call("GET", "/v1/echo")["size"] == 0


def test_a_daemon_too_busy_to_accept_is_another_daemon(vacant: Path) -> None:
    vacant.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as waiting:
        busy.bind(str(vacant))
        busy.listen(0)
        waiting.connect(str(vacant))
        with pytest.raises(HostError, match="another daemon answers on"):
            ControlServer(vacant, ROUTES)
    assert vacant.is_socket()


@pytest.mark.parametrize("kind", ["file", "folder", "dangling link"])
def test_something_else_in_the_sockets_place_is_named_and_left_alone(vacant: Path, kind: str) -> None:
    vacant.parent.mkdir()
    if kind == "file":
        vacant.write_text("precious")
    elif kind == "folder":
        vacant.mkdir()
    else:
        vacant.symlink_to("nowhere")
    with pytest.raises(HostError, match="is in the way: it is not a socket") as caught:
        ControlServer(vacant, ROUTES)
    assert "remove it" in caught.value.hint
    assert os.path.lexists(vacant)


def test_a_path_that_cannot_be_listened_on_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HostError, match=r"cannot listen on .*/file/control\.sock: File exists"):
        ControlServer(tmp_path / "file" / "control.sock", ROUTES)
    with pytest.raises(HostError, match="AF_UNIX path too long"):
        ControlServer(tmp_path / ("x" * 120), ROUTES)


def test_a_server_that_never_served_can_be_stopped(vacant: Path) -> None:
    ControlServer(vacant, ROUTES).stop()
    assert not vacant.exists()


MEMBERS = 4242


@root_only
@pytest.mark.parametrize(
    ("own", "supplementary", "admitted"),
    [
        pytest.param(MEMBERS, [], True, id="own group"),
        pytest.param(1234, [7, MEMBERS], True, id="supplementary group"),
        pytest.param(1234, [7], False, id="no member"),
    ],
)
def test_members_of_the_group_may_do_everything_and_nobody_else(
    vacant: Path, own: int, supplementary: list[int], admitted: bool
) -> None:
    vacant.parent.mkdir(mode=0o755)
    server = ControlServer(vacant, ROUTES, MEMBERS)
    server.start()
    try:
        status = vacant.stat()
        assert (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid) == (0o660, 0, MEMBERS)
        vacant.chmod(0o666)  # the mode is one lock, the peer's credentials are the other

        child = os.fork()
        if child == 0:
            try:
                os.chdir(vacant.parent)
                os.setgroups(supplementary)
                os.setresgid(own, own, own)
                os.setresuid(1234, 1234, 1234)
                answer = raw(Path(vacant.name), b"GET /v1/echo HTTP/1.1\r\nConnection: close\r\n\r\n")
                os._exit(0 if answer.startswith(b"HTTP/1.1 200" if admitted else b"HTTP/1.1 403") else 1)
            finally:
                os._exit(99)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        server.admit_group(None)
        assert stat.S_IMODE(vacant.stat().st_mode) == 0o600
    finally:
        server.stop()
