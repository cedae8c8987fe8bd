"""Manifest text to documents: YAML or JSON, one or many, bounded in every direction."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

from agent.manifest.problem import Problems, shown
from agent.manifest.scalars import ExactFloat, integer
from agent.manifest.yamltext import MAX_DEPTH, MAX_EVENTS, read_yaml

MAX_BYTES: Final = 10 << 20
"""The kubelet refuses larger files, too."""

_MAX_DIRECTIVES = 100
"""libyaml compares each %TAG with all before it: many of them would take minutes."""


@dataclass(frozen=True, slots=True)
class Document:
    """One object of a text. ``place`` is where paths inside it start: ``$``, or ``$.items[2]``."""

    value: dict[str, Any]
    place: str = "$"


def decode(text: bytes, source: str) -> tuple[dict[str, Any], ...]:
    """Read the objects of ``text``, empty documents left out, `kind: List` unfolded.

    Raises ManifestError: not UTF-8, too large, too deep, a key given twice, not an object.
    """
    problems = Problems(source)
    documents = read_documents(text, problems)
    problems.raise_any()
    return tuple(document.value for document in documents)


def read_documents(text: bytes, problems: Problems) -> list[Document]:
    """The objects of ``text`` that can be read, each with its place; the rest is noted."""
    documents: list[Document] = []
    budget = _Budget()
    values = _values(text, problems)
    for number, value in enumerate(values, start=1):
        place = "$" if len(values) == 1 else f"document {number}: $"
        complaint = budget.complaint(value)
        if complaint:
            problems.add(place, complaint)
            break
        documents.extend(_unfolded(value, place, problems))
    return documents


def _values(text: bytes, problems: Problems) -> list[Any]:
    """The bare values; empty when the text as a whole is refused."""
    refusal = _refusal(text)
    if refusal:
        problems.add("$", refusal)
        return []
    if text.lstrip()[:1] == b"{" and sum(map(text.count, (b",", b":", b"[", b"{"))) < MAX_EVENTS:
        try:
            return [_read_json(text, problems)]
        except (ValueError, RecursionError):
            pass  # a flow mapping perhaps; if not, the YAML parser's complaint names line and column
    return read_yaml(text, problems)


def _refusal(text: bytes) -> str:
    if len(text) > MAX_BYTES:
        return f"{len(text)} bytes are too many for a manifest (at most {MAX_BYTES})"
    if b"\0" in text:
        return "holds NUL bytes (expected text)"
    if text.count(b"\n%") > _MAX_DIRECTIVES:
        return f"more than {_MAX_DIRECTIVES} YAML directives"
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return f"not UTF-8 at byte {error.start}"
    return ""


def _read_json(text: bytes, problems: Problems) -> Any:
    doubles: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        built = dict(items)
        if len(built) < len(items):
            counts = Counter(key for key, _ in items)
            doubles.extend(key for key, count in counts.items() if count > 1)
        return built

    value = json.loads(
        text,
        object_pairs_hook=pairs,
        parse_float=ExactFloat.of,
        parse_int=integer,
        parse_constant=_no_constant,
    )
    for key in doubles:
        problems.add("$", f"key {shown(key)} is given twice in one object")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _unfolded(value: Any, place: str, problems: Problems) -> list[Document]:
    """The objects of one document: none if it is empty, the items of a List, else the one."""
    if value is None:
        return []
    if not isinstance(value, dict):
        problems.add(place, f"{shown(value)} is not an object (expected fields, each with a value)")
        return []
    return _items(value, place, problems) if value.get("kind") == "List" else [Document(value, place)]


def _items(value: dict[str, Any], place: str, problems: Problems) -> list[Document]:
    items = value.get("items")
    if value.get("apiVersion") != "v1":
        problems.add(f"{place}.apiVersion", f'{shown(value.get("apiVersion"))} is not known (expected "v1")')
    if not isinstance(items, list):
        problems.add(f"{place}.items", f"{shown(items)} is not a list")
        return []
    documents = []
    for index, item in enumerate(items):
        if isinstance(item, dict):
            documents.append(Document(item, f"{place}.items[{index}]"))
        else:
            problems.add(f"{place}.items[{index}]", f"{shown(item)} is not an object (expected a Pod)")
    return documents


class _Budget:
    """What all documents of a text may expand to once each alias is written out."""

    def __init__(self) -> None:
        self.values = MAX_EVENTS
        self.characters = MAX_BYTES

    def complaint(self, value: Any) -> str:
        """Walk ``value`` as it would be written; say what is wrong with it, if anything."""
        level = [value]
        for _ in range(MAX_DEPTH + 1):
            if not level:
                return ""
            texts = [value for value in level if isinstance(value, str)]
            if not self._spend(level, texts):
                return "aliases expand it beyond what a manifest may hold"
            if not all(map(_encodable, texts)):
                return "holds half a surrogate pair (expected Unicode text)"
            level = _below(level, self.values)
        return f"nested deeper than {MAX_DEPTH} levels"

    def _spend(self, level: list[Any], texts: list[str]) -> bool:
        self.values -= len(level)
        self.characters -= sum(map(len, texts))
        return self.values >= 0 and self.characters >= 0


def _below(level: list[Any], at_most: int) -> list[Any]:
    """The children of a level, keys among them; cut once there are more than ``at_most``."""
    below: list[Any] = []
    for value in level:
        if isinstance(value, dict):
            below.extend(value)
            below.extend(value.values())
        elif isinstance(value, list):
            below.extend(value)
        if len(below) > at_most:
            break
    return below


def _encodable(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
