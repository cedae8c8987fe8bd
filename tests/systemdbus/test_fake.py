"""`FakeSystemd` keeps the contract that the real manager keeps."""

from __future__ import annotations

import pytest

from agent.systemdbus.fake import FakeSystemd
from agent.systemdbus.manager import SystemdError, SystemdManager
from tests.systemdbus.contract import SystemdContract


class TestFakeSystemd(SystemdContract):
    @pytest.fixture
    def systemd(self) -> SystemdManager:
        return FakeSystemd()

    @pytest.fixture
    def idle(self, systemd: FakeSystemd) -> str:
        systemd.install("numalettest.service")
        return "numalettest.service"


def test_a_broken_bus_fails_every_call() -> None:
    systemd = FakeSystemd()
    systemd.broken = True
    with pytest.raises(SystemdError) as caught:
        systemd.properties("system.slice")
    assert caught.value.hint
