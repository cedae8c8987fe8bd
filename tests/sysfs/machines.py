"""The recorded machines, by name."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from agent.domain.topology import Topology
from agent.sysfs.discovery import discover
from agent.sysfs.reader import RecordedSysfs
from agent.sysfs.recorded import load_recording

FOLDER = Path(__file__).parents[1] / "data" / "machines"
NAMES = sorted(path.name.removesuffix(".json.xz") for path in FOLDER.glob("*.json.xz"))


@cache
def recording(name: str) -> RecordedSysfs:
    """The recording called ``name``."""
    return load_recording(FOLDER / f"{name}.json.xz")


@cache
def discovered(name: str) -> Topology:
    """What discovery makes of it."""
    return discover(recording(name))
