"""Run the benchmarks: ``python -m scripts.bench [--only PATTERN] [--json FILE] [--compare FILE]``.

A run of all of them is recorded in ``build/bench.json``, and compared with the one recorded before. Samples taken while
others slow the machine down are left out: "quiet" is the part that was not, "pace" the time of a fixed piece of work.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

# Started as a folder, Python looks for modules here and not in the repository.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts.bench.measure import Result, as_json, measure
from scripts.bench.pace import pin
from scripts.bench.registry import Benchmark, Times, all_benchmarks

_COLUMNS = (
    "benchmark",
    "unit",
    "least",
    "median",
    "p99",
    "runs",
    "quiet",
    "aim",
    "met",
    "before",
    "change",
    "what",
)
_LEFT = frozenset(("benchmark", "unit", "what"))
_ALL = "*"
RECORDED = Path(__file__).resolve().parents[2] / "build" / "bench.json"


def main() -> None:
    """Measure what was asked for and print one table; nothing fails because it is slow."""
    options = _options()
    earlier = options.compare or (RECORDED if RECORDED.exists() else None)
    before = json.loads(earlier.read_text(encoding="utf-8")) if earlier else None
    wanted = [bench for bench in all_benchmarks() if fnmatch(bench.name, options.only)]
    if not wanted:
        sys.exit(f"no benchmark is called {options.only!r} (a shell pattern, such as 'merge.*')")
    pin()
    results = _measured(wanted, options.seconds)
    aims = {bench.name: aim for bench in wanted if (aim := _aim(bench, results)) is not None}
    found = as_json(results.values(), aims)
    print("measured on", where(found))
    if before is not None:
        print("before on  ", where(before))
    print(_table(wanted, results, aims, before))
    if options.only == _ALL:
        RECORDED.parent.mkdir(exist_ok=True)
        _write(RECORDED, found)
    if options.json:
        _write(options.json, found)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--only", default=_ALL, metavar="PATTERN", help="shell pattern of names")
    parser.add_argument("--seconds", type=float, default=1.0, help="time for each benchmark (1)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results there")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="an earlier --json to compare with")
    return parser.parse_args()


def _measured(wanted: Sequence[Benchmark], seconds: float) -> Mapping[str, Result]:
    results: dict[str, Result] = {}
    for bench in wanted:
        _progress(f"{len(results) + 1}/{len(wanted)} {bench.name}")
        found = results[bench.name] = measure(bench, seconds)
        if not sys.stderr.isatty():  # a log: what is done survives a run that is cut off
            print(f"{bench.name} {number(found.median)} {bench.unit}", file=sys.stderr, flush=True)
    _progress("")
    return results


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def _write(file: Path, found: Mapping[str, object]) -> None:
    file.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def where(found: Mapping[str, Any]) -> str:
    """The machine, the commit, and how fast the machine was."""
    machine = found["machine"]
    known = f"{machine['cpu']}, {machine['system']}, Python {machine['python']}, commit {found['commit']}"
    return f"{known}, pace {found['pace_ms']} ms" if "pace_ms" in found else known


def _aim(bench: Benchmark, results: Mapping[str, Result]) -> float | None:
    """The aim in the benchmark's unit; None where there is none or what it refers to was not run."""
    if not isinstance(bench.aim, Times):
        return bench.aim
    other = results.get(bench.aim.name)
    return None if other is None else round(bench.aim.factor * other.median, 4)


def _table(
    wanted: Iterable[Benchmark],
    results: Mapping[str, Result],
    aims: Mapping[str, float],
    before: Mapping[str, Any] | None,
) -> str:
    earlier = {row["name"]: row["median"] for row in before["results"]} if before else {}
    rows = [
        dict(zip(_COLUMNS, _cells(bench, results[bench.name], aims, earlier), strict=True))
        for bench in wanted
    ]
    columns = [name for name in _COLUMNS if before is not None or name not in {"before", "change"}]
    widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in columns}
    return "\n".join(
        "  ".join(
            row[name].ljust(widths[name]) if name in _LEFT else row[name].rjust(widths[name])
            for name in columns
        ).rstrip()
        for row in ({name: name for name in columns}, *rows)
    )


def _cells(
    bench: Benchmark, result: Result, aims: Mapping[str, float], earlier: Mapping[str, float]
) -> tuple[str, ...]:
    aim, old = aims.get(bench.name), earlier.get(bench.name)
    return (
        bench.name,
        bench.unit,
        number(result.least),
        number(result.median),
        number(result.p99),
        str(result.runs),
        "" if result.quiet is None else f"{result.quiet:.0%}",
        told_aim(bench, aim),
        met(bench, aim, median=result.median, p99=result.p99),
        "" if old is None else number(old),
        "" if not old else f"{result.median / old - 1:+.0%}",
        bench.what,
    )


def told_aim(bench: Benchmark, aim: float | None) -> str:
    """The aim in words; empty where there is none."""
    return "" if aim is None else f"{number(aim)}{' p99' if bench.of_p99 else ''}"


def met(bench: Benchmark, aim: float | None, *, median: float, p99: float) -> str:
    """Whether a figure is within its aim: ``yes``, ``NO``, or nothing where there is none."""
    return "" if aim is None else "yes" if (p99 if bench.of_p99 else median) <= aim else "NO"


def number(value: float) -> str:
    """A figure with as many digits as mean something."""
    return f"{value:.3f}" if value < 10 else f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


if __name__ == "__main__":
    main()
