"""YAML beside its values: the line of every key, and text made of values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import yaml

from agent.manifest.problem import child

_LOADER: Final[type[Any]] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def key_lines(text: bytes) -> Mapping[str, int]:
    """The line of each key and list item of the first document, by its path (``$.a.b[0]``).

    For a text that `decode` has read: that bounds its depth and what its aliases expand to.
    """
    lines: dict[str, int] = {}
    loader = _LOADER(text)
    try:
        root = loader.get_node() if loader.check_node() else None
    finally:
        loader.dispose()
    if root is not None:
        _note(root, "$", lines)
    return lines


def _note(node: Any, path: str, lines: dict[str, int]) -> None:
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            place = child(path, str(key.value))
            lines[place] = key.start_mark.line + 1
            _note(value, place, lines)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            _note(value, f"{path}[{index}]", lines)


def yaml_text(value: object) -> str:
    """Plain values as YAML, in their order."""
    text: str = yaml.safe_dump(
        value, sort_keys=False, width=100, allow_unicode=True, default_flow_style=False
    )
    return text
