"""The gate to sysfs: real files and recorded ones answer alike."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from agent.sysfs.discovery import discover
from agent.sysfs.reader import ABSENT, HostSysfs, RecordedSysfs, SysfsReader
from tests.sysfs.machines import discovered, recording

FILES = {"a/cpu0/online": "1\n", "a/cpu1/list": " 0-3\n\0\0", "a/odd": "\xff", "a/empty": "\n"}


def _written(root: Path, files: dict[str, str]) -> HostSysfs:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(text.encode("latin-1"))
    return HostSysfs(root)


@pytest.fixture(params=["host", "recorded"])
def reader(request: pytest.FixtureRequest, tmp_path: Path) -> SysfsReader:
    return _written(tmp_path, FILES) if request.param == "host" else RecordedSysfs("r", FILES)


def test_a_text_comes_without_padding(reader: SysfsReader) -> None:
    assert [reader.read(path) for path in FILES] == ["1", "0-3", "\xff", ""]


def test_what_is_not_a_file_is_absent(reader: SysfsReader) -> None:
    assert reader.read("a/none") is ABSENT
    assert reader.read("a/cpu0") is ABSENT
    assert reader.read("a/odd/below") is ABSENT


def test_a_directory_lists_its_names_in_order(reader: SysfsReader) -> None:
    assert list(reader.list("a")) == ["cpu0", "cpu1", "empty", "odd"]
    assert list(reader.list("a/cpu1")) == ["list"]
    assert list(reader.list("a/none")) == []
    assert list(reader.list("a/odd")) == []


@pytest.mark.parametrize("name", ["20em64t-hybrid-1p6c2t+2ca4co1t", "16em64t-4s2c2t-offlines"])
def test_a_machine_in_real_files_is_the_machine_in_the_recording(name: str, tmp_path: Path) -> None:
    assert discover(_written(tmp_path, dict(recording(name).files))) == discovered(name)


def test_the_running_host_is_discovered() -> None:
    topology = discover(HostSysfs())
    # The scheduler may keep this process off some CPUs, never on one that is not online.
    assert os.sched_getaffinity(0) <= set(topology.online)
    assert len(topology.cpus) == psutil.cpu_count(logical=True)
    assert sum(map(len, topology.cores.values())) == len(topology.cpus)
    assert sum(len(node.cpus) for node in topology.nodes) <= len(topology.cpus)
    assert sum(node.memory for node in topology.nodes) > 0
