"""Recordings: what is recorded is discovered alike, and a bad file names its fault."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest

from agent.errors import ConfigError
from agent.sysfs.discovery import discover
from agent.sysfs.reader import HostSysfs, RecordedSysfs
from agent.sysfs.recorded import load_recording, record, save_recording
from tests.sysfs.machines import NAMES, discovered, recording


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_of_a_machine_is_discovered_alike(name: str) -> None:
    again = record(recording(name), name)
    assert discover(again) == discovered(name)
    assert len(again.files) <= len(recording(name).files)


def test_a_recording_keeps_cpus_that_are_only_folders(tmp_path: Path) -> None:
    for cpu in (0, 1, 5):
        (tmp_path / f"sys/devices/system/cpu/cpu{cpu}").mkdir(parents=True)
    topology = discover(HostSysfs(tmp_path))
    assert str(topology.online) == "0-1,5"
    assert discover(record(HostSysfs(tmp_path), "folders")) == topology


@pytest.mark.parametrize("file", ["host.json", "host.json.xz"])
def test_the_running_host_is_saved_and_loaded(file: str, tmp_path: Path) -> None:
    saved = record(HostSysfs(), "host")
    save_recording(saved, tmp_path / file)
    loaded = load_recording(tmp_path / file)
    assert (loaded.name, loaded.files) == (saved.name, saved.files)
    assert discover(loaded) == discover(HostSysfs())


def test_the_same_machine_is_saved_as_the_same_bytes(tmp_path: Path) -> None:
    shuffled = RecordedSysfs("epyc", dict(sorted(recording("x86_64-epyc_7451").files.items(), reverse=True)))
    for file, machine in (("a.xz", recording("x86_64-epyc_7451")), ("b.xz", shuffled)):
        save_recording(record(machine, "epyc"), tmp_path / file)
    assert (tmp_path / "a.xz").read_bytes() == (tmp_path / "b.xz").read_bytes()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not a recording: Expecting property name"),
        ("[" * 100_000, "is not a recording"),
        ("[]", r"\$\.files: expected an object of path: text, got null"),
        ('{"name": "x"}', r"\$\.files: expected an object of path: text, got null"),
        ('{"name": "x", "files": {}}', r"\$\.files: expected an object of path: text, got {}"),
        ('{"name": "x", "files": {"a/b": 7}}', r'\$\.files\["a/b"\]: expected text, got 7'),
        ('{"files": {"a/b": "7"}}', r"\$\.name: expected text, got null"),
    ],
)
def test_a_malformed_recording_names_file_and_field(content: str, message: str, tmp_path: Path) -> None:
    plain, packed = tmp_path / "bad.json", tmp_path / "bad.json.xz"
    plain.write_text(content)
    packed.write_bytes(lzma.compress(content.encode()))
    for path in (plain, packed):
        with pytest.raises(ConfigError, match=message) as caught:
            load_recording(path)
        assert str(path) in caught.value.message


@pytest.mark.parametrize("data", [b"", b"not xz", lzma.compress(b"{}")[:-5]], ids=["empty", "other", "cut"])
def test_a_file_that_is_not_xz_is_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "bad.xz"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=r"bad\.xz is not a recording"):
        load_recording(path)


def test_a_missing_recording_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the recording .*none\.json: No such file"):
        load_recording(tmp_path / "none.json")


def test_a_recording_is_plain_json(tmp_path: Path) -> None:
    path = tmp_path / "odd.json"
    save_recording(RecordedSysfs("odd", {"sys/odd": "\xff\0"}), path)
    assert json.loads(path.read_text(encoding="ascii")) == {"name": "odd", "files": {"sys/odd": "\xff\0"}}
