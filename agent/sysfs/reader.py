"""The one gate to sysfs and procfs: read a file or learn that it is absent, list a directory.

Paths are relative to the root, without a leading slash: ``sys/devices/system/cpu/online``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Final, Protocol


class Absent(Enum):
    """The kernel does not tell."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT


class SysfsReader(Protocol):
    """What discovery needs of a machine; neither call raises."""

    def read(self, path: str) -> str | Absent:
        """The file's text, bytes as latin-1, without NUL padding and outer white space."""
        ...

    def list(self, path: str) -> Sequence[str]:
        """The names in a directory, sorted; none where it does not exist."""
        ...


class HostSysfs:
    """The files below ``root``: the running host, or a copy of one."""

    __slots__ = ("_root",)

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root

    def read(self, path: str) -> str | Absent:
        """See `SysfsReader.read`."""
        # Any failure counts as absent: a CPU may go offline between listing and reading (ENODEV),
        # and a sandbox may mask a file (EACCES). Discovery then says what it misses.
        try:
            return _stripped((self._root / path).read_bytes().decode("latin-1"))
        except OSError:
            return ABSENT

    def list(self, path: str) -> Sequence[str]:
        """See `SysfsReader.list`."""
        try:
            return sorted(entry.name for entry in (self._root / path).iterdir())
        except OSError:
            return ()


class RecordedSysfs:
    """A machine held in memory: ``files`` maps paths to texts as the kernel gave them."""

    __slots__ = ("_directories", "files", "name")

    def __init__(self, name: str, files: Mapping[str, str]) -> None:
        self.name = name
        self.files = files
        self._directories: dict[str, set[str]] = {}
        for path in files:
            self._index(path)

    def _index(self, path: str) -> None:
        while path:
            path, _, name = path.rpartition("/")
            names = self._directories.setdefault(path, set())
            if name in names:
                return
            # A recording writes a directory without files as a path that ends in a slash.
            if name:
                names.add(name)

    def read(self, path: str) -> str | Absent:
        """See `SysfsReader.read`."""
        text = self.files.get(path)
        return ABSENT if text is None else _stripped(text)

    def list(self, path: str) -> Sequence[str]:
        """See `SysfsReader.list`."""
        return sorted(self._directories.get(path, ()))


def _stripped(text: str) -> str:
    return text.strip(" \t\n\0")
