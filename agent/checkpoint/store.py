"""Where state lies on disk, and how it gets there durably.

A file is written beside its place, synced, renamed over it, and the directory synced: after a
crash at any point each file is the old one or the new one, whole. The kubelet leaves out the last
step, and has lost files to it (kubernetes issue 135711).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Protocol, Self, TypeVar

from agent.checkpoint.files import Files, SystemFiles, write_synced
from agent.domain.pod import PodUid
from agent.errors import StateError

T = TypeVar("T")

CPU_FILE: Final = "cpu_manager_state"
MEMORY_FILE: Final = "memory_manager_state"
HOST_FILE: Final = "host_isolation.json"
BINDINGS_FILE: Final = "bindings.json"
CGROUPS_FILE: Final = "cgroups.json"
NODE_FILES: Final = (CPU_FILE, MEMORY_FILE, HOST_FILE, BINDINGS_FILE, CGROUPS_FILE)
PODS: Final = "pods"
LOCK_FILE: Final = "lock"

MAX_UID_BYTES: Final = 200
"""Leaves room in a 255-byte file name for what is put around a uid."""

_RECORD_SUFFIX = ".json"
_TEMPORARY_SUFFIX = ".tmp"

_REMEDIES: Final = {
    errno.ENOSPC: "the disk is full: free some space there",
    errno.EDQUOT: "the disk quota is used up: free some space there or raise it",
    errno.EROFS: "the file system is read-only: see the kernel log for the cause, then remount it",
    errno.EIO: "the disk has failed: see the kernel log",
    errno.EACCES: "numalet must run as the owner of the state directory, usually root",
    errno.EPERM: "numalet must run as the owner of the state directory, usually root",
    errno.ENOTDIR: "something that is not a directory is in the way: move it",
    errno.EISDIR: "a directory is in the way: move it",
    errno.ENOENT: "something removed it while numalet ran: restart numalet",
}


class StorageError(StateError):
    """An operation on stored state failed in the system; ``hint`` is the remedy, if one is known."""

    def __init__(self, operation: str, path: Path, error: OSError) -> None:
        super().__init__(
            f"cannot {operation} {path}: {error.strerror or error}",
            hint=_REMEDIES.get(error.errno or 0, ""),
        )
        self.operation = operation
        self.path = path
        self.errno = error.errno


class LockedError(StateError):
    """Another process holds the state directory; ``pid`` is its id as text, empty if unknown."""

    def __init__(self, root: Path, pid: str) -> None:
        super().__init__(
            f"state directory {root} is in use by another numalet (pid {pid or 'unknown'})",
            hint="stop that one, or give this one another --state-dir",
        )
        self.root = root
        self.pid = pid


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The pods that have a record, and the names in their directory that are no record."""

    pods: tuple[PodUid, ...]
    ignored: tuple[str, ...] = ()


class Store(Protocol):
    """Named files; a name is one of `NODE_FILES` or a `record_name`. All raise StateError."""

    def read(self, name: str) -> bytes | None:
        """Read a file; None where there is none."""

    def write(self, name: str, data: bytes) -> None:
        """Replace a file as a whole. After an error it is the old one or the new one."""

    def write_together(self, files: Mapping[str, bytes]) -> None:
        """Replace several files, in any order, each as a whole. After an error each is the old one or the new one."""

    def remove(self, name: str) -> None:
        """Remove a file; no error where there is none."""

    def quarantine(self, name: str, now: str) -> Path:
        """Set a file aside as ``NAME.corrupt-<now>``, never over another; returns where it lies."""

    def records(self) -> Listing:
        """List the pod records."""


def record_name(uid: PodUid) -> str:
    """The name of a pod's record. Raises StateError for a uid that could leave the directory."""
    if not _is_safe(uid):
        raise StateError(
            f"pod uid {uid!r} cannot name a file",
            hint=f"a uid has 1 to {MAX_UID_BYTES} printable bytes, no '/', no '..', no dot in front",
        )
    return f"{PODS}/{uid}{_RECORD_SUFFIX}"


def _is_safe(part: str) -> bool:
    return (
        0 < len(part.encode(errors="replace")) <= MAX_UID_BYTES
        and part.isprintable()
        and "/" not in part
        and ".." not in part
        and not part.startswith(".")
    )


def _checked(name: str) -> str:
    """``name``, if it is one of the store's names."""
    if name in NODE_FILES:
        return name
    uid = name.removeprefix(f"{PODS}/").removesuffix(_RECORD_SUFFIX)
    if name != record_name(PodUid(uid)):
        raise StateError(f"{name!r} is not the name of a state file")
    return name


def _listing(names: list[str]) -> Listing:
    uids = {name: name.removesuffix(_RECORD_SUFFIX) for name in names if name.endswith(_RECORD_SUFFIX)}
    pods = {name: PodUid(uid) for name, uid in uids.items() if _is_safe(uid)}
    return Listing(pods=tuple(sorted(pods.values())), ignored=tuple(n for n in names if n not in pods))


def _aside(name: str, now: str, taken: Callable[[str], bool]) -> str:
    """The first free name to set ``name`` aside under."""
    if not _is_safe(now):
        raise StateError(f"{now!r} cannot be part of a file name")
    base = aside = f"{name}.corrupt-{now}"
    count = 1
    while taken(aside):
        count += 1
        aside = f"{base}-{count}"
    return aside


class StateDir:
    """A `Store` in a directory. Reading needs no more; to write, `open` it (or use ``with``)."""

    __slots__ = ("_files", "_lock", "_places", "_pods", "root")

    def __init__(self, root: Path, files: Files | None = None) -> None:
        self.root = root
        self._pods = root / PODS
        self._places = {name: _Place.of(root, name) for name in NODE_FILES}
        self._files: Files = files or SystemFiles()
        self._lock: int | None = None

    def open(self) -> tuple[str, ...]:
        """Make the directories, take the lock, sweep up what a crash left; returns what was swept.

        Raises LockedError while another process has it open, StorageError if the system refuses.
        """
        self._make_directory(self.root)
        self._take_lock()
        try:
            self._make_directory(self._pods)
            return tuple(self._sweep())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the lock; nothing can be written any more."""
        if self._lock is not None:
            self._files.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def read(self, name: str) -> bytes | None:
        """Read a file; None where there is none."""
        path = self._place(name).path
        with _System("read", path):
            try:
                return self._files.read(path)
            except FileNotFoundError:
                return None

    def write(self, name: str, data: bytes) -> None:
        """Replace a file as a whole. After an error it is the old one or the new one."""
        self.write_together({name: data})

    def write_together(self, files: Mapping[str, bytes]) -> None:
        """Replace several files, in any order, each as a whole. After an error each is the old one or the new one."""
        places = [self._writable(name) for name in files]
        try:
            for (_, temporary, _), data in zip(places, files.values(), strict=True):
                with _System("write", temporary):
                    write_synced(self._files, temporary, data)
            for path, temporary, _ in places:
                with _System("replace", path):
                    self._files.rename(temporary, path)
        except StorageError:
            for _, temporary, _ in places:
                with suppress(OSError):
                    self._files.unlink(temporary)
            raise
        for directory in dict.fromkeys(place.directory for place in places):
            self._do("sync", self._files.sync_directory, directory)

    def remove(self, name: str) -> None:
        """Remove a file; no error where there is none."""
        path, _, directory = self._writable(name)
        with _System("remove", path), suppress(FileNotFoundError):
            self._files.unlink(path)
        self._do("sync", self._files.sync_directory, directory)

    def quarantine(self, name: str, now: str) -> Path:
        """Set a file aside as ``NAME.corrupt-<now>``, never over another; returns where it lies."""
        path, _, directory = self._writable(name)
        names = self._list(directory)
        aside = directory / _aside(path.name, now, names.__contains__)
        with _System("set aside", path):
            self._files.rename(path, aside)
        self._do("sync", self._files.sync_directory, directory)
        return aside

    def records(self) -> Listing:
        """List the pod records."""
        names = self._list(self._pods)
        return _listing([name for name in names if not name.endswith(_TEMPORARY_SUFFIX)])

    def _writable(self, name: str) -> _Place:
        if self._lock is None:
            raise StateError(f"state directory {self.root} is not open for writing")
        return self._place(name)

    def _place(self, name: str) -> _Place:
        of_node = self._places.get(name)
        return of_node or _Place.of(self._pods, _checked(name).removeprefix(f"{PODS}/"))

    def _sweep(self) -> Iterator[str]:
        for directory in (self.root, self._pods):
            for name in self._list(directory):
                if name.startswith(".") and name.endswith(_TEMPORARY_SUFFIX):
                    self._do("remove", self._files.unlink, directory / name)
                    yield name

    def _make_directory(self, path: Path) -> None:
        with _System("create directory", path):
            try:
                self._files.make_directory(path)
            except FileExistsError:
                return
            except FileNotFoundError:
                self._make_directory(path.parent)
                self._files.make_directory(path)
            self._files.sync_directory(path.parent)

    def _take_lock(self) -> None:
        path = self.root / LOCK_FILE
        with _System("lock", path):
            try:
                self._lock = self._files.lock(path, f"{os.getpid()}\n".encode())
            except BlockingIOError:
                pid = self._files.read(path).decode(errors="replace").strip()
                raise LockedError(self.root, pid) from None

    def _list(self, path: Path) -> list[str]:
        with _System("list", path):
            try:
                return self._files.list_directory(path)
            except FileNotFoundError:
                return []

    def _do(self, operation: str, call: Callable[[Path], T], path: Path) -> T:
        with _System(operation, path):
            return call(path)


class MemoryStore:
    """A `Store` in memory, for tests and rehearsals."""

    __slots__ = ("files",)

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def read(self, name: str) -> bytes | None:
        """Read a file; None where there is none."""
        return self.files.get(_checked(name))

    def write(self, name: str, data: bytes) -> None:
        """Replace a file as a whole."""
        self.files[_checked(name)] = data

    def write_together(self, files: Mapping[str, bytes]) -> None:
        """Replace several files, one after the other."""
        for name, data in files.items():
            self.write(name, data)

    def remove(self, name: str) -> None:
        """Remove a file; no error where there is none."""
        self.files.pop(_checked(name), None)

    def quarantine(self, name: str, now: str) -> Path:
        """Set a file aside as ``NAME.corrupt-<now>``, never over another; returns its name."""
        aside = _aside(name, now, self.files.__contains__)
        if _checked(name) not in self.files:
            raise StorageError(
                "set aside", Path(name), FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            )
        self.files[aside] = self.files.pop(name)
        return Path(aside)

    def records(self) -> Listing:
        """List the pod records."""
        inside = sorted(name for name in self.files if name.startswith(f"{PODS}/"))
        return _listing([name.removeprefix(f"{PODS}/") for name in inside])


class _Place(NamedTuple):
    """Where a file is, and where it is written before it gets there."""

    path: Path
    temporary: Path
    directory: Path

    @classmethod
    def of(cls, directory: Path, name: str) -> Self:
        return cls(directory / name, directory / f".{name}{_TEMPORARY_SUFFIX}", directory)


class _System:
    """Turns an OSError of the block into the StorageError that says what was tried where."""

    __slots__ = ("_operation", "_path")

    def __init__(self, operation: str, path: Path) -> None:
        self._operation = operation
        self._path = path

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, OSError):
            raise StorageError(self._operation, self._path, error) from error
