"""The runnable examples of the documentation: files that a page shows, and commands with their output.

A block of ``yaml`` whose first line is ``# NAME.yaml`` is a file that the reader has then. In a block of
``console`` each line after ``$`` is run, in the root of the project; what follows is what it prints, where a
line ``...`` stands for any lines.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"# ([\w-]+\.yaml)\n")
ANY = "..."


@dataclass(frozen=True, slots=True)
class File:
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Run:
    """A command, the line of the page it is on, and what the page says it prints."""

    line: int
    words: tuple[str, ...]
    expected: str


@dataclass(slots=True)
class Shell:
    """Runs `numalet` by ``invoke``, which returns the exit status and the text; knows ``echo $?``."""

    invoke: Callable[..., tuple[int, str]]
    status: int = 0
    seen: list[str] = field(default_factory=list)

    def run(self, words: tuple[str, ...]) -> str:
        if words == ("echo", "$?"):
            return f"{self.status}\n"
        assert words[0] == "numalet", f"only numalet is run, not {words[0]}"
        self.status, printed = self.invoke(*words[1:])
        return printed


def steps(page: str) -> Iterator[File | Run]:
    """The files and commands of a page, in order."""
    for block in _BLOCK.finditer(page):
        kind, text = block.groups()
        if kind == "yaml" and (named := _FILE.match(text)):
            yield File(named[1], text)
        elif kind == "console":
            yield from _runs(text, page.count("\n", 0, block.start(2)) + 1)


def _runs(text: str, first: int) -> Iterator[Run]:
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("$ ")]
    assert starts[:1] == [0], "a block of console begins with a command"
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        expected = "".join(f"{line}\n" for line in lines[start + 1 : end])
        yield Run(first + start, tuple(shlex.split(lines[start][2:])), expected)


def as_printed(expected: str, printed: str) -> bool:
    """Whether the page tells the truth, blanks at the ends of lines and empty last lines aside."""
    return _agree(_lines(expected), _lines(printed))


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]


def _agree(expected: list[str], printed: list[str]) -> bool:
    parts: list[list[str]] = [[]]
    for line in expected:
        if line == ANY:
            parts.append([])
        else:
            parts[-1].append(line)
    first, *others = parts
    if not others:
        return first == printed
    last = others.pop()
    end = len(printed) - len(last)
    if printed[: len(first)] != first or end < len(first) or printed[end:] != last:
        return False
    at = len(first)
    for part in others:
        at = next(
            (i + len(part) for i in range(at, end - len(part) + 1) if printed[i : i + len(part)] == part), -1
        )
        if at < 0:
            return False
    return True


def links(page: Path) -> list[str]:
    """The places in the project that a page links to, relative to it."""
    return [link for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()) if "://" not in link]


def leads_somewhere(page: Path, link: str) -> bool:
    """Whether there is such a file and, where one is named, such a heading in it."""
    name, _, heading = link.partition("#")
    target = page.parent / name if name else page
    return target.exists() and (not heading or heading in _headings(target.read_text()))


def _headings(text: str) -> set[str]:
    """The headings as GitHub names them in a link."""
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
