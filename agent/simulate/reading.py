"""Reading a document of nested mappings: every problem is noted with its place, and reading goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

from agent.config.fields import near, problems_of
from agent.config.load import Problem
from agent.domain.quantity import parse_quantity
from agent.manifest.problem import child, shown

T = TypeVar("T")
MISSING: Final[Any] = object()


class Section:
    """One mapping of the document; ``known`` are its fields, any other one is a problem."""

    def __init__(self, value: Any, place: str, problems: list[Problem], known: tuple[str, ...]) -> None:
        self.place = place
        self.problems = problems
        self.known = known
        self.is_map = isinstance(value, Mapping)
        self.values: Mapping[str, Any] = value if isinstance(value, Mapping) else {}
        if not self.is_map:
            self.add("", f"{shown(value)} is not a map of {', '.join(known)}")
        problems += [
            (child(place, key), f"unknown field{near(key, known)}") for key in self.values if key not in known
        ]

    def add(self, below: str, text: str) -> None:
        """Note a problem."""
        self.problems.append((self.place + below, text))

    def take(self, key: str, read: Callable[[Any], T], default: T = MISSING) -> T:
        """The field's value; where it cannot be read or is missing that is a problem, and something stands in."""
        value = self.values.get(key)
        if value is None:
            if default is MISSING and self.is_map:
                self.add("", f"{key} is missing")
            return default
        try:
            return read(value)
        except ValueError as error:
            for place, text in problems_of(error):
                self.add(f".{key}{place}", text)
            return default

    def part(self, key: str, *known: str) -> Section:
        """The mapping in a field that has to be there."""
        if key not in self.values:
            self.add("", f"{key} is missing")
            return Section({}, f"{self.place}.{key}", [], known)
        return Section(self.values.get(key), f"{self.place}.{key}", self.problems, known)

    def parts(self, key: str, *known: str) -> Iterator[Section]:
        """The mappings in a list, of which there has to be one; no two of the same name."""
        items = self.values.get(key)
        if not isinstance(items, list) or not items:
            if self.is_map:
                self.add("", f"{key}: expected a list of at least one")
            return
        names: dict[Any, str] = {}
        for index, item in enumerate(items):
            section = Section(item, f"{self.place}.{key}[{index}]", self.problems, known)
            name = section.values.get("name")
            first = names.setdefault(str(name), section.place)
            if first != section.place and name is not None:
                section.add(".name", f"{shown(name)} is already the name of {first}")
            if section.is_map:
                yield section


def whole(least: int, most: int) -> Callable[[Any], int]:
    """A reader of whole numbers."""

    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(f"{shown(value)} is not a whole number from {least} to {most}")
        return value

    return read


def positive(value: Any) -> float:
    """A number above zero."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise ValueError(f"{shown(value)} is not a number above zero")
    return float(value)


def size(value: Any) -> int:
    """A quantity of bytes."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"{shown(value)} is not a quantity")
    amount = parse_quantity(str(value)).value
    if amount < 0:
        raise ValueError(f"{shown(value)} is negative")
    return amount
