"""Plain values to YAML text, for people who like it better than JSON."""

from __future__ import annotations

from typing import Any, Final

import yaml

_DUMPER: Final[type[Any]] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_WIDTH: Final = 1 << 20
"""Characters: a sentence stays on its line."""


def dump_yaml(value: object) -> str:
    """One document in block style, keys in the order they come in."""
    text: str = yaml.dump(value, Dumper=_DUMPER, sort_keys=False, allow_unicode=True, width=_WIDTH)
    return text
