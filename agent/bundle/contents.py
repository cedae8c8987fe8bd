"""What is put into a bundle, and what could not be had."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from agent.bundle.archive import MAX_MEMBERS, MAX_TOTAL
from agent.bundle.redaction import RULES
from agent.errors import NumaletError

MAX_FILE: Final = 64 << 20
"""Bytes of one file; of a longer text the end is kept, anything else is left out."""
MAX_CONTENT: Final = MAX_TOTAL - (32 << 20)
"""Bytes of all files; what is left of a bundle's size is for the archive itself and its manifest."""
VERSION: Final = 1


@dataclass(slots=True)
class Contents:
    """Files by name, each with what it is; ``missing`` says what could not be had, and why."""

    files: dict[str, bytes] = field(default_factory=dict)
    about: dict[str, str] = field(default_factory=dict)
    missing: list[tuple[str, str]] = field(default_factory=list)
    size: int = 0

    def add(self, name: str, about: str, data: bytes) -> None:
        """Add a file as it is, unless it is too large."""
        if len(data) > MAX_FILE:
            self.lack(name, f"{len(data)} bytes are more than a file may have ({MAX_FILE})")
            return
        if self.size + len(data) > MAX_CONTENT or len(self.files) + 1 >= MAX_MEMBERS:
            self.lack(name, "the bundle is full")
            return
        self.files[name], self.about[name] = data, about
        self.size += len(data)

    def add_json(self, name: str, about: str, value: Any) -> None:
        """Add a JSON value."""
        self.add(name, about, (json.dumps(value, indent=1, sort_keys=True) + "\n").encode())

    def add_text(self, name: str, about: str, data: bytes) -> None:
        """Add a text, of a very long one the end."""
        cut = f"{about}; only its end" if len(data) > MAX_FILE else about
        self.add(name, cut, data[-MAX_FILE:])

    def lack(self, what: str, why: str) -> None:
        """Note what could not be had."""
        self.missing.append((what, why))

    @contextmanager
    def lacking(self, what: str) -> Iterator[None]:
        """Note that ``what`` could not be had if an error ends the block; go on after it."""
        try:
            yield
        except (NumaletError, OSError) as error:
            self.failed(what, error)

    def failed(self, what: str, error: NumaletError | OSError) -> None:
        """Note the error for which ``what`` could not be had."""
        if isinstance(error, NumaletError):
            self.lack(what, f"{error.message}{f' ({error.hint})' if error.hint else ''}")
            return
        root = " (try as root)" if isinstance(error, PermissionError) else ""
        where = f"{error.filename}: " if error.filename else ""
        self.lack(what, f"{where}{error.strerror or error}{root}")

    def manifest(self, when: str, version: str) -> bytes:
        """MANIFEST.json: what is in the bundle, what is not and why, and what was made unreadable."""
        document = {
            "bundle": VERSION,
            "numalet": version,
            "time": when,
            "files": [
                {"name": name, "bytes": len(data), "what": self.about[name]}
                for name, data in self.files.items()
            ],
            "missing": [{"what": what, "why": why} for what, why in self.missing],
            "redacted": list(RULES),
        }
        return (json.dumps(document, indent=1) + "\n").encode()
