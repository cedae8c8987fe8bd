"""Upgrade and downgrade: every writer's directory is opened here, written, and read again by every kubelet.

The kubelets are `literal` readers with their own rules of acceptance.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Final

import pytest

from agent.checkpoint.codec import decode_cpu, decode_memory
from agent.checkpoint.podrecord import decode_record
from agent.checkpoint.reading import CpuFile, MemoryFile, read_stored
from agent.checkpoint.store import CPU_FILE, MEMORY_FILE, StateDir
from agent.containermanager.journal import Journal
from agent.domain.settings import CpuPolicy, Gates, MemoryPolicy, Settings
from agent.errors import StateError
from tests.checkpoint.literal import (
    Refused,
    cpus_start_with,
    ids,
    memory_starts_with,
    read_cpu,
    read_memory,
)
from tests.cli.command import invoke
from tests.data.state.generate import (
    FOLDER,
    ORDINARY,
    ORDINARY_CPUS,
    POD_LEVEL,
    WEB,
    files,
    nodes,
    record,
)

Json = dict[str, Any]

MACHINE: Final = str(FOLDER / "machine.json.xz")
VERSIONS: Final = {
    "kubelet-1.17": (1, None),
    "kubelet-1.20": (2, None),
    "kubelet-1.35": (2, 1),
    "kubelet-1.36-gate-off": (2, 1),
    "kubelet-1.36-gate-on": (3, 2),
    "kubelet-1.37-gate-off": (4, 3),
    "kubelet-1.37-gate-on": (4, 3),
    "numalet-1.0": (4, 3),
    "numalet-1.7": (4, 3),
}
POD_LEVEL_WRITERS: Final = ("kubelet-1.36-gate-on", "kubelet-1.37-gate-on", "numalet-1.0", "numalet-1.7")
KUBELETS: Final = [name for name in VERSIONS if name.startswith("kubelet")]
READERS: Final = [("1.35", False), ("1.36", False), ("1.36", True), ("1.37", False), ("1.37", True)]
"""Releases with PodLevelResourceManagers off and on."""


def start(folder: Path, release: str, *, gate: bool) -> tuple[Json, Json]:
    """Start a kubelet on a directory: what it then works with. Raises Refused."""
    cpu = read_cpu((folder / CPU_FILE).read_bytes(), release, gate=gate)
    memory = read_memory((folder / MEMORY_FILE).read_bytes(), release, gate=gate)
    cpus_start_with(cpu, set(range(12)), {0})
    memory_starts_with(memory, nodes((0, 0), (0, 0)))
    return cpu, memory


def test_the_recorded_directories_are_what_their_literal_layouts_say() -> None:
    for name, text in files().items():
        assert (FOLDER / name).read_bytes() == text.encode(), name


@pytest.mark.parametrize("name", VERSIONS)
def test_every_version_is_read_and_found_whole(name: str) -> None:
    versions = []
    for file in (CPU_FILE, MEMORY_FILE):
        path = FOLDER / name / file
        stored = read_stored(path.read_bytes()) if path.exists() else None
        assert not isinstance(stored, CpuFile | MemoryFile) or (stored.refusal, stored.problems) == ("", ())
        versions.append(stored.version if isinstance(stored, CpuFile | MemoryFile) else None)
    assert tuple(versions) == VERSIONS[name]


@pytest.mark.parametrize(
    ("name", "release", "gate"),
    [
        ("kubelet-1.35", "1.35", False),
        ("kubelet-1.36-gate-off", "1.36", False),
        ("kubelet-1.36-gate-on", "1.36", True),
        ("kubelet-1.37-gate-off", "1.37", False),
        ("kubelet-1.37-gate-on", "1.37", True),
        ("numalet-1.0", "1.37", True),
    ],
)
def test_each_kubelet_starts_with_what_its_own_release_wrote(name: str, release: str, gate: bool) -> None:
    assert start(FOLDER / name, release, gate=gate)[0]["entries"]


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """numalet's state directories after each kubelet's was imported."""
    root = tmp_path_factory.mktemp("imported")
    for name in KUBELETS:
        pods = str(FOLDER / "pods.json")
        done = invoke(
            "state", "import", "--from", str(FOLDER / name), "--pods", pods,
            "--machine", MACHINE, "--state", str(root / name),
        )  # fmt: skip
        assert (done.status, done.err) == (0, "")
    for name in ("numalet-1.0", "numalet-1.7"):
        shutil.copytree(FOLDER / name, root / name)
    return root


def entries_of(name: str) -> Json:
    entries: Json = POD_LEVEL[0]["entries"] if name in POD_LEVEL_WRITERS else ORDINARY_CPUS
    return entries


@pytest.mark.parametrize("name", KUBELETS)
def test_an_imported_node_is_written_in_the_newest_version_with_the_same_cpus(
    imported: Path, name: str
) -> None:
    raw = (imported / name / CPU_FILE).read_bytes()
    assert decode_cpu(raw, gates=Gates()).version == 4
    assert decode_memory((imported / name / MEMORY_FILE).read_bytes(), gates=Gates()).version == 3
    content = read_cpu(raw, "1.37", gate=True)
    assert content["entries"] == entries_of(name)
    pods = POD_LEVEL[0]["podEntries"] if name in POD_LEVEL_WRITERS else None
    assert content.get("podEntries") == pods
    verified = invoke("state", "verify", str(imported / name), "--machine", MACHINE)
    assert (verified.status, verified.err) == (0, "")


def readers_of(target: str, *, pod_level: bool) -> list[tuple[str, bool]]:
    """The kubelets that start with what was exported for ``target``.

    Pod entries are understood with the gate on only; without any, each newer format is an older one, too.
    """
    if target == "1.35" or not pod_level:
        return READERS
    return [(release, gate) for release, gate in READERS if gate and release >= target]


@pytest.mark.parametrize("target", ["1.35", "1.36", "1.37"])
@pytest.mark.parametrize("name", VERSIONS)
def test_what_is_exported_is_accepted_by_the_kubelet_it_is_for_and_no_cpu_moves(
    imported: Path, tmp_path: Path, name: str, target: str
) -> None:
    done = invoke(
        "state", "export", "--to", str(tmp_path), "--kubelet", target,
        "--state", str(imported / name), "--machine", MACHINE,
    )  # fmt: skip
    assert (done.status, done.err) == (0, "")
    pod_level = name in POD_LEVEL_WRITERS
    for release, gate in readers_of(target, pod_level=pod_level):
        cpu, _ = start(tmp_path, release, gate=gate)
        assert cpu["entries"] == entries_of(name), (release, gate)
        keeps_pods = pod_level and target != "1.35"
        assert cpu.get("podEntries") == (POD_LEVEL[0]["podEntries"] if keeps_pods else None)
    assert ("lost: pod" in done.out) == (pod_level and target == "1.35")


def test_the_newest_files_hold_what_older_kubelets_read_but_a_pods_spare_cpu_stops_them() -> None:
    """Why export has --kubelet: 1.36 falls back to V2 and then misses CPU 4, which only a pod has."""
    folder = FOLDER / "kubelet-1.37-gate-on"
    for release, gate in READERS[:4]:
        cpu = read_cpu((folder / CPU_FILE).read_bytes(), release, gate=gate)
        assert (cpu["entries"], "podEntries" in cpu) == (POD_LEVEL[0]["entries"], False)
        memory = read_memory((folder / MEMORY_FILE).read_bytes(), release, gate=gate)
        assert (memory["entries"], "podEntries" in memory) == (POD_LEVEL[1]["entries"], False)
        with pytest.raises(Refused, match="doesn't match with CPUs in state"):
            start(folder, release, gate=gate)


@pytest.mark.parametrize("version", ["v2", "v3", "v4"])
@pytest.mark.parametrize("name", [name for name in VERSIONS if name != "kubelet-1.17"])
def test_a_converted_cpu_file_is_read_by_every_release_that_knows_its_version(
    tmp_path: Path, name: str, version: str
) -> None:
    target = tmp_path / CPU_FILE
    done = invoke("state", "convert", "--to", version, str(FOLDER / name / CPU_FILE), str(target))
    assert (done.status, done.err) == (0, "")
    releases = {"v2": READERS, "v3": [("1.36", True), ("1.37", False), ("1.37", True)], "v4": READERS[3:]}
    for release, gate in releases[version]:
        assert read_cpu(target.read_bytes(), release, gate=gate)["entries"] == entries_of(name)


@pytest.mark.parametrize("version", ["v1", "v2", "v3"])
@pytest.mark.parametrize("name", [name for name, (_, memory) in VERSIONS.items() if memory])
def test_a_converted_memory_file_is_read_by_every_release_that_knows_its_version(
    tmp_path: Path, name: str, version: str
) -> None:
    target = tmp_path / MEMORY_FILE
    done = invoke("state", "convert", "--to", version, str(FOLDER / name / MEMORY_FILE), str(target))
    assert (done.status, done.err) == (0, "")
    releases = {"v1": READERS, "v2": [("1.36", True), ("1.37", False), ("1.37", True)], "v3": READERS}
    entries = (POD_LEVEL if name in POD_LEVEL_WRITERS else ORDINARY)[1]["entries"]
    for release, gate in releases[version]:
        assert read_memory(target.read_bytes(), release, gate=gate)["entries"] == entries


def test_v1_is_reached_and_left_by_way_of_container_ids(tmp_path: Path) -> None:
    pods = str(FOLDER / "pods.json")
    old, new, back = FOLDER / "kubelet-1.17" / CPU_FILE, tmp_path / "new", tmp_path / "back"
    assert invoke("state", "convert", "--to", "v2", "--pods", pods, str(old), str(new)).status == 0
    assert new.read_bytes() == (FOLDER / "kubelet-1.20" / CPU_FILE).read_bytes()
    assert invoke("state", "convert", "--to", "v1", "--pods", pods, str(new), str(back)).status == 0
    assert back.read_bytes() == old.read_bytes()
    assert read_cpu(back.read_bytes(), "1.17")["entries"] == {"c-db-main": "3-4", "c-web-main": "1-2"}


@pytest.mark.parametrize(
    ("old", "up", "down"), [("kubelet-1.35", 4, 2), ("kubelet-1.36-gate-on", 4, 3)], ids=["V2", "V3"]
)
def test_up_and_down_again_gives_the_same_bytes(tmp_path: Path, old: str, up: int, down: int) -> None:
    source, between, back = FOLDER / old / CPU_FILE, tmp_path / "up", tmp_path / "down"
    assert invoke("state", "convert", "--to", f"v{up}", str(source), str(between)).status == 0
    assert invoke("state", "convert", "--to", f"v{down}", str(between), str(back)).status == 0
    assert back.read_bytes() == source.read_bytes()


def journal_on(root: StateDir) -> Journal:
    settings = Settings(cpu_policy=CpuPolicy.STATIC, memory_policy=MemoryPolicy.STATIC)
    return Journal(store=root, settings=settings, now=lambda: "2026-01-01T00:00:00Z")


@pytest.mark.parametrize("name", ["numalet-1.0", "numalet-1.7"])
def test_records_of_any_minor_version_are_written_back_with_all_they_held(tmp_path: Path, name: str) -> None:
    before = shutil.copytree(FOLDER / name, tmp_path / name)
    with StateDir(before) as root:
        journal = journal_on(root)
        loaded = journal.load()
        assert (loaded.damages, loaded.remarks) == ((), ())
        for one in loaded.records:
            journal.add(one)
    for path in (FOLDER / name / "pods").iterdir():
        assert (before / "pods" / path.name).read_bytes() == path.read_bytes()
    unknown = {"novelty": [1]} if name == "numalet-1.7" else {}
    assert [one.unknown for one in loaded.records] == [unknown] * 3


def test_a_record_of_a_newer_major_version_is_refused_with_the_way_out() -> None:
    with pytest.raises(StateError, match=r"version 2\.0, this agent reads 1\.x") as refused:
        decode_record(record(WEB, "2.0").encode())
    assert refused.value.hint == "run the numalet that wrote it, or a newer one"


def test_the_literal_lists() -> None:
    assert (ids(""), ids("0-2,5")) == ([], [0, 1, 2, 5])
