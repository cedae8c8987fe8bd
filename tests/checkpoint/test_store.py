"""The store's contract, and that no failure or power cut at any step leaves a torn file."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
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

RECORD = record_name(PodUid("uid-1"))
ADMISSION = (CPU_FILE, MEMORY_FILE, RECORD)
NOW = "2026-01-02T03:04:05Z"
ROOT = Path("/var/lib/numalet")


class PowerCut(BaseException):
    """Nothing that runs afterwards reaches the disk."""


class Inode:
    def __init__(self) -> None:
        self.content = b""
        self.synced = b""


class Disk:
    """A file system that keeps only what was synced when the power goes, and fails on demand.

    ``fail`` is called with the number of each operation before it happens.
    """

    def __init__(self, fail: Callable[[int], None] = lambda _: None) -> None:
        self.names: dict[Path, dict[str, Inode]] = {Path("/"): {}}
        self.synced: dict[Path, dict[str, Inode]] = {Path("/"): {}}
        self.open: dict[int, Inode] = {}
        self.locked: set[Path] = set()
        self.fail = fail
        self.count = 0

    def _step(self) -> None:
        self.count += 1
        self.fail(self.count)

    def _directory(self, path: Path) -> dict[str, Inode]:
        if path not in self.names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return self.names[path]

    def _inode(self, path: Path) -> Inode:
        if path.name not in self._directory(path.parent):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return self.names[path.parent][path.name]

    def make_directory(self, path: Path) -> None:
        self._step()
        if path in self.names:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        self._directory(path.parent)
        self.names[path] = {}
        self.synced[path] = {}

    def list_directory(self, path: Path) -> list[str]:
        return sorted([*self._directory(path), *(child.name for child in self.names if child.parent == path)])

    def read(self, path: Path) -> bytes:
        return self._inode(path).content

    def create(self, path: Path) -> int:
        self._step()
        inode = self._directory(path.parent).setdefault(path.name, Inode())
        inode.content = b""
        self.open[self.count] = inode
        return self.count

    def write(self, descriptor: int, data: bytes) -> int:
        self._step()
        half = (len(data) + 1) // 2
        self.open[descriptor].content += data[:half]
        return half

    def sync(self, descriptor: int) -> None:
        self._step()
        self.open[descriptor].synced = self.open[descriptor].content

    def close(self, descriptor: int) -> None:
        self.open.pop(descriptor, None)
        self.locked.clear()

    def rename(self, old: Path, new: Path) -> None:
        self._step()
        self._directory(new.parent)[new.name] = self._inode(old)
        del self.names[old.parent][old.name]

    def unlink(self, path: Path) -> None:
        self._step()
        self._inode(path)
        del self.names[path.parent][path.name]

    def sync_directory(self, path: Path) -> None:
        self._step()
        self.synced[path] = dict(self._directory(path))

    def lock(self, path: Path, owner: bytes) -> int:
        self._step()
        if path in self.locked:
            raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK))
        self._directory(path.parent)[path.name] = Inode()
        self._inode(path).content = owner
        self.locked.add(path)
        return 0

    def after_power_cut(self, *, names_reached_the_disk: bool) -> Disk:
        """The disk at the next boot: unsynced content is gone, unsynced names may be either way."""
        disk = Disk()
        disk.names = {
            path: dict(names)
            for path, names in (self.names if names_reached_the_disk else self.synced).items()
        }
        for names in disk.names.values():
            for name, inode in names.items():
                names[name] = Inode()
                names[name].content = names[name].synced = inode.synced
        disk.synced = {path: dict(names) for path, names in disk.names.items()}
        return disk


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
