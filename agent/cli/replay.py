"""`numalet replay`: recorded decisions, decided again."""

from __future__ import annotations

import gzip
import json
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click

from agent.errors import NumaletError
from agent.replay.cases import answer, mismatches

SHOWN_CASES: Final = 3
SHOWN_DIFFERENCES: Final = 8
GZIP_MAGIC: Final = b"\x1f\x8b"

Json = dict[str, Any]


@click.command()
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Write each case's own answer there, one JSON object a line, in input order.",
)
def replay(files: tuple[Path, ...], output: Path | None) -> None:
    """Decide recorded cases again and compare with the recorded answers.

    FILES hold one JSON object a line, {"op", "in", "out"}, plain or gzip: CPU assignments (take),
    hint merges (merge), admission histories (admit), checkpoint files (checkpoint). A case without
    "out" is answered, not compared. Exit status 1 if any answer differs, 2 for a line that is no case.

    \b
    numalet replay history.jsonl.gz
    numalet replay history.jsonl --output answers.jsonl
    """
    if output and any(output.exists() and output.samefile(file) for file in files):
        raise click.UsageError(f"--output {output} would overwrite the recorded cases")
    tally = _Tally()
    with ExitStack() as stack:
        sink = stack.enter_context(output.open("w", encoding="utf-8")) if output else None
        for place, case in _cases(files):
            found = _answer(place, case)
            tally.count(place, case, found)
            if sink:
                sink.write(json.dumps(found, ensure_ascii=False) + "\n")
    tally.show()
    if tally.matched != tally.recorded:
        raise click.exceptions.Exit(1)


@dataclass(slots=True)
class _Tally:
    """How many cases had a recorded answer, how many matched it, and how the first others differ."""

    recorded: int = 0
    matched: int = 0
    answered: int = 0
    shown: list[str] = field(default_factory=list)

    def count(self, place: str, case: Json, found: Json) -> None:
        if "out" not in case:
            self.answered += 1
            return
        wrong = mismatches(case, found)
        self.recorded += 1
        self.matched += not wrong
        if wrong and len(self.shown) < SHOWN_CASES:
            more = len(wrong) - SHOWN_DIFFERENCES
            rest = [f"… and {more} more differences"] if more > 0 else []
            self.shown.append("\n  ".join([f"{place} ({case['op']}):", *wrong[:SHOWN_DIFFERENCES], *rest]))

    def show(self) -> None:
        for difference in self.shown:
            click.echo(difference)
        unrecorded = f", {self.answered} had no recorded answer" if self.answered else ""
        click.echo(f"{self.matched} of {self.recorded} cases matched{unrecorded}")


def _answer(place: str, case: Json) -> Json:
    try:
        return answer(case)
    except NumaletError as error:
        raise NumaletError(f"{place}: {error.message}", hint=error.hint) from error


def _cases(files: tuple[Path, ...]) -> Iterator[tuple[str, Json]]:
    for file in files:
        for place, line in _lines(file):
            if not line.isspace():
                yield place, _case(place, line)


def _case(place: str, line: bytes) -> Json:
    try:
        case = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise NumaletError(f"{place}: not JSON: {error}") from error
    if not isinstance(case, dict):
        raise NumaletError(f"{place}: not a JSON object")
    return case


def _lines(file: Path) -> Iterator[tuple[str, bytes]]:
    """The lines of a file, unpacked if need be, each with its place."""
    number = 0
    with file.open("rb") as raw, _progress(file) as advance_to:
        packed = raw.read(len(GZIP_MAGIC)) == GZIP_MAGIC
        raw.seek(0)
        lines: Iterable[bytes] = gzip.GzipFile(fileobj=raw) if packed else raw
        try:
            for line in lines:
                number += 1
                yield f"{file}:{number}", line
                advance_to(raw.tell())
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise NumaletError(f"{file}:{number + 1}: cannot be unpacked: {error}") from error


@contextmanager
def _progress(file: Path) -> Iterator[Callable[[int], None]]:
    """Show on a terminal's stderr how much of ``file`` is read; yields what to call with the offset."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    with click.progressbar(length=file.stat().st_size, label=file.name, file=sys.stderr) as bar:
        yield lambda offset: bar.update(offset - bar.pos)
