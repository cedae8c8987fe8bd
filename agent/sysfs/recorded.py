"""Recordings of machines: the files that discovery reads, as one JSON document.

``{"name": …, "files": {"sys/devices/system/cpu/online": "0-95\\n", …}}``, file bytes as latin-1,
xz-compressed where the file's name ends in ``.xz``. Same machine, same bytes.
"""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from agent.errors import ConfigError
from agent.sysfs.discovery import discover
from agent.sysfs.reader import ABSENT, Absent, RecordedSysfs, SysfsReader

_CPU_OR_NODE = re.compile(r"(cpu|node)\d+")


class _Recorder:
    """Passes every call on and keeps what it gave."""

    __slots__ = ("_reader", "directories", "files")

    def __init__(self, reader: SysfsReader) -> None:
        self._reader = reader
        self.files: dict[str, str] = {}
        self.directories: set[str] = set()

    def read(self, path: str) -> str | Absent:
        text = self._reader.read(path)
        if text is not ABSENT:
            self.files[path] = f"{text}\n"
        return text

    def list(self, path: str) -> Sequence[str]:
        names = self._reader.list(path)
        self.directories.update(f"{path}/{name}" for name in names if _CPU_OR_NODE.fullmatch(name))
        return names


def record(reader: SysfsReader, name: str) -> RecordedSysfs:
    """Record what discovery reads of a machine: ``discover`` of the result gives the same.

    Raises HostError where discovery does.
    """
    recorder = _Recorder(reader)
    discover(recorder)
    held = RecordedSysfs(name, recorder.files)
    # The kernel tells of a CPU by its folder alone, even if discovery reads no file there.
    empty = {f"{path}/": "" for path in recorder.directories if not held.list(path)}
    return RecordedSysfs(name, dict(sorted((recorder.files | empty).items())))


def encode_recording(recording: RecordedSysfs) -> bytes:
    """The recording as a file holds it, not compressed."""
    return json.dumps({"name": recording.name, "files": recording.files}, indent=0).encode("ascii")


def save_recording(recording: RecordedSysfs, path: Path) -> None:
    """Write the recording to ``path``, compressed if it ends in ``.xz``. Raises OSError."""
    data = encode_recording(recording)
    path.write_bytes(lzma.compress(data, preset=9) if path.suffix == ".xz" else data)


def load_recording(path: Path) -> RecordedSysfs:
    """Read a recording. Raises ConfigError naming the file and the field that is wrong."""
    try:
        data = path.read_bytes()
        document = json.loads(lzma.decompress(data) if path.suffix == ".xz" else data)
    except OSError as error:
        raise ConfigError(f"cannot read the recording {path}: {error.strerror}") from error
    except (lzma.LZMAError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not a recording: {error}") from error
    fields = document if isinstance(document, dict) else {}
    files = fields.get("files")
    if not isinstance(files, dict) or not files:
        raise ConfigError(f"{path}: $.files: expected an object of path: text, got {_short(files)}")
    return RecordedSysfs(_text(path, "$.name", fields.get("name")), _texts(path, files))


def _texts(path: Path, files: Mapping[str, object]) -> Mapping[str, str]:
    return {name: _text(path, f"$.files[{json.dumps(name)}]", text) for name, text in files.items()}


def _text(path: Path, field: str, value: object) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{path}: {field}: expected text, got {_short(value)}")
    return value


def _short(value: object) -> str:
    return json.dumps(value)[:40]
