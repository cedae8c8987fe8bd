"""Names of units, as far as they are made here: systemd.unit(5), systemd.slice(5)."""

from __future__ import annotations

import re
from typing import Final

SLICE: Final = ".slice"
MAX_UNIT_NAME: Final = 255
"""Bytes (UNIT_NAME_MAX less the null), and what a file name may have."""

_TOP_LEVEL: Final = re.compile(r"[A-Za-z0-9_.:]+\.slice", re.ASCII)


def is_top_level_slice(name: str) -> bool:
    """Tell whether a slice of that name is at the top of the hierarchy: a ``-`` would put it in another one."""
    return bool(_TOP_LEVEL.fullmatch(name))
