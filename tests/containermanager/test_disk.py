"""The owner on a real state directory: a full disk, and a second daemon."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.cgroup.layout import CgroupDir
from agent.checkpoint.files import SystemFiles
from agent.checkpoint.store import LockedError, StateDir
from agent.containermanager import ContainerManager, Snapshot, VerdictKind
from agent.domain.pod import PodUid
from agent.metrics.node import node_families
from tests.containermanager.node import Node, admitted_names, pod, unsound


class Disk(SystemFiles):
    """A real disk that can be full: nothing can be written, names can still be removed."""

    full = False
    syncs = 0
    broken_sync: int | None = None
    """The number of the fsync(2), of a file or a directory, that fails."""

    def sync(self, descriptor: int) -> None:
        self._sync()
        super().sync(descriptor)

    def sync_directory(self, path: Path) -> None:
        self._sync()
        super().sync_directory(path)

    def _sync(self) -> None:
        self.syncs += 1
        if self.syncs - 1 == self.broken_sync:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def write(self, descriptor: int, data: bytes) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(descriptor, data)


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def owner(tmp_path: Path, disk: Disk) -> Iterator[ContainerManager]:
    with StateDir(tmp_path / "state", disk) as store:
        owner = Node().stopped_owner(store=store)
        owner.start()
        yield owner


def test_a_full_disk_refuses_the_pod_undoes_it_and_makes_the_node_not_ready(
    owner: ContainerManager, disk: Disk, tmp_path: Path
) -> None:
    owner.admit(pod("a"), "api")
    files = {path: path.read_bytes() for path in (tmp_path / "state").rglob("*_state")}
    before = owner.snapshot().state
    disk.full = True
    verdict = owner.admit(pod("b", cpu="1"), "api")
    assert (verdict.kind, verdict.reason) == (VerdictKind.REJECTED, "StorageError")
    assert verdict.message.endswith("cpu_manager_state.tmp: No space left on device")
    assert verdict.remedy == "the disk is full: free some space there"
    assert owner.snapshot().failures == (f"StorageError: {verdict.message}",)
    assert owner.snapshot().state == before
    assert {path: path.read_bytes() for path in files} == files
    owner.reconcile()
    assert owner.snapshot().failures
    disk.full = False
    owner.reconcile()
    assert owner.snapshot().failures == ()
    assert owner.admit(pod("b", cpu="1"), "api").kind is VerdictKind.ADMITTED


def test_a_pod_can_be_removed_from_a_full_disk(owner: ContainerManager, disk: Disk, tmp_path: Path) -> None:
    owner.admit(pod("a"), "api")
    disk.full = True
    owner.remove(PodUid("uid-a"), 0)
    assert admitted_names(owner) == []
    assert owner.snapshot().failures
    assert list((tmp_path / "state" / "pods").iterdir()) == []
    disk.full = False
    owner.reconcile()
    assert owner.snapshot().failures == ()


def test_a_daemon_that_starts_on_a_full_disk_takes_its_pods_over(tmp_path: Path, disk: Disk) -> None:
    node = Node()
    with StateDir(tmp_path, disk) as store:
        first = node.stopped_owner(store=store)
        first.start()
        first.admit(pod("a"), "api")
    with StateDir(tmp_path, disk) as store:
        disk.full = True
        second = node.stopped_owner(store=store)
        second.start()
        assert admitted_names(second) == ["a"]
        assert second.snapshot().failures
        assert second.admit(pod("b", cpu="1"), "api").reason == "StorageError"


def test_a_second_daemon_on_the_state_directory_is_told_who_has_it(
    owner: ContainerManager, tmp_path: Path
) -> None:
    assert admitted_names(owner) == []
    with pytest.raises(LockedError, match=f"is in use by another numalet \\(pid {os.getpid()}\\)"):
        StateDir(tmp_path / "state").open()


SYNCS_OF_AN_ADMISSION = 5
"""The two checkpoints and then their directory, the record and its directory."""


def test_an_admission_syncs_three_files_and_two_directories(owner: ContainerManager, disk: Disk) -> None:
    disk.syncs = 0
    owner.admit(pod("a"), "api")
    assert disk.syncs == SYNCS_OF_AN_ADMISSION


@pytest.mark.parametrize("number", range(SYNCS_OF_AN_ADMISSION))
def test_a_failed_fsync_refuses_the_pod_undoes_it_and_is_told_until_the_disk_is_well(
    number: int, tmp_path: Path, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node()
    with StateDir(tmp_path / "state", disk) as store:
        owner = node.stopped_owner(store=store)
        owner.start()
        owner.admit(pod("a"), "api")
        before = owner.snapshot().state
        disk.syncs, disk.broken_sync = 0, number
        verdict = owner.admit(pod("b", cpu="1"), "api")
        assert (verdict.kind, verdict.reason) == (VerdictKind.REJECTED, "StorageError")
        assert verdict.message.endswith("Input/output error")
        assert verdict.remedy == "the disk has failed: see the kernel log"
        shot = owner.snapshot()
        assert (shot.state, admitted_names(owner)) == (before, ["a"])
        assert shot.failures == (f"StorageError: {verdict.message}",)
        assert _value_of("numalet_ready", shot) == 0
        assert f"rejected pod default/b: StorageError: {verdict.message}" in caplog.messages
        assert not node.cgroups.exists(CgroupDir("poduid-b"))
        owner.reconcile()
        assert owner.snapshot().failures == ()
        assert _value_of("numalet_ready", owner.snapshot()) == 1
        assert unsound(node, owner, store) == []
        assert owner.admit(pod("b", cpu="1"), "api").kind is VerdictKind.ADMITTED
        assert unsound(node, owner, store) == []


def _value_of(name: str, shot: Snapshot) -> float:
    (sample,) = (sample for family in node_families(shot) if family.name == name for sample in family.samples)
    return float(sample.value)
