"""The store's contract, and that no failure or power cut at any step leaves a torn file."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from agent.checkpoint.store import (
    CPU_FILE,
    LOCK_FILE,
    MEMORY_FILE,
    LockedError,
    MemoryStore,
    StateDir,
    StorageError,
    Store,
    record_name,
)
from agent.domain.pod import PodUid
from agent.errors import StateError
from tests.checkpoint.disk import Disk, PowerCut

RECORD = record_name(PodUid("uid-1"))
ADMISSION = (CPU_FILE, MEMORY_FILE, RECORD)
NOW = "2026-01-02T03:04:05Z"
ROOT = Path("/var/lib/numalet")


@pytest.fixture(params=["directory", "simulated disk", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "memory":
        yield MemoryStore()
        return
    real = request.param == "directory"
    with StateDir(tmp_path / "a" / "b") if real else StateDir(ROOT, Disk()) as opened:
        yield opened


@pytest.mark.parametrize("name", ADMISSION)
def test_what_is_written_is_read(store: Store, name: str) -> None:
    assert store.read(name) is None
    for data in (b"old" * 9, b"", b"new\0"):
        store.write(name, data)
        assert store.read(name) == data


def test_a_removed_file_is_gone_and_can_be_removed_again(store: Store) -> None:
    store.write(RECORD, b"x")
    store.remove(RECORD)
    store.remove(RECORD)
    assert store.read(RECORD) is None


def test_records_are_listed_in_order_and_strangers_reported(store: Store) -> None:
    assert store.records().pods == ()
    for uid in ("b", "a", "0.x"):
        store.write(record_name(PodUid(uid)), b"{}")
    store.quarantine(record_name(PodUid("b")), NOW)
    assert store.records().pods == ("0.x", "a")
    assert store.records().ignored == (f"b.json.corrupt-{NOW}",)


@pytest.mark.parametrize("name", ADMISSION)
def test_files_are_set_aside_without_losing_an_earlier_one(store: Store, name: str) -> None:
    asides = []
    for data in (b"1", b"2", b"3"):
        store.write(name, data)
        asides.append(store.quarantine(name, NOW).name)
        assert store.read(name) is None
    base = f"{Path(name).name}.corrupt-{NOW}"
    assert asides == [base, f"{base}-2", f"{base}-3"]


def test_what_is_not_there_cannot_be_set_aside(store: Store) -> None:
    with pytest.raises(StorageError, match=r"cannot set aside .*cpu_manager_state: No such file"):
        store.quarantine(CPU_FILE, NOW)
    store.write(CPU_FILE, b"x")
    with pytest.raises(StateError, match="cannot be part of a file name"):
        store.quarantine(CPU_FILE, "../x")


@pytest.mark.parametrize(
    "uid",
    ["", "/", "a/b", "..", "a..b", ".hidden", "a\0b", "a\nb", "\udc80", "x" * 201, "é" * 101],
    ids=ascii,
)
def test_a_uid_cannot_leave_the_directory(uid: str) -> None:
    with pytest.raises(StateError, match="cannot name a file"):
        record_name(PodUid(uid))


def test_the_longest_uid_still_fits_a_file_name(store: Store) -> None:
    name = record_name(PodUid("é" * 100))
    store.write(name, b"x")
    store.quarantine(name, NOW)


@pytest.mark.parametrize("name", ["other", "pods/x", "../cpu_manager_state", "x.json", "pods/../x.json"])
def test_only_the_known_names_are_stored(store: Store, name: str) -> None:
    with pytest.raises(StateError):
        store.read(name)
    with pytest.raises(StateError):
        store.write(name, b"")


def test_files_are_private(tmp_path: Path) -> None:
    with StateDir(tmp_path / "state") as store:
        store.write(RECORD, b"x")
    modes = {
        path.relative_to(tmp_path).as_posix(): path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")
    }
    assert modes == {
        "state": 0o700,
        "state/pods": 0o700,
        f"state/{RECORD}": 0o600,
        f"state/{LOCK_FILE}": 0o600,
    }


def test_a_second_daemon_is_refused_and_told_who_is_there(tmp_path: Path) -> None:
    with StateDir(tmp_path):
        with pytest.raises(LockedError) as caught:
            StateDir(tmp_path).open()
        assert caught.value.pid == str(os.getpid())
        assert str(os.getpid()) in caught.value.message
    with StateDir(tmp_path):
        pass


def test_one_may_read_beside_a_daemon_but_not_write(tmp_path: Path) -> None:
    with StateDir(tmp_path) as daemon:
        daemon.write(CPU_FILE, b"x")
        reader = StateDir(tmp_path)
        assert reader.read(CPU_FILE) == b"x"
        with pytest.raises(StateError, match="not open for writing"):
            reader.write(CPU_FILE, b"")
        with pytest.raises(StateError, match="not open for writing"):
            reader.remove(CPU_FILE)


def test_reading_where_nothing_is_finds_nothing(tmp_path: Path) -> None:
    store = StateDir(tmp_path / "none")
    assert store.read(CPU_FILE) is None
    assert store.records().pods == ()
    store.close()


def test_leftovers_of_a_crash_are_swept_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "pods").mkdir()
    for name in (".cpu_manager_state.tmp", ".keep", "pods/.uid.json.tmp", "pods/stranger"):
        (tmp_path / name).write_bytes(b"x")
    store = StateDir(tmp_path)
    assert store.open() == (".cpu_manager_state.tmp", ".uid.json.tmp")
    assert store.records().ignored == ("stranger",)
    store.close()
    assert (tmp_path / ".keep").exists()


def test_a_symbolic_link_in_the_place_of_a_temporary_file_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    with StateDir(tmp_path / "state") as store:
        (tmp_path / "state" / f".{CPU_FILE}.tmp").symlink_to(victim)
        with pytest.raises(StorageError):
            store.write(CPU_FILE, b"x")
        store.write(CPU_FILE, b"y")
    assert victim.read_bytes() == b"precious"


def test_a_file_in_the_way_of_the_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(b"")
    with pytest.raises(StorageError) as caught:
        StateDir(tmp_path / "state").open()
    assert caught.value.errno == errno.ENOTDIR
    assert str(tmp_path / "state") in caught.value.message
    assert "in the way" in caught.value.hint


def test_a_failed_opening_releases_the_lock(tmp_path: Path) -> None:
    (tmp_path / "pods").write_bytes(b"")
    with pytest.raises(StorageError):
        StateDir(tmp_path).open()
    (tmp_path / "pods").unlink()
    with StateDir(tmp_path):
        pass


def _before(disk: Disk) -> StateDir:
    """A state directory with the old files, open; its operations are counted from here."""
    store = StateDir(ROOT, disk)
    store.open()
    for name in ADMISSION:
        store.write(name, b"old " + name.encode())
    disk.count = 0
    return store


def _admit(store: StateDir) -> None:
    for name in ADMISSION:
        store.write(name, b"new " + name.encode())


def _count() -> int:
    disk = Disk()
    _admit(_before(disk))
    return disk.count


OPERATIONS = range(1, _count() + 1)


def _contents(store: StateDir) -> list[str]:
    """The first word of each file, after a check that it is whole."""
    words = []
    for name in ADMISSION:
        content = store.read(name)
        assert content in (b"old " + name.encode(), b"new " + name.encode())
        words.append(content.decode()[:3])
    return words


@pytest.mark.parametrize("names_reached_the_disk", [True, False], ids=["names-kept", "names-lost"])
@pytest.mark.parametrize("at", [*OPERATIONS, OPERATIONS.stop])
def test_after_a_power_cut_each_file_is_old_or_new_and_the_order_holds(
    at: int, names_reached_the_disk: bool
) -> None:
    def cut(count: int) -> None:
        if count >= at:
            raise PowerCut

    disk = Disk()
    store = _before(disk)
    disk.fail = cut
    with suppress(PowerCut):
        _admit(store)
    with StateDir(ROOT, disk.after_power_cut(names_reached_the_disk=names_reached_the_disk)) as reopened:
        words = _contents(reopened)
        assert words == sorted(words)
        assert reopened.records().pods == ("uid-1",)
        assert reopened.records().ignored == ()
        _admit(reopened)
    if at == OPERATIONS.stop:
        assert words == ["new"] * 3


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EROFS], ids=errno.errorcode.__getitem__)
@pytest.mark.parametrize("at", OPERATIONS)
def test_a_failed_operation_is_an_error_with_a_remedy_and_leaves_whole_files(at: int, error: int) -> None:
    def fail(count: int) -> None:
        if count == at:
            raise OSError(error, os.strerror(error))

    disk = Disk()
    store = _before(disk)
    disk.fail = fail
    with pytest.raises(StorageError) as caught:
        _admit(store)
    assert caught.value.errno == error
    assert os.strerror(error) in caught.value.message
    assert str(ROOT) in caught.value.message
    assert caught.value.hint
    words = _contents(store)
    assert words == sorted(words)
    assert not [name for name in disk.list_directory(ROOT) if name.startswith(".")]
    _admit(store)
    assert _contents(store) == ["new"] * 3


def test_a_disk_that_stays_full_leaves_the_old_files() -> None:
    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    disk = Disk()
    store = _before(disk)
    disk.fail = fail
    for name in ADMISSION:
        with pytest.raises(StorageError, match="No space left"):
            store.write(name, b"new")
    assert _contents(store) == ["old"] * 3
