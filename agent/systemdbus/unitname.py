"""Names of units, as far as they are made here: systemd.unit(5), systemd.slice(5)."""

from __future__ import annotations

import re
from typing import Final

SLICE: Final = ".slice"
MAX_UNIT_NAME: Final = 255
"""Bytes (UNIT_NAME_MAX less the null), and what a file name may have."""

_TOP_LEVEL: Final = re.compile(r"[A-Za-z0-9_.:]+\.slice", re.ASCII)


def object_path(unit: str) -> str:
    """Where the unit is on the bus (sd_bus_path_encode(3)); systemd loads one that is asked for there.

    >>> object_path("a-b.slice")
    '/org/freedesktop/systemd1/unit/a_2db_2eslice'
    """
    label = "".join(_escaped(char, first=not at) for at, char in enumerate(unit))
    return f"/org/freedesktop/systemd1/unit/{label}"


def _escaped(char: str, *, first: bool) -> str:
    is_plain = char.isascii() and char.isalnum() and not (first and char.isdigit())
    return char if is_plain else f"_{ord(char):02x}"


def is_top_level_slice(name: str) -> bool:
    """Tell whether a slice of that name is at the top of the hierarchy: a ``-`` would put it in another one."""
    return bool(_TOP_LEVEL.fullmatch(name))
