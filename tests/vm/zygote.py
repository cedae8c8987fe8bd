"""`numalet` as the fork of a process that has imported it: of a start, emulated CPUs spend nearly all on the imports.

The zygote is a program of its own, with one thread and nothing of the tests. What it forks is what
``python -m agent`` is once it has imported the daemon. Where the start is the subject, or the first use of a
command, a test runs the program itself.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final

IMPORTED: Final = (
    "agent.cli.app",
    "agent.cli.daemon",
    "agent.config.source",
    "agent.daemon",
    "agent.cli.work",
)


class Forked:
    """A `numalet` that runs: what tests use of `subprocess.Popen`."""

    def __init__(
        self, words: tuple[str, ...], environ: dict[str, str], *, stdout: int = 1, stderr: int = 2
    ) -> None:
        """``stdout`` and ``stderr`` are file descriptors; standard input is empty."""
        self.args = words
        self.returncode: int | None = None
        ours, theirs = os.pipe()
        self._report = os.fdopen(ours, "rb")
        with Path(os.devnull).open("rb") as stdin:
            message = json.dumps([words, environ, str(Path.cwd())]).encode()
            socket.send_fds(_zygote(), [message], [stdin.fileno(), stdout, stderr, theirs])
        os.close(theirs)
        self.pid = int(self._report.readline())

    def poll(self) -> int | None:
        """The exit status, minus the signal's number where one ended it; None while it runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """The exit status; TimeoutExpired if there is none after ``timeout`` seconds."""
        if self.returncode is None:
            if not select.select([self._report], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            with self._report:
                self.returncode = int(self._report.readline())
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


def run(*words: str, timeout: float) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and capture its output, as `subprocess.run` does."""
    with TemporaryFile("w+") as stdout, TemporaryFile("w+") as stderr:
        process = Forked(words, dict(os.environ), stdout=stdout.fileno(), stderr=stderr.fileno())
        try:
            status = process.wait(timeout)
        finally:
            process.kill()
        for output in (stdout, stderr):
            output.seek(0)
        return subprocess.CompletedProcess(words, status, stdout.read(), stderr.read())


@cache
def _zygote() -> socket.socket:
    """What takes the requests of this process; the zygote ends when it is closed."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno())], pass_fds=[theirs.fileno()]
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


# --- the program ----------------------------------------------------------------------------


def serve(requests: socket.socket) -> None:
    """Fork for each request, until there are no more to come."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who watch
    while True:
        message, fds, _, _ = socket.recv_fds(requests, 1 << 16, 4)
        if not message:
            return
        if os.fork() == 0:
            requests.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            watch(message, fds)
            return
        for fd in fds:
            os.close(fd)


def watch(message: bytes, fds: list[int]) -> None:
    """Fork what was asked for; report its pid, and in the end its status."""
    *standard, report = fds
    pid = os.fork()
    if pid == 0:
        os.close(report)
        become(message, standard)
        return
    for fd in standard:
        os.close(fd)
    os.write(report, b"%d\n" % pid)
    _, status = os.waitpid(pid, 0)
    os.write(report, b"%d\n" % os.waitstatus_to_exitcode(status))


def become(message: bytes, standard: list[int]) -> None:
    """Be the program."""
    words, environ, directory = json.loads(message)
    for number, fd in enumerate(standard):
        os.dup2(fd, number)
        os.close(fd)
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(directory)
    sys.argv[:] = ["numalet", *words]
    import_module("agent.cli").main()


if __name__ == "__main__":
    for module in IMPORTED:
        import_module(module)
    assert threading.active_count() == 1
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))
