"""What an unquoted YAML scalar means, as Kubernetes reads it (YAML 1.1, go-yaml v2).

``yes``, ``on`` and ``y`` are true, ``0644`` is octal, a date is a string. Numbers keep their text
where a float would not be exact, because a quantity such as 0.1 CPU is.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final, Self

_WORDS: Final[dict[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
}
_NUMBER_START = frozenset("+-.0123456789")
_INTEGER = re.compile(
    r"[-+]?(?:(?P<octal>0[0-7]{1,22})|0|[1-9][0-9]{0,18}|0[xX][0-9a-fA-F]{1,16}|0[bB][01]{1,64}|0[oO][0-7]{1,22})",
    re.ASCII,
)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)


class ExactFloat(float):
    """A float that remembers how it was written; JSON sees the float, `str` gives the text."""

    __slots__ = ("text",)

    text: str

    @classmethod
    def of(cls, text: str) -> Self | str:
        """Read ``text``; one too large for a float stays text."""
        number = cls(text)
        if not math.isfinite(number):
            return text
        number.text = text
        return number

    def __str__(self) -> str:
        return self.text


def integer(text: str) -> int | ExactFloat | str:
    """Read decimal digits, of any length."""
    return int(text) if len(text) < 20 else ExactFloat.of(text)


def plain_scalar(text: str) -> Any:
    """The value of an unquoted scalar: None, bool, int, `ExactFloat` or str."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMBER_START:
        return text
    digits = text.replace("_", "")
    match = _INTEGER.fullmatch(digits)
    if match is not None:
        return int(digits, 8 if match["octal"] else 0)
    return ExactFloat.of(digits) if _FLOAT.fullmatch(digits) else text
