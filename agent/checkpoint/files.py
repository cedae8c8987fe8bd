"""The one gate to the file system for stored state, so that a test can fail any single operation."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Protocol

PRIVATE_FILE = 0o600
PRIVATE_DIRECTORY = 0o700


class Files(Protocol):
    """System calls; all raise OSError."""

    def make_directory(self, path: Path) -> None:
        """mkdir(2), mode 0700; FileExistsError where it exists."""

    def list_directory(self, path: Path) -> list[str]:
        """List the names in a directory, sorted."""

    def read(self, path: Path) -> bytes:
        """Read all of a file."""

    def create(self, path: Path) -> int:
        """Open a new or emptied file for writing, mode 0600; returns the descriptor."""

    def write(self, descriptor: int, data: bytes) -> int:
        """write(2): may write less than ``data``; returns how much."""

    def sync(self, descriptor: int) -> None:
        """fsync(2)."""

    def close(self, descriptor: int) -> None:
        """close(2); also releases the lock that `lock` took."""

    def rename(self, old: Path, new: Path) -> None:
        """rename(2): replaces ``new`` in one step."""

    def unlink(self, path: Path) -> None:
        """unlink(2)."""

    def sync_directory(self, path: Path) -> None:
        """fsync(2) of a directory: makes the names in it durable."""

    def lock(self, path: Path, owner: bytes) -> int:
        """Lock a file for this process and write ``owner`` into it; BlockingIOError if it is taken."""


class SystemFiles:
    """The real file system."""

    def make_directory(self, path: Path) -> None:
        """mkdir(2), mode 0700; FileExistsError where it exists."""
        path.mkdir(PRIVATE_DIRECTORY)

    def list_directory(self, path: Path) -> list[str]:
        """List the names in a directory, sorted."""
        return sorted(entry.name for entry in path.iterdir())

    def read(self, path: Path) -> bytes:
        """Read all of a file."""
        return path.read_bytes()

    def create(self, path: Path) -> int:
        """Open a new or emptied file for writing, mode 0600; symbolic links are not followed."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, PRIVATE_FILE)

    def write(self, descriptor: int, data: bytes) -> int:
        """write(2): may write less than ``data``; returns how much."""
        return os.write(descriptor, data)

    def sync(self, descriptor: int) -> None:
        """fsync(2)."""
        os.fsync(descriptor)

    def close(self, descriptor: int) -> None:
        """close(2)."""
        os.close(descriptor)

    def rename(self, old: Path, new: Path) -> None:
        """rename(2): replaces ``new`` in one step."""
        old.replace(new)

    def unlink(self, path: Path) -> None:
        """unlink(2)."""
        path.unlink()

    def sync_directory(self, path: Path) -> None:
        """fsync(2) of a directory."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock(self, path: Path, owner: bytes) -> int:
        """flock(2): the kernel releases it when the process ends, however it ends."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, PRIVATE_FILE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            os.write(descriptor, owner)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor


def write_synced(files: Files, path: Path, data: bytes) -> None:
    """Write a new file and its content to the disk. Raises OSError."""
    descriptor = files.create(path)
    try:
        while data:
            data = data[files.write(descriptor, data) :]
        files.sync(descriptor)
    finally:
        files.close(descriptor)
