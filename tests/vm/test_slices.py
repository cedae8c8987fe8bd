"""`SystemdCgroups` on the guest's systemd: the contract of every backend, and what a unit adds to a cgroup."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agent.cgroup.cgroupfs import CgroupFs
from agent.cgroup.naming import SliceNames
from agent.cgroup.slices import SystemdCgroups
from agent.cgroup.tree import Wanted
from agent.systemdbus.dbus import SystemdBus
from tests.cgroup.contract import BackendContract, PartitionContract
from tests.vm.kernelhost import MOUNT, KernelHost, prepared

pytestmark = pytest.mark.vm

NAMES = SliceNames("numaletcontract.slice")
ROOT_DIR = MOUNT / NAMES.root


@pytest.fixture(scope="module")
def bus() -> Iterator[SystemdBus]:
    bus = SystemdBus()
    yield bus
    bus.close()


@pytest.fixture
def host(bus: SystemdBus) -> Iterator[KernelHost]:
    backend = SystemdCgroups(CgroupFs(ROOT_DIR, names=NAMES), bus, NAMES)
    with prepared(backend, ROOT_DIR, NAMES) as host:
        yield host
    assert bus.units([NAMES.root, NAMES.below]) == ()


@pytest.fixture
def tree(host: KernelHost) -> Wanted:
    return host.tree()


class TestSlices(BackendContract):
    pass


class TestPartitions(PartitionContract):
    pass
