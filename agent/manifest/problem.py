"""What is wrong with a manifest: all of it at once, each problem with its place."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from agent.errors import NumaletError

MAX_PROBLEMS: Final = 100
"""Problems kept for one text; the rest is only counted, so that hostile input stays cheap."""

_MAX_SHOWN = 60
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]{1,80}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to mend. ``path`` is a JSON path, or line and column where there is no value yet."""

    source: str
    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.source}: {self.path}: {self.text}"


class ManifestError(NumaletError):
    """A manifest cannot be used; ``problems`` in the order of the text, one line of the message each."""

    def __init__(self, problems: Sequence[Problem], dropped: int = 0) -> None:
        lines = [str(problem) for problem in problems]
        if dropped:
            lines.append(f"… and {dropped} more")
        super().__init__("\n".join(lines))
        self.problems = tuple(problems)


class Problems:
    """Collects the problems of one text, so that a person can mend all of them in one go."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.found: list[Problem] = []
        self.dropped = 0

    def __len__(self) -> int:
        return len(self.found) + self.dropped

    @property
    def full(self) -> bool:
        """Whether further problems are only counted: no need to phrase them with care."""
        return len(self.found) >= MAX_PROBLEMS

    def add(self, path: str, text: str) -> None:
        """Note a problem at ``path``."""
        if self.full:
            self.dropped += 1
        else:
            self.found.append(Problem(self.source, path, text))

    def extend(self, problems: Sequence[Problem]) -> None:
        """Note problems found elsewhere."""
        for problem in problems:
            self.add(problem.path, problem.text)

    def raise_any(self) -> None:
        """Raise ManifestError if there is a problem."""
        if self.found:
            raise ManifestError(self.found, self.dropped)


def child(path: str, key: str) -> str:
    """The path of a key: ``$.spec.os``, or ``$.metadata.labels["a/b"]`` where the key needs quotes."""
    return f"{path}.{key}" if _PLAIN_KEY.fullmatch(key) else f"{path}[{shown(key)}]"


def shown(value: Any) -> str:
    """Show a value in a message: short, on one line, look-alike letters made visible."""
    if isinstance(value, str):
        return json.dumps(value[:_MAX_SHOWN]) + ("…" if len(value) > _MAX_SHOWN else "")
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, dict):
        return "a mapping"
    return "a list" if isinstance(value, list | tuple) else str(value)
