"""`numalet replay`, run as a user runs it."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.vectors import CASES, cases, path_of

REPOSITORY = Path(__file__).parents[2]


def replay(*arguments: str | Path, hash_seed: str = "random") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "agent", "replay", *map(str, arguments)]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False
    )


def first(name: str, count: int) -> list[dict[str, Any]]:
    return [case for _, case in islice(cases(name), count)]


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_matching_cases_of_every_kind_plain_and_packed(tmp_path: Path) -> None:
    plain = written(tmp_path / "plain.jsonl", [case for name in CASES for case in first(name, 5)])
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    done = replay(plain, packed, path_of("checkpoint"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "350 of 350 cases matched\n", "")


def test_a_different_answer_is_shown_and_fails(tmp_path: Path) -> None:
    rows = [case for case in first("merge", 20) if "admit" in case["out"]][:6]
    for row in rows[1:]:
        row["out"]["admit"] = not row["out"]["admit"]
    done = replay(written(tmp_path / "merge.jsonl", rows))
    flipped = [(not row["out"]["admit"], row["out"]["admit"]) for row in rows]
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        *(
            line
            for number in (2, 3, 4)
            for line in (
                f"{tmp_path}/merge.jsonl:{number} (merge):",
                f"  out.admit: expected {flipped[number - 1][1]}, found {flipped[number - 1][0]}",
            )
        ),
        "1 of 6 cases matched",
    ]


def test_the_answers_are_written_in_input_order_without_a_look_at_the_recorded_ones(tmp_path: Path) -> None:
    rows = [case for name in CASES for case in first(name, 5)]
    bare = [{"op": row["op"], "in": row["in"]} for row in rows]
    misleading = [row | {"out": {"error": "no"}} for row in bare if row["op"] != "checkpoint"]
    answers = tmp_path / "answers.jsonl"
    done = replay(
        written(tmp_path / "bare.jsonl", bare),
        written(tmp_path / "wrong.jsonl", misleading),
        "--output",
        answers,
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.splitlines()[-1] == f"0 of {len(misleading)} cases matched, 25 had no recorded answer"
    expected = [row["out"] for row in [*rows, *(row for row in rows if row["op"] != "checkpoint")]]
    assert [json.loads(line) for line in answers.read_text().splitlines()] == expected


def test_every_run_writes_the_same_bytes(tmp_path: Path) -> None:
    file = written(tmp_path / "cases.jsonl", [case for name in CASES for case in first(name, 100)])
    answers = [tmp_path / "1", tmp_path / "2"]
    for output in answers:
        assert replay(file, "--output", output, hash_seed=output.name).returncode == 0
    assert answers[0].read_bytes() == answers[1].read_bytes()


def test_cases_without_a_recorded_answer_are_no_failure(tmp_path: Path) -> None:
    rows = [{"op": "take", "in": row["in"]} for row in first("take", 2)]
    done = replay(written(tmp_path / "take.jsonl", rows))
    assert (done.returncode, done.stdout) == (0, "0 of 0 cases matched, 2 had no recorded answer\n")


GOOD = json.dumps(first("take", 1)[0])


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "not JSON"),
        ('"\udcff"', "not JSON"),
        ("[1]", "not a JSON object"),
        ('{"op": "guess", "in": {}}', 'op "guess" is not one of take, merge, admit, checkpoint'),
        ('{"op": "take"}', '"in" is missing'),
        ('{"op": "take", "in": {"machine": {"cpus": [[0]], "nodes": []}}}', '"in" does not have the form'),
        ('{"op": "admit", "in": {"machine": {"cpus": [], "nodes": []}, "config": [], "steps": []}}', '"in"'),
        ('{"op": "merge", "in": 7}', '"in" does not have the form of op "merge"'),
    ],
    ids=["no JSON", "no UTF-8", "a list", "unknown op", "no in", "short row", "list for object", "number"],
)
def test_a_line_that_is_no_case_is_named_and_the_others_are_replayed(
    tmp_path: Path, line: str, complaint: str
) -> None:
    file, answers = tmp_path / "cases.jsonl", tmp_path / "answers.jsonl"
    file.write_text(f"{GOOD}\n\n{line}\n{GOOD}\n", errors="surrogateescape")
    done = replay(file, "--output", answers)
    assert done.returncode == 2
    assert done.stderr.startswith(f"numalet: {file}:3: ")
    assert complaint in done.stderr
    assert done.stdout == "2 of 2 cases matched, 1 could not be read\n"
    first_answer, error, last_answer = map(json.loads, answers.read_text().splitlines())
    assert first_answer == last_answer == json.loads(GOOD)["out"]
    assert complaint in error["error"]


def test_a_packed_file_cut_short_is_named(tmp_path: Path) -> None:
    file = tmp_path / "cases.jsonl.gz"
    file.write_bytes(gzip.compress(f"{GOOD}\n".encode())[:-12])
    done = replay(file)
    assert done.returncode == 2
    assert done.stderr.startswith(f"numalet: {file}:")
    assert "cannot be unpacked" in done.stderr


def test_the_answers_never_overwrite_the_cases(tmp_path: Path) -> None:
    file = tmp_path / "cases.jsonl"
    file.write_text(f"{GOOD}\n")
    done = replay(file, "--output", file)
    assert done.returncode == 2
    assert "would overwrite the recorded cases" in done.stderr
    assert file.read_text() == f"{GOOD}\n"
