"""JSON as Go's encoding/json reads and writes it.

Writing: ``<``, ``>``, ``&``, U+2028 and U+2029 are escaped. Reading: each byte that is not UTF-8
and each lone surrogate becomes U+FFFD, field names match without regard to case, of a field given
twice the last one counts, ``null`` leaves a value as it was, unknown fields are passed over.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import Any, Final, NoReturn

from agent.errors import StateError

Fields = Mapping[str, Any]
RawFields = tuple[tuple[str, str], ...]
"""Names and the JSON text of their values."""

NO_FIELDS: Final[Fields] = {}
UINT64: Final = (1 << 64) - 1

_HTML: Final = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}
_TO_ESCAPE = re.compile("[<>&\u2028\u2029]")
_NOT_UTF8 = re.compile("[\udc80-\udcff]")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_ESCAPE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<lone>\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\."
)
_BEFORE_KEY = re.compile(r'[ \t\n\r,]*(?=")')
_COLON = re.compile(r"[ \t\n\r:]*")


def quote(text: str) -> str:
    """Write ``text`` as a JSON string."""
    quoted = encode_basestring(text)
    return quoted.translate(_HTML) if _TO_ESCAPE.search(quoted) else quoted


def text_from(raw: bytes) -> str:
    """Decode the bytes of a JSON file."""
    return _NOT_UTF8.sub("\ufffd", raw.decode("utf-8", "surrogateescape"))


@dataclass(frozen=True, slots=True)
class Struct:
    """One JSON object: the fields that are known, and the rest as it was written."""

    known: Fields
    extra: RawFields


def read_struct(text: str, names: Mapping[str, str]) -> Struct:
    """Read an object; ``names`` maps the folded form of each known field to its name.

    Raises StateError where ``text`` is not JSON or not an object.
    """
    if _SURROGATE.search(text):
        text = _ESCAPE.sub(lambda escape: r"\ufffd" if escape["lone"] else escape[0], text)
    try:
        value = _DECODER.decode(text)
    except RecursionError:
        raise StateError("exceeded max depth") from None
    except ValueError as error:
        reason = "unexpected end of JSON input" if not text.strip() else f"invalid JSON: {error}"
        raise StateError(reason) from error
    if value is None:
        return Struct(NO_FIELDS, ())
    if not isinstance(value, dict):
        raise StateError(f"expected a JSON object, found {_kind(value)}")
    unknown = any(name.casefold() not in names for name in value)
    return Struct(fold(value, names), _unknown_fields(text, names) if unknown else ())


def _unknown_fields(text: str, names: Mapping[str, str]) -> RawFields:
    """The fields of the valid object in ``text`` that are not in ``names``, values untouched."""
    found: dict[str, str] = {}
    at = text.index("{") + 1
    while key := _BEFORE_KEY.match(text, at):
        name, at = _DECODER.raw_decode(text, key.end())
        start = _COLON.match(text, at).end()  # type: ignore[union-attr]  # matches the empty text too
        _, at = _DECODER.raw_decode(text, start)
        if name.casefold() not in names:
            found[name] = text[start:at]
    return tuple(found.items())


def folded(*names: str) -> Mapping[str, str]:
    """The table of known ``names`` that `read_struct` and `fold` take."""
    return {name.casefold(): name for name in names}


def fold(fields: Fields, names: Mapping[str, str]) -> Fields:
    """The known ``fields`` under their proper names."""
    return {names[key]: value for name, value in fields.items() if (key := name.casefold()) in names}


def text_field(fields: Fields, name: str) -> str:
    """A string field; empty where it is absent. Raises StateError for another type."""
    return as_text(fields.get(name), name)


def uint_field(fields: Fields, name: str) -> int:
    """An unsigned 64-bit field; zero where it is absent. Raises StateError for another type."""
    value = fields.get(name)
    if value is None:
        return 0
    if type(value) is not int or not 0 <= value <= UINT64:
        wrong(name, "an unsigned 64-bit number", value)
    return value


def map_field(fields: Fields, name: str) -> Fields | None:
    """An object field; empty where it is absent, None for ``null`` (a nil map in Go)."""
    value = fields.get(name, NO_FIELDS)
    return None if value is None else as_map(value, name)


def as_text(value: object, name: str) -> str:
    """``value`` as a string, ``null`` being the empty one. Raises StateError for another type."""
    if value is None:
        return ""
    if not isinstance(value, str):
        wrong(name, "a string", value)
    return value


def as_map(value: object, name: str) -> Fields:
    """``value`` as an object. Raises StateError for another type."""
    if not isinstance(value, dict):
        wrong(name, "an object", value)
    return value


def wrong(name: str, expected: str, value: object) -> NoReturn:
    """Raise the StateError for a field of the wrong type."""
    raise StateError(f"field {name!r}: expected {expected}, found {_kind(value)}")


def _kind(value: object) -> str:
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), f"the number {value}")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_no_constant)
