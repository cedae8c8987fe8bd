"""A disk that forgets what was not synced when the power goes, and fails at the operation one asks for."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path


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

    def contents(self) -> dict[Path, bytes]:
        """Every file."""
        return {
            path / name: inode.content for path, names in self.names.items() for name, inode in names.items()
        }

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
