"""The recorded answers of the reference implementation, file by file."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "data" / "conformance"
CASES = {"take": 2000, "merge": 2000, "admit": 2849, "restore": 250, "checkpoint": 300}


def path_of(name: str) -> Path:
    return FOLDER / f"{name}.jsonl.gz"


def cases(name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The cases of a file, each with its line number."""
    with gzip.open(path_of(name), "rt", encoding="utf-8") as lines:
        yield from enumerate(map(json.loads, lines), 1)
