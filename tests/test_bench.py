"""What the benchmarks say of themselves: that slow moments do not count, and that no figure is missing from the document."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import pytest

from scripts.bench import pace as pace_module
from scripts.bench import report
from scripts.bench.pace import Pace
from scripts.bench.registry import all_benchmarks

DOCUMENT = Path(__file__).parents[1] / "docs" / "performance.md"


class Told(Pace):
    """A pace whose moments are told beforehand: two looks at it make a group of samples."""

    def __init__(self, moments: Iterator[float]) -> None:
        self._moments = moments
        self._taken = [1.0] * 100

    def now(self) -> float:
        """See `Pace.now`."""
        return next(self._moments)


@pytest.fixture(autouse=True)
def _one_sample_is_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace_module, "_GROUP_SECONDS", 0.0)


def test_samples_beside_a_slow_moment_do_not_count() -> None:
    values = iter(range(100))
    # quiet, slow before, slow after, quiet, ...
    pace = Told(cycle([1.0, 1.0, 2.0, 1.0, 1.0, 2.0]))
    found = pace.sampled(lambda: float(next(values)), lambda quiet: len(quiet) == 6)
    assert found.values == (0.0, 3.0, 6.0, 9.0, 12.0, 15.0)
    assert found.quiet == pytest.approx(6 / 16)


def test_where_no_moment_is_quiet_all_samples_count_and_it_is_told() -> None:
    pace = Told(cycle([2.0]))
    found = pace.sampled(lambda: 7.0, lambda quiet: len(quiet) == 6, patience=0.0)
    assert (set(found.values), found.quiet) == ({7.0}, 0.0)


def test_each_benchmark_has_its_row_in_the_document() -> None:
    rows = re.findall(r"^\| `([a-z_.0-9]+)` \|", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(rows) == sorted(bench.name for bench in all_benchmarks())


def test_of_several_runs_a_row_is_the_quickest() -> None:
    def run(median: float) -> dict[str, object]:
        row = {
            "name": "decide.beside_10_pods", "unit": "ms", "least": median, "median": median,
            "p99": median, "runs": 100, "quiet": 1.0, "aim": 1.0,
        }  # fmt: skip
        machine = {"cpu": "a CPU", "system": "a system", "python": "3"}
        return {"machine": machine, "commit": "1", "pace_ms": median, "results": [row]}

    document = (
        "<!-- figures: machine -->\n<!-- end -->\n<!-- figures: decide -->\nto be replaced\n<!-- end -->\n"
    )
    filled = report.filled(document, [run(0.5), run(0.25), run(0.75)])
    assert "| 0.250 | 0.250 | 0.250 | 1.000 | yes |" in filled
    assert "to be replaced" not in filled
    assert "* a CPU, a system, Python 3, commit 1\n* pace 0.25 to 0.75 ms\n" in filled


@pytest.mark.parametrize("text", ["{", "[]", '{"results": []}'])
def test_what_is_no_record_is_refused_by_name(tmp_path: Path, text: str) -> None:
    file = tmp_path / "bench.json"
    file.write_text(text)
    with pytest.raises(SystemExit, match=r"bench\.json: .*make bench"):
        report.main([str(file)])


def test_a_record_without_a_subject_of_the_document_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    machine = {"cpu": "a CPU", "system": "a system", "python": "3"}
    file.write_text(json.dumps({"machine": machine, "commit": "1", "pace_ms": 1, "results": []}))
    before = DOCUMENT.read_bytes()
    with pytest.raises(SystemExit, match="nothing of it was run"):
        report.main([str(file)])
    assert DOCUMENT.read_bytes() == before
