"""Telling systemd how we are: sd_notify(3) messages over ``$NOTIFY_SOCKET``."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress


class Notifier:
    """Sends state to the service manager that started us; silent where there is none."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_interval = _watchdog_interval(environ)
        """Seconds between two `alive` calls (half of WatchdogSec), None without watchdog."""

    def ready(self, status: str) -> None:
        """Start-up is done."""
        self._send(f"READY=1\nSTATUS={status}")

    def reloading(self) -> None:
        """A reload has begun, which `ready` ends; systemd needs the time to tell reloads apart."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def status(self, status: str) -> None:
        """One line for `systemctl status`."""
        self._send(f"STATUS={status}")

    def alive(self) -> None:
        """Pet the watchdog."""
        self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """Shutdown has begun."""
        self._send("STOPPING=1")

    def _send(self, message: str) -> None:
        if not self._address:
            return
        flags = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC
        with suppress(OSError), socket.socket(socket.AF_UNIX, flags) as channel:
            channel.sendto(message.encode(), self._address)  # sd_notify(3): errors are to be ignored


def _watchdog_interval(environ: Mapping[str, str]) -> float | None:
    """sd_watchdog_enabled(3): only where the watchdog is meant for this process."""
    microseconds, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if pid not in {"", str(os.getpid())} or not (microseconds.isascii() and microseconds.isdigit()):
        return None
    return int(microseconds) / 2e6 or None
