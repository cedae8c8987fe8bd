"""How Go reads and quotes option values: the kubelet's error texts repeat Go's strconv to the letter."""

from __future__ import annotations

import re

_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE = frozenset(("0", "f", "F", "FALSE", "false", "False"))
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NAMED = {
    '"': '\\"',
    "\\": "\\\\",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}


def parse_bool(text: str) -> bool:
    """Read a bool as strconv.ParseBool does; ValueError has Go's text."""
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError(f"strconv.ParseBool: parsing {quote(text)}: invalid syntax")


def atoi(text: str) -> int:
    """Read a 64-bit integer as strconv.Atoi does; ValueError has Go's text."""
    if _INTEGER.fullmatch(text) is None:
        raise ValueError(f"strconv.Atoi: parsing {quote(text)}: invalid syntax")
    # 20 characters hold every 64-bit number; leading zeros are legal and may be many.
    digits = text.lstrip("+-").lstrip("0")
    value = int(digits[:20] or "0") * (-1 if text.startswith("-") else 1)
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"strconv.Atoi: parsing {quote(text)}: value out of range")
    return value


def quote(text: str) -> str:
    """Quote as the verb %q: a Go string literal, printable Unicode kept."""
    return f'"{"".join(map(_quoted, text))}"'


def _quoted(char: str) -> str:
    if char in _NAMED:
        return _NAMED[char]
    if char.isprintable():
        return char
    code = ord(char)
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 1 << 16 else f"\\U{code:08x}"
