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

from agent.cli.recorded import bundle_option, unpacked
from agent.errors import NumaletError
from agent.explain.english import plural
from agent.replay.cases import MalformedCaseError, answer, mismatches

SHOWN_CASES: Final = 3
SHOWN_DIFFERENCES: Final = 8
GZIP_MAGIC: Final = b"\x1f\x8b"

Json = dict[str, Any]


@click.command()
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@bundle_option
@click.option(
    "--output",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Write each case's own answer there, one JSON object a line, in input order.",
)
def replay(files: tuple[Path, ...], bundle: Path | None, output: Path | None) -> None:
    """Decide recorded cases again and compare with the recorded answers.

    FILES hold one JSON object a line, {"op", "in", "out"}, plain or gzip: CPU assignments (take),
    hint merges (merge), admission histories (admit), checkpoint files (checkpoint). A case without
    "out" is answered, not compared. A line that is no case is named, and answered with {"error"}: the
    others are replayed all the same. Exit status 1 if any answer differs, 2 if any line is no case.

    With --bundle instead, the pods held on that node are decided again on it, empty, in the order they
    came. What differs may be due to pods that were there then and have gone, or to another machine.

    \b
    numalet replay history.jsonl.gz
    numalet replay history.jsonl --output answers.jsonl
    numalet replay --bundle node7.tar.gz
    """
    if bundle:
        if files or output:
            raise click.UsageError("--bundle goes with neither FILES nor --output")
        _replay_bundle(bundle)
        return
    if not files:
        raise click.UsageError("name FILES, or a --bundle")
    if output and any(output.exists() and output.samefile(file) for file in files):
        raise click.UsageError(f"--output {output} would overwrite the recorded cases")
    tally = _Tally()
    with ExitStack() as stack:
        sink = stack.enter_context(output.open("w", encoding="utf-8")) if output else None
        for place, line in _lines(files):
            found = _replayed(place, line, tally)
            if sink:
                sink.write(json.dumps(found, ensure_ascii=False) + "\n")
    tally.show()
    if tally.broken:
        raise click.exceptions.Exit(2)
    if tally.matched != tally.recorded:
        raise click.exceptions.Exit(1)


def _replay_bundle(bundle: Path) -> None:
    from agent.cli.replaynode import replayed  # noqa: PLC0415 - cases need none of it

    same, lines = replayed(unpacked(bundle))
    for line in lines:
        click.echo(line)
    click.echo(f"{same} of {plural(len(lines), 'pod')} decided as held")
    if same != len(lines):
        raise click.exceptions.Exit(1)


@dataclass(slots=True)
class _Tally:
    """How many cases had a recorded answer, how many matched it, and how the first others differ."""

    recorded: int = 0
    matched: int = 0
    answered: int = 0
    broken: int = 0
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
        broken = f", {self.broken} could not be read" if self.broken else ""
        click.echo(f"{self.matched} of {self.recorded} cases matched{unrecorded}{broken}")


def _replayed(place: str, line: bytes, tally: _Tally) -> Json:
    try:
        case = _case(line)
        found = answer(case)
    except MalformedCaseError as error:
        tally.broken += 1
        click.echo(f"numalet: {place}: {error.message}", err=True)
        return {"error": error.message}
    tally.count(place, case, found)
    return found


def _case(line: bytes) -> Json:
    try:
        case = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise MalformedCaseError(f"not JSON: {error}") from error
    if not isinstance(case, dict):
        raise MalformedCaseError("not a JSON object")
    return case


def _lines(files: tuple[Path, ...]) -> Iterator[tuple[str, bytes]]:
    for file in files:
        yield from ((place, line) for place, line in _lines_of(file) if not line.isspace())


def _lines_of(file: Path) -> Iterator[tuple[str, bytes]]:
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
