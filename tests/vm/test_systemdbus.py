"""The gate to systemd's manager, on the guest's own systemd."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.domain.idset import CpuSet
from agent.systemdbus.dbus import SystemdBus
from agent.systemdbus.manager import SystemdManager
from agent.systemdbus.properties import ALLOWED_CPUS
from tests.systemdbus.contract import SLICE, SystemdContract
from tests.vm.units import Unit

pytestmark = pytest.mark.vm


@pytest.fixture(scope="module")
def bus() -> Iterator[SystemdBus]:
    bus = SystemdBus()
    yield bus
    bus.close()


class TestSystemdBus(SystemdContract):
    @pytest.fixture
    def systemd(self, bus: SystemdBus) -> SystemdManager:
        return bus

    @pytest.fixture
    def idle(self) -> Iterator[str]:
        with Unit("numalettest.service", "[Service]\nExecStart=/bin/true\n") as unit:
            yield unit.name


def test_f8_cpus_beyond_the_first_eight_reach_the_kernel_as_they_were_meant(bus: SystemdBus) -> None:
    bus.start_transient(SLICE, {ALLOWED_CPUS: CpuSet.parse("2,9-11")})
    try:
        assert Path(f"/sys/fs/cgroup/{SLICE}/cpuset.cpus").read_text().strip() == "2,9-11"
    finally:
        bus.stop(SLICE)


def test_after_a_lost_connection_the_next_call_makes_a_new_one(bus: SystemdBus) -> None:
    bus.properties("system.slice")
    bus.close()
    assert bus.properties("system.slice")
