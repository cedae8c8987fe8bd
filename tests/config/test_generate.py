"""Schema, reference and default file are those of the table, and say what the loader does."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from agent.config import Config, load_config
from agent.config.generate import default_file, json_schema
from agent.config.kubelet import from_kubelet
from agent.config.table import FIELDS, dump
from agent.manifest import decode
from tests.config.test_load import EVERYTHING

ROOT = Path(__file__).parents[2]


def schema_problems(document: Any) -> list[str]:
    return [error.message for error in jsonschema.Draft202012Validator(json_schema()).iter_errors(document)]


def document(text: str) -> dict[str, Any]:
    (read,) = decode(text.encode(), "config.yaml")
    return read


def test_what_is_checked_in_is_what_the_table_says(tmp_path: Path) -> None:
    subprocess.run([ROOT / "scripts/gen-config-docs", tmp_path], check=True)
    made = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert len(made) == 3
    for file in made:
        assert file.read_text() == (ROOT / file.relative_to(tmp_path)).read_text(), "run: make docs"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param((ROOT / "systemd/config.yaml").read_text(), id="shipped"),
        pytest.param(EVERYTHING, id="every key"),
    ],
)
def test_the_schema_accepts_what_the_loader_reads(text: str) -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())
    assert schema_problems(document(text)) == []
    assert schema_problems(dump(load_config(text.encode(), "config.yaml"))) == []


def test_the_schema_accepts_what_was_taken_over_from_a_kubelet() -> None:
    taken = from_kubelet({"cpuManagerPolicy": "static", "evictionHard": {"memory.available": "5%"}})
    assert schema_problems(dict(taken.document)) == []


@pytest.mark.parametrize(
    "text",
    [
        "cpuPolicy: static",
        "cpuManagerPolicy: Static",
        "fileCheckFrequency: 10",
        "stateDir: state",
        "featureGates: {Fancy: true}",
        "reservedMemory: [{numaNode: 0}]",
        "apiVersion: numalet/v2",
    ],
)
def test_the_schema_refuses_what_the_loader_refuses(text: str) -> None:
    assert schema_problems(document(text))


def test_every_example_of_the_default_file_can_be_uncommented() -> None:
    lines = default_file().splitlines()
    keys = [match[1] for line in lines if (match := re.match(r"#?(\w+):", line)) and match[1] in FIELDS]
    stated = [line.removeprefix("#") for line in lines if re.match(r"#\w+:", line)]
    assert keys == list(FIELDS)
    load_config("\n".join(stated).encode(), "config.yaml")
    unsaid = [line for line in stated if not FIELDS[line.partition(":")[0]].example]
    assert load_config("\n".join(unsaid).encode(), "config.yaml") == Config()
