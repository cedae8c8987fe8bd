"""YAML text to plain values, built from parser events.

Building from events rather than with a PyYAML constructor keeps the text of numbers, reports every
duplicate key with its line, and bounds what hostile text can cost before anything is built:
nesting, number of events, and what merge keys multiply. Aliases are shared, not copied; what they
expand to is bounded by the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import yaml

from agent.manifest.problem import Problems, shown
from agent.manifest.scalars import plain_scalar

MAX_EVENTS: Final = 100_000
MAX_DEPTH: Final = 100

_LOADER: Final[type[Any]] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_PLAIN_TAGS = frozenset(f"{_TAG}{name}" for name in ("int", "float", "bool", "null"))
_TEXT_TAGS = frozenset((f"{_TAG}str", f"{_TAG}timestamp", "!"))
_COLLECTION_TAGS = frozenset((None, "!", f"{_TAG}map", f"{_TAG}seq"))
_MERGE = "<<"


class _RefusedError(Exception):
    """Reading stops here; the problem is already noted."""


class _Open:
    """A collection whose end has not been seen; ``key`` is the key that waits for its value."""

    __slots__ = ("anchor", "into", "key", "merges")

    def __init__(self, into: dict[str, Any] | list[Any], anchor: str | None) -> None:
        self.into = into
        self.anchor = anchor
        self.key: str | None = None
        self.merges: list[dict[str, Any]] = []


def read_yaml(text: bytes, problems: Problems, loader: type[Any] = _LOADER) -> list[Any]:
    """Read all documents of ``text``; stops at the first problem that is not a duplicate key.

    ``loader`` is a PyYAML loader: the one of libyaml where it is built in, ten times as fast.
    """
    builder = _Builder(problems)
    try:
        for event in _events(loader(text)):
            builder.take(event)
    except _RefusedError:
        pass
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problems.add(_place(mark), f"not YAML: {error.problem or error.context}")
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # odd characters and escapes
        problems.add("$", f"not YAML: {' '.join(str(error).split())[:200]}")
    return builder.documents


def _events(loader: Any) -> Iterator[Any]:
    try:
        while loader.check_event():
            yield loader.get_event()
    finally:
        loader.dispose()


def _place(mark: Any) -> str:
    return "$" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}"


class _Builder:
    """Turns events into values; one instance for one text."""

    def __init__(self, problems: Problems) -> None:
        self.problems = problems
        self.documents: list[Any] = []
        self._open: list[_Open] = []
        self._anchors: dict[str, Any] = {}
        self._budget = MAX_EVENTS
        self._handlers: dict[type[Any], Callable[[Any], None]] = {
            yaml.ScalarEvent: self._scalar,
            yaml.MappingStartEvent: self._start,
            yaml.SequenceStartEvent: self._start,
            yaml.MappingEndEvent: self._end,
            yaml.SequenceEndEvent: self._end,
            yaml.AliasEvent: self._alias,
            yaml.DocumentStartEvent: self._document,
        }

    def take(self, event: Any) -> None:
        """Take the next event."""
        self._spend(1, event)
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(event)

    def _spend(self, amount: int, event: Any) -> None:
        self._budget -= amount
        if self._budget < 0:
            self._refuse(event, f"too many values for a manifest (more than {MAX_EVENTS})")

    def _refuse(self, event: Any, text: str) -> None:
        self.problems.add(_place(event.start_mark), text)
        raise _RefusedError

    def _document(self, _event: Any) -> None:
        self._anchors = {}

    def _scalar(self, event: Any) -> None:
        top = self._open[-1] if self._open else None
        if top is not None and isinstance(top.into, dict) and top.key is None:
            self._take_key(top, top.into, event)
            return
        value = self._scalar_value(event)
        if event.anchor:
            self._anchors[event.anchor] = value
        self._put(value, event)

    def _take_key(self, top: _Open, into: dict[str, Any], event: Any) -> None:
        key = event.value
        if key in into:
            self.problems.add(_place(event.start_mark), f"key {shown(key)} is given twice in one mapping")
        if event.anchor:
            self._anchors[event.anchor] = key
        top.key = key
        if not (key == _MERGE and event.implicit[0]):
            into[key] = None  # holds the place: a key given twice is seen even before its value

    def _scalar_value(self, event: Any) -> Any:
        if event.tag is None:
            return plain_scalar(event.value) if event.implicit[0] else event.value
        if event.tag in _TEXT_TAGS:
            return event.value
        if event.tag not in _PLAIN_TAGS:
            self._refuse(event, f"tag {shown(event.tag)} is not for manifests (expected plain values)")
        return plain_scalar(event.value)

    def _start(self, event: Any) -> None:
        if len(self._open) >= MAX_DEPTH:
            self._refuse(event, f"nested deeper than {MAX_DEPTH} levels")
        if event.tag not in _COLLECTION_TAGS:
            self._refuse(event, f"tag {shown(event.tag)} is not for manifests (expected plain values)")
        self._check_not_key(event)
        into: dict[str, Any] | list[Any] = {} if isinstance(event, yaml.MappingStartEvent) else []
        self._open.append(_Open(into, event.anchor))

    def _end(self, event: Any) -> None:
        closed = self._open.pop()
        if isinstance(closed.into, dict):
            for merged in closed.merges:
                self._spend(1 + len(merged), event)
                for key, value in merged.items():
                    closed.into.setdefault(key, value)
        if closed.anchor:
            self._anchors[closed.anchor] = closed.into
        self._put(closed.into, event)

    def _alias(self, event: Any) -> None:
        self._check_not_key(event)
        if event.anchor not in self._anchors:
            self._refuse(event, f"alias *{event.anchor[:60]} has no anchor before it")
        self._put(self._anchors[event.anchor], event)

    def _check_not_key(self, event: Any) -> None:
        top = self._open[-1] if self._open else None
        if top is not None and isinstance(top.into, dict) and top.key is None:
            self._refuse(event, "a key is a list, a mapping or an alias (expected text)")

    def _put(self, value: Any, event: Any) -> None:
        if not self._open:
            self.documents.append(value)
            return
        top = self._open[-1]
        if isinstance(top.into, list):
            top.into.append(value)
            return
        key, top.key = top.key, None
        if key == _MERGE and _MERGE not in top.into:
            self._merge(top, value, event)
        elif key is not None:
            top.into[key] = value

    def _merge(self, top: _Open, value: Any, event: Any) -> None:
        sources = value if isinstance(value, list) else [value]
        self._spend(len(sources), event)
        if not all(isinstance(source, dict) for source in sources):
            self._refuse(event, f"{_MERGE} merges mappings only")
        top.merges.extend(sources)
