"""sd_notify(3) and sd_watchdog_enabled(3), against a real datagram socket."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from agent.systemd import Notifier


@pytest.mark.parametrize("abstract", [False, True], ids=["path", "abstract"])
def test_messages_reach_the_service_manager(tmp_path: Path, abstract: bool) -> None:
    name = f"@numalet-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind("\0" + name[1:] if abstract else name)
        notifier = Notifier({"NOTIFY_SOCKET": name})
        notifier.ready("2 pods")
        notifier.status("3 pods")
        notifier.alive()
        notifier.stopping()
        heard = [systemd.recv(4096).decode() for _ in range(4)]
    assert heard == ["READY=1\nSTATUS=2 pods", "STATUS=3 pods", "WATCHDOG=1", "STOPPING=1"]


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "/nowhere/notify"}])
def test_without_a_service_manager_nothing_happens(environ: dict[str, str]) -> None:
    Notifier(environ).ready("2 pods")


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "60000000"}, 30.0),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": str(os.getpid())}, 30.0),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_the_watchdog_is_petted_in_half_its_time(environ: dict[str, str], seconds: float | None) -> None:
    assert Notifier(environ).watchdog_interval == seconds
