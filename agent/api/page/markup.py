"""HTML that is safe by construction: every text is escaped unless it is `Markup` already."""

from __future__ import annotations

import re
from html import escape
from typing import Final

_VOID: Final = frozenset({"meta", "br", "link"})
_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


class Markup(str):
    """Text that is HTML."""

    __slots__ = ()


def element(name: str, *content: str, **attributes: str | bool) -> Markup:
    """``<name …>content</name>``; ``class_`` is ``class``, ``data_pod`` is ``data-pod``, False is left out."""
    stated = "".join(_attribute(key, value) for key, value in attributes.items() if value is not False)
    if name in _VOID:
        return Markup(f"<{name}{stated}>")
    return Markup(f"<{name}{stated}>{joined(*content)}</{name}>")


def joined(*content: str) -> Markup:
    """One piece of HTML of several."""
    return Markup("".join(part if isinstance(part, Markup) else _escaped(part) for part in content))


def _attribute(key: str, value: str | bool) -> str:  # noqa: FBT001 - HTML's own
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{_escaped(str(value))}"'


def _escaped(text: str) -> str:
    return escape(_CONTROL.sub("�", text))
