"""`SystemdBus` without a bus: a clear error, and a new try with each call."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.systemdbus.dbus import SystemdBus
from agent.systemdbus.manager import NO_BUS, SystemdError


def test_where_no_bus_is_the_error_says_which_and_the_next_call_tries_again(tmp_path: Path) -> None:
    systemd = SystemdBus(f"unix:path={tmp_path}/bus", timeout=5)
    try:
        for _ in range(2):
            with pytest.raises(SystemdError) as caught:
                systemd.properties("system.slice")
            assert caught.value.code == NO_BUS
            assert f"{tmp_path}/bus" in caught.value.message
            assert caught.value.hint
    finally:
        systemd.close()
