"""`SystemdBus` without a bus: a clear error, and a new try with each call."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.systemdbus.dbus import SystemdBus
from agent.systemdbus.manager import NO_BUS, SystemdError
from agent.systemdbus.properties import ALLOWED_CPUS


def test_only_the_drop_ins_of_runtime_properties_are_taken_away_before_systemd_is_told(
    tmp_path: Path,
) -> None:
    ours = [tmp_path / "system.control/a.slice.d", tmp_path / "transient/init.scope.d"]
    others = [tmp_path / "system.control/b.slice.d", tmp_path / "system/a.slice.d"]
    for folder in (*ours, *others):
        folder.mkdir(parents=True)
        (folder / "50-AllowedCPUs.conf").write_text("[Slice]\nAllowedCPUs=\n")
    (ours[0] / "50-CPUWeight.conf").write_text("[Slice]\nCPUWeight=7\n")
    systemd = SystemdBus(f"unix:path={tmp_path}/bus", timeout=5, run=tmp_path)
    try:
        with pytest.raises(SystemdError, match=f"{tmp_path}/bus"):
            systemd.forget_property(["a.slice", "init.scope"], ALLOWED_CPUS)
        systemd.forget_property(
            ["a.slice", "init.scope"], ALLOWED_CPUS
        )  # nothing left, so systemd is not asked
    finally:
        systemd.close()
    assert [file.name for file in ours[0].iterdir()] == ["50-CPUWeight.conf"]
    assert not ours[1].exists()
    assert all((folder / "50-AllowedCPUs.conf").exists() for folder in others)


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
