"""Check, without the network, that requirements.lock is whole: what numalet needs, in versions it allows, with hashes."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]


def pinned(lock: str) -> dict[str, tuple[str, int]]:
    """Version and number of hashes of every package that a requirements file names."""
    entries = re.findall(r"^([\w.-]+)==(\S+)((?: \\\n +--hash=sha256:[0-9a-f]{64})*)$", lock, re.MULTILINE)
    return {canonicalize_name(name): (version, hashes.count("--hash=")) for name, version, hashes in entries}


def problems(wanted: list[str], pins: Mapping[str, tuple[str, int]]) -> Iterator[str]:
    """What is missing, forbidden, without hashes, or there for nothing. Asks the packages that are installed."""
    seen: set[str] = set()
    queue = [(text, "pyproject.toml") for text in wanted]
    while queue:
        text, by = queue.pop()
        need = Requirement(text)
        name = canonicalize_name(need.name)
        if need.marker and not need.marker.evaluate({"extra": ""}):
            continue
        version, hashes = pins.get(name, ("", 0))
        if not version:
            yield f"{by} needs {need}, which is not in it"
        elif not need.specifier.contains(version, prereleases=True):
            yield f"{by} needs {need}, it has {version}"
        elif not hashes:
            yield f"{name} {version} has no hash"
        if version and name not in seen:
            seen.add(name)
            queue += [(below, name) for below in requires(name) or ()]
    yield from (f"nothing needs {name}" for name in sorted(pins.keys() - seen))


def main() -> None:
    """Exit with 1 and every problem, if there are any."""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    found = list(problems(wanted, pinned((ROOT / "requirements.lock").read_text("utf-8"))))
    if found:
        sys.exit("\n".join((*(f"requirements.lock: {text}" for text in found), "mend it with: make lock")))


if __name__ == "__main__":
    main()
