"""Fill in the tables of ``docs/performance.md`` from recorded runs: ``python -m scripts.bench.report [FILE...]``.

FILE is ``build/bench.json`` unless given; of several runs each row is of that with the lowest median. A table is what
stands between ``<!-- figures: SUBJECT... -->`` and ``<!-- end -->``; the words around it are a person's.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from scripts.bench.__main__ import RECORDED, met, number, told_aim, where
from scripts.bench.registry import Benchmark, all_benchmarks

_DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "performance.md"
_TABLE: Final = re.compile(r"(<!-- figures: ([a-z ]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_MACHINE: Final = "machine"
_HEAD: Final = "| | what | | least | median | p99 | aim | met |\n|---|---|---|---:|---:|---:|---:|---|\n"


def filled(document: str, runs: Sequence[Mapping[str, Any]]) -> str:
    """The document with the figures of these runs. Raises ValueError for a subject of which nothing was run."""
    rows = sorted((row for run in runs for row in run["results"]), key=itemgetter("median"), reverse=True)
    results = {row["name"]: row for row in rows}
    known = {bench.name: bench for bench in all_benchmarks()}

    def table(match: re.Match[str]) -> str:
        opening, subjects, end = match.groups()
        if subjects == _MACHINE:
            # The pace is of each run: their rows are mixed.
            places = {where({**run, "pace_ms": ""}).rpartition(",")[0] for run in runs}
            paces = sorted(run["pace_ms"] for run in runs)
            told = "".join(f"* {place}\n" for place in sorted(places))
            return f"{opening}{told}* pace {paces[0]} to {paces[-1]} ms\n{end}"
        rows = [
            _row(bench, results[name])
            for name, bench in known.items()
            if name.partition(".")[0] in subjects.split() and name in results
        ]
        if not rows:
            raise ValueError(f"{subjects}: nothing of it was run")
        return f"{opening}{_HEAD}{''.join(rows)}{end}"

    return _TABLE.sub(table, document)


def _row(bench: Benchmark, row: Mapping[str, Any]) -> str:
    return f"| {' | '.join(_cells(bench, row))} |\n"


def _cells(bench: Benchmark, row: Mapping[str, Any]) -> Iterator[str]:
    yield f"`{bench.name}`"
    yield bench.what.rstrip(".")
    yield row["unit"]
    once = row["runs"] == 1
    yield "" if once else number(row["least"])
    yield number(row["median"])
    yield "" if once else number(row["p99"])
    yield told_aim(bench, row["aim"])
    verdict = met(bench, row["aim"], median=row["median"], p99=row["p99"])
    yield f"**{verdict.lower()}**" if verdict == "NO" else verdict


def main(arguments: Sequence[str] = tuple(sys.argv[1:])) -> None:
    """Write the document anew."""
    runs = [_run(Path(argument)) for argument in arguments or (str(RECORDED),)]
    try:
        document = filled(_DOCUMENT.read_text(encoding="utf-8"), runs)
    except ValueError as error:
        sys.exit(str(error))
    _DOCUMENT.write_text(document, encoding="utf-8")


def _run(file: Path) -> Mapping[str, Any]:
    """A recorded run; ends the program where the file is none."""
    try:
        found: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        sys.exit(f"{file}: {error} (make one with: make bench, or scripts.bench --json {file})")
    if not isinstance(found, dict) or not {"machine", "commit", "pace_ms", "results"} <= found.keys():
        sys.exit(f"{file}: not a record of this version's benchmarks (make one with: make bench)")
    return found


if __name__ == "__main__":
    main()
