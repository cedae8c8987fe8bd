"""Whatever was done to a file: it is read, or refused with a StateError, never anything else."""

from __future__ import annotations

import json
from random import Random
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.checkpoint.convert import CPU_VERSIONS, MEMORY_VERSIONS, convert_cpu, convert_memory
from agent.checkpoint.reading import CpuFile, MemoryFile, read_stored
from agent.cli.statefiles import Stored
from agent.cli.statehost import Host, findings_within
from agent.cli.stateview import stored_json, stored_text
from agent.config import Config
from agent.errors import StateError
from tests.data.state.generate import FOLDER

FILES: Final = [json.loads(path.read_bytes()) for path in sorted(FOLDER.glob("*/*_state"))]
VALUES: Final = [
    None,
    0,
    7,
    -1,
    1.5,
    True,
    "",
    [],
    {},
    "0-3",
    "x",
    [9],
    {"a": None},
    {"a": "1"},
    1 << 70,
    "9" * 30,
]


def damaged(value: Any, random: Random) -> Any:
    if random.random() < 0.06:
        return random.choice(VALUES)
    if isinstance(value, dict):
        left = {name: damaged(held, random) for name, held in value.items() if random.random() > 0.03}
        if random.random() < 0.05:
            left[random.choice(["new", "data", "dataChecksum", "podEntries", "9"])] = random.choice(VALUES)
        return left
    if isinstance(value, list):
        return [damaged(item, random) for item in value]
    if isinstance(value, str) and value.startswith("{") and random.random() < 0.5:
        return json.dumps(damaged(json.loads(value), random))
    return value


@pytest.fixture(scope="module")
def host() -> Host:
    return Host.of(FOLDER / "machine.json.xz", Config())


@given(st.integers(min_value=0, max_value=1 << 32))
@settings(max_examples=300, deadline=None)
def test_no_damage_makes_it_fall_over(host: Host, seed: int) -> None:
    random = Random(seed)  # noqa: S311 - no secret
    raw = json.dumps(damaged(random.choice(FILES), random)).encode()
    try:
        file = read_stored(raw)
        stored = Stored(files={"file": file}, numalets=False)
        assert stored_text(stored)
        assert json.dumps(stored_json(stored))
        list(findings_within(stored))
        list(host.findings(stored))
        if isinstance(file, CpuFile):
            for version in CPU_VERSIONS:
                convert_cpu(file, version)
        if isinstance(file, MemoryFile):
            for version in MEMORY_VERSIONS:
                convert_memory(file, version)
    except StateError:
        pass


def test_a_null_among_the_entries_of_a_damaged_v1_file_is_no_cpu() -> None:
    raw = b'{"policyName":"static","defaultCpuSet":"0","entries":{"c1":"1","c2":null},"checksum":5}'
    with pytest.raises(StateError):
        read_stored(raw.replace(b'"1"', b'"x"'))
    assert "checkpoint is corrupted" in getattr(read_stored(raw), "refusal", "")
