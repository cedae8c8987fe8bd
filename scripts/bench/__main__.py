"""Run the benchmarks: ``python -m scripts.bench [--only PATTERN] [--json FILE] [--compare FILE]``.

A run of all of them is recorded in ``build/bench.json``, and compared with the one recorded before.
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
from scripts.bench.registry import Benchmark, Times, all_benchmarks

_COLUMNS = ("benchmark", "unit", "median", "p99", "runs", "aim", "met", "before", "change", "what")
_LEFT = frozenset(("benchmark", "unit", "what"))
_ALL = "*"
_RECORDED = Path(__file__).resolve().parents[2] / "build" / "bench.json"


def main() -> None:
    """Measure what was asked for and print one table; nothing fails because it is slow."""
    options = _options()
    earlier = options.compare or (_RECORDED if _RECORDED.exists() else None)
    before = json.loads(earlier.read_text(encoding="utf-8")) if earlier else None
    wanted = [bench for bench in all_benchmarks() if fnmatch(bench.name, options.only)]
    if not wanted:
        sys.exit(f"no benchmark is called {options.only!r} (a shell pattern, such as 'merge.*')")
    results = _measured(wanted, options.seconds)
    aims = {bench.name: aim for bench in wanted if (aim := _aim(bench, results)) is not None}
    found = as_json(results.values(), aims)
    print("measured on", _where(found))
    if before is not None:
        print("before on  ", _where(before))
    print(_table(wanted, results, aims, before))
    if options.only == _ALL:
        _RECORDED.parent.mkdir(exist_ok=True)
        _write(_RECORDED, found)
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
            print(f"{bench.name} {_number(found.median)} {bench.unit}", file=sys.stderr, flush=True)
    _progress("")
    return results


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def _write(file: Path, found: Mapping[str, object]) -> None:
    file.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def _where(found: Mapping[str, Any]) -> str:
    machine = found["machine"]
    return f"{machine['cpu']}, {machine['system']}, Python {machine['python']}, commit {found['commit']}"


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
    met = "" if aim is None else "yes" if (result.p99 if bench.of_p99 else result.median) <= aim else "NO"
    return (
        bench.name,
        bench.unit,
        _number(result.median),
        _number(result.p99),
        str(result.runs),
        "" if aim is None else f"{_number(aim)}{' p99' if bench.of_p99 else ''}",
        met,
        "" if old is None else _number(old),
        "" if not old else f"{result.median / old - 1:+.0%}",
        bench.what,
    )


def _number(value: float) -> str:
    return f"{value:.3f}" if value < 10 else f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


if __name__ == "__main__":
    main()
