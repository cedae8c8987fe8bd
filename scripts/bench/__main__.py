"""Run the benchmarks: ``python scripts/bench [--only PATTERN] [--json FILE] [--compare FILE]``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

# Started as a folder, Python looks for modules here and not in the repository.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts.bench.measure import Result, as_json, measure
from scripts.bench.registry import Benchmark, Times, all_benchmarks

_COLUMNS = ("benchmark", "median ms", "p99 ms", "runs", "aim ms", "met", "before", "change", "what")
_LEFT = frozenset(("benchmark", "what"))


def main() -> None:
    """Time what was asked for and print one table; CPU time; nothing fails because it is slow."""
    options = _options()
    before = json.loads(options.compare.read_text(encoding="utf-8")) if options.compare else None
    wanted = [bench for bench in all_benchmarks() if fnmatch(bench.name, options.only)]
    if not wanted:
        sys.exit(f"no benchmark is called {options.only!r} (a shell pattern, such as 'merge.*')")
    results = {bench.name: measure(bench, options.seconds) for bench in wanted}
    aims = {bench.name: aim for bench in wanted if (aim := _aim_ms(bench, results)) is not None}
    found = as_json(results.values(), aims)
    print("CPU time on", _where(found))
    if before is not None:
        print("before on  ", _where(before))
    print(_table(results.values(), aims, before))
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--only", default="*", metavar="PATTERN", help="shell pattern of names")
    parser.add_argument("--seconds", type=float, default=1.0, help="time for each benchmark (1)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results there")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="an earlier --json to compare with")
    return parser.parse_args()


def _where(found: Mapping[str, Any]) -> str:
    machine = found["machine"]
    return f"{machine['cpu']}, {machine['system']}, Python {machine['python']}, commit {found['commit']}"


def _aim_ms(bench: Benchmark, results: Mapping[str, Result]) -> float | None:
    """The aim in milliseconds; None where there is none or what it refers to was not run."""
    if not isinstance(bench.aim_ms, Times):
        return bench.aim_ms
    other = results.get(bench.aim_ms.name)
    return None if other is None else round(bench.aim_ms.factor * other.median_ms, 4)


def _table(results: Iterable[Result], aims: Mapping[str, float], before: Mapping[str, Any] | None) -> str:
    earlier = {row["name"]: row["median_ms"] for row in before["results"]} if before else {}
    rows = [
        dict(zip(_COLUMNS, _cells(result, aims.get(result.name), earlier.get(result.name)), strict=True))
        for result in results
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


def _cells(result: Result, aim_ms: float | None, old: float | None) -> tuple[str, ...]:
    met = "" if aim_ms is None else "yes" if result.median_ms <= aim_ms else "NO"
    return (
        result.name,
        f"{result.median_ms:.3f}",
        f"{result.p99_ms:.3f}",
        str(result.runs),
        "" if aim_ms is None else f"{aim_ms:.3g}",
        met,
        "" if old is None else f"{old:.3f}",
        "" if not old else f"{result.median_ms / old - 1:+.0%}",
        result.what,
    )


if __name__ == "__main__":
    main()
