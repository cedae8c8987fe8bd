"""The files that `numalet state` reads and writes; nothing is locked and nothing made in order to read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from agent.checkpoint.files import SystemFiles, write_synced
from agent.checkpoint.podrecord import PodRecord
from agent.checkpoint.reading import (
    ContainerIds,
    CpuFile,
    MemoryFile,
    StoredFile,
    read_stored,
    sentence,
)
from agent.checkpoint.store import CPU_FILE, LOCK_FILE, MEMORY_FILE, PODS
from agent.containermanager.handover import Described, described
from agent.domain.pod import PodUid
from agent.domain.state import CpuState, MemoryState, NodeState
from agent.errors import StateError
from agent.manifest import MAX_BYTES, decode


@dataclass(frozen=True, slots=True)
class Unread:
    """A file that cannot be read, and why."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """The state files of a path, by name; ``numalets`` if they are of a numalet, which keeps pod records."""

    files: Mapping[str, StoredFile | Unread]
    numalets: bool

    @property
    def cpu(self) -> CpuFile | None:
        """The CPU checkpoint, if there is a readable one."""
        return next((file for file in self.files.values() if isinstance(file, CpuFile)), None)

    @property
    def memory(self) -> MemoryFile | None:
        """The memory checkpoint, if there is a readable one."""
        return next((file for file in self.files.values() if isinstance(file, MemoryFile)), None)

    @property
    def records(self) -> tuple[PodRecord, ...]:
        """The readable pod records."""
        return tuple(file for file in self.files.values() if isinstance(file, PodRecord))

    @property
    def unread(self) -> bool:
        """Whether any file cannot be read."""
        return any(isinstance(file, Unread) for file in self.files.values())

    @property
    def state(self) -> NodeState:
        """Both checkpoints together; what is missing is empty."""
        cpu, memory = self.cpu, self.memory
        return NodeState(
            cpu=cpu.state if cpu else CpuState(), memory=memory.state if memory else MemoryState()
        )

    @property
    def cpu_name(self) -> str:
        """What the CPU checkpoint is called, or would be."""
        return self._name_of(self.cpu) or CPU_FILE

    @property
    def memory_name(self) -> str:
        """What the memory checkpoint is called, or would be."""
        return self._name_of(self.memory) or MEMORY_FILE

    def _name_of(self, file: StoredFile | None) -> str:
        return next((name for name, one in self.files.items() if one is file), "")


def read_path(path: Path, containers: ContainerIds | None = None) -> Stored:
    """Read a state file, or all of a state directory. Raises StateError where there is none in it."""
    if not path.is_dir():
        return Stored(files={str(path): _read(path, containers)}, numalets=False)
    names = [name for name in (CPU_FILE, MEMORY_FILE) if (path / name).exists()]
    records = [f"{PODS}/{file.name}" for file in sorted((path / PODS).glob("[!.]*.json")) if file.is_file()]
    if not names and not records:
        raise StateError(
            f"{path} holds neither {CPU_FILE} nor {MEMORY_FILE}", hint="is it a state directory?"
        )
    files = {name: _read(path / name, containers) for name in (*names, *records)}
    return Stored(files=files, numalets=bool(records) or (path / LOCK_FILE).exists())


def _read(path: Path, containers: ContainerIds | None) -> StoredFile | Unread:
    try:
        return read_stored(path.read_bytes(), containers=containers)
    except StateError as error:
        return Unread(sentence(error))
    except OSError as error:
        return Unread(error.strerror or str(error))


def read_pods(paths: Iterable[Path]) -> Mapping[PodUid, Described]:
    """The pods described by manifests, or by the API server. Raises ManifestError, OSError."""
    found: dict[PodUid, Described] = {}
    for path in paths:
        for file in _manifests(path):
            found |= described(decode(file.read_bytes()[: MAX_BYTES + 1], file.name), file.name)
    return found


def _manifests(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    for inside in sorted(path.iterdir()):
        if not inside.name.startswith(".") and inside.is_file():
            yield inside


def check_free(paths: Iterable[Path], *, force: bool) -> None:
    """Raise StateError if a file is there already that may not be replaced."""
    there = [str(path) for path in paths if path.exists()]
    if there and not force:
        raise StateError(f"{', '.join(there)}: exists already", hint="--force replaces it")


def replace_file(path: Path, data: bytes) -> None:
    """Write a file as a whole: after a crash or an OSError it is the old one or the new one."""
    files, temporary = SystemFiles(), path.with_name(f".{path.name}.tmp")
    try:
        write_synced(files, temporary, data)
        files.rename(temporary, path)
    except OSError:
        with suppress(OSError):
            files.unlink(temporary)
        raise
    files.sync_directory(path.parent)
