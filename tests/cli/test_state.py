"""`numalet state` as an operator uses it: look, check, convert."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from agent.checkpoint.store import CPU_FILE, MEMORY_FILE, StateDir
from tests.cli.statecommand import MACHINE, OTHER_MACHINE, PODS, contents, copied, state
from tests.data.state.generate import (
    DB,
    FOLDER,
    ORDINARY,
    POD_LEVEL,
    TIGHT,
    TRADING,
    WEB,
    cpu_file,
    files,
    memory_file,
    nodes,
)

# --- show ---------------------------------------------------------------------------------------


def test_show_prints_policy_version_checksum_and_who_holds_what() -> None:
    result = state("show", FOLDER / "kubelet-1.36-gate-on")
    assert (result.status, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[:4] == [
        "cpu_manager_state: CPU manager state, V3",
        "Policy     static",
        "Checksum   1053388447 (ok)",
        "Default    CPUs 0,5,10-11",
    ]
    rows = [line.split() for line in lines]
    assert [TRADING, "(whole", "pod)", "6-9"] in rows
    assert ["engine", "6-7"] in rows
    assert "memory_manager_state: memory manager state, V2" in lines
    assert ["1", "memory", "4.0", "GiB", "0", "MiB", "4.0", "GiB", "2.0", "GiB", "2.0", "GiB", "1"] in rows
    assert ["solver", "memory", "512Mi", "on", "NUMA", "node", "0"] in rows


def test_show_names_the_pods_that_have_a_record_and_the_fields_it_does_not_know() -> None:
    lines = state("show", FOLDER / "numalet-1.7").out.splitlines()
    assert "Unknown    allocations (in its data): kept when it is written again" in lines
    assert any(line.split()[:2] == ["prod/web", "main"] for line in lines)
    assert "Admitted   2026-01-02T03:04:05.000000Z from file:pods.yaml, boot 6ba7b810-9dad-11d1-80b4-00c04fd430c8" in lines  # fmt: skip
    assert "Unknown    novelty: kept when it is written again" in lines


def test_a_file_is_told_by_its_content_whatever_its_name(tmp_path: Path) -> None:
    for name, kind in ((CPU_FILE, "cpu"), (MEMORY_FILE, "memory"), (f"pods/{WEB}.json", "podRecord")):
        path = tmp_path / "whatever"
        path.write_bytes((FOLDER / "numalet-1.0" / name).read_bytes())
        (shown,) = state("show", path, "-o", "json").json["files"]
        assert (shown["kind"], shown["problems"]) == (kind, [])


def test_the_json_has_it_all() -> None:
    answer = state("show", FOLDER / "numalet-1.7", "-o", "json").json
    cpu, memory, *records = answer["files"]
    assert (cpu["version"], cpu["policy"], cpu["defaultCpuSet"]) == ("v4", "static", "0,5,10-11")
    assert cpu["checksums"] == [
        {"field": "dataChecksum", "stored": 3529786082, "computed": 3529786082, "ok": True}
    ]
    assert cpu["unknownFields"] == {"file": [], "data": ["allocations"]}
    assert cpu["pods"][2] == {
        "uid": TIGHT,
        "name": "prod/tight",
        "cpus": "3-4",
        "containers": [{"name": "solver", "cpus": "3"}],
    }
    assert memory["numaNodes"][1]["memory"]["memory"]["reserved"] == 2 << 30
    assert memory["pods"][0]["containers"][0]["memory"] == [
        {"type": "memory", "size": 1 << 30, "numaNodes": "0"}
    ]
    assert [record["name"] for record in records] == ["prod/web", "prod/trading", "prod/tight"]
    assert records[1]["cpus"] == "6-9"


def test_v1_containers_are_shown_by_id_or_with_pods_by_name() -> None:
    old = FOLDER / "kubelet-1.17" / CPU_FILE
    by_id = state("show", old, "-o", "json").json["files"][0]["pods"]
    assert [c["name"] for c in by_id[0]["containers"]] == ["c-db-main", "c-web-main"]
    by_name = state("show", old, "--pods", PODS, "-o", "json").json["files"][0]["pods"]
    assert [(p["uid"], p["containers"][0]["name"]) for p in by_name] == [(DB, "main"), (WEB, "main")]
    assert "(container ids, V1)  c-db-main" in state("show", old).out


DAMAGED: Final = {
    "CPU V1": ("kubelet-1.17/cpu_manager_state", 1301998180),
    "CPU V2": ("kubelet-1.35/cpu_manager_state", None),
    "CPU V3": ("kubelet-1.36-gate-on/cpu_manager_state", 1053388447),
    "CPU V4": ("kubelet-1.37-gate-on/cpu_manager_state", None),
    "memory V1": ("kubelet-1.35/memory_manager_state", None),
    "memory V2": ("kubelet-1.36-gate-on/memory_manager_state", 4293965705),
    "memory V3": ("kubelet-1.37-gate-on/memory_manager_state", None),
}


@pytest.mark.parametrize(("file", "checksum"), DAMAGED.values(), ids=DAMAGED)
def test_a_wrong_checksum_is_shown_with_both_values_and_all_of_the_content(
    tmp_path: Path, file: str, checksum: int | None
) -> None:
    whole = json.loads((FOLDER / file).read_bytes())
    field = "dataChecksum" if "data" in whole else "checksum"
    path = tmp_path / "damaged"
    path.write_text(json.dumps({**whole, field: 7}))
    (shown,) = state("show", path, "-o", "json").json["files"]
    (sound,) = state("show", FOLDER / file, "-o", "json").json["files"]
    computed = whole[field] if checksum is None else checksum
    assert shown["checksums"] == [{"field": field, "stored": 7, "computed": computed, "ok": False}]
    assert f"the stored checksum is 7, the content's is {computed}" in shown["problems"][0] or checksum
    ignored = ("checksums", "problems", "file")
    assert {k: v for k, v in shown.items() if k not in ignored} == {
        k: v for k, v in sound.items() if k not in ignored
    }
    text = state("show", path)
    assert (text.status, f"MISMATCH: 7 is stored, the content has {computed}" in text.out) == (0, True)
    assert state("verify", path, "--no-machine").status == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "unexpected end of JSON input"),
        ('{"policyName":"static"', "invalid JSON"),
        ("[1]", "expected a JSON object, found an array"),
        ('{"kind":"Pod"}', "neither a CPU nor a memory checkpoint, nor a pod record"),
        (
            '{"policyName":"static","defaultCpuSet":"0-x","checksum":0}',
            'could not parse default CPU set "0-x"',
        ),
        ('{"policyName":"static","defaultCpuSet":3,"checksum":0}', "field 'defaultCpuSet': expected a string"),
        (json.dumps({**json.loads(files()[f"numalet-1.0/pods/{WEB}.json"]), "name": "x"}), "pod record is corrupted"),
    ],
    ids=["empty", "cut off", "no object", "something else", "bad set", "bad type", "damaged record"],
)  # fmt: skip
def test_what_cannot_be_read_is_said_and_status_2(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / CPU_FILE
    path.write_text(text)
    for command in (("show",), ("verify", "--no-machine")):
        result = state(*command, path)
        assert result.status == 2
        assert says in result.out


def test_a_directory_without_state_is_bad_input(tmp_path: Path) -> None:
    result = state("show", tmp_path)
    assert result.status == 2
    assert f"{tmp_path} holds neither cpu_manager_state nor memory_manager_state" in result.err


def test_looking_changes_nothing_and_needs_no_lock(tmp_path: Path) -> None:
    folder = copied(tmp_path, "numalet-1.0")
    with StateDir(folder):
        before = contents(folder)
        assert state("show", folder).status == 0
        assert state("verify", folder, "--machine", MACHINE).status == 0
        assert contents(folder) == before


# --- verify -------------------------------------------------------------------------------------


def edited_cpu(**changes: object) -> str:
    return cpu_file({**ORDINARY[0], **changes}, 4)


def unbooked() -> str:
    return memory_file({**ORDINARY[1], "machineState": nodes((2, 1 << 30), (0, 0))}, 3)


UNSOUND: Final = {
    "a CPU belongs to nobody": (CPU_FILE, edited_cpu(defaultCpuSet="0,6-11"), "CPU 5 of this machine: not in the state"),
    "a CPU belongs to two": (CPU_FILE, edited_cpu(defaultCpuSet="0-1,5-11"), f"pod {WEB} holds CPUs 1 that are also in the shared pool"),
    "a CPU does not exist": (CPU_FILE, edited_cpu(defaultCpuSet="0,5-12"), "the default set has CPU 12: not on this machine"),
    "bytes without a block": (MEMORY_FILE, unbooked(), "memory: 536870912 bytes are in blocks but not reserved"),
    "an inline part edited by hand": (
        CPU_FILE,
        edited_cpu().replace('"defaultCpuSet":"0,5-11"', '"defaultCpuSet":"0,5-10"', 1),
        "the part that kubelets before 1.37 read is not what its data says",
    ),
    "an inline checksum that is wrong": (
        MEMORY_FILE,
        memory_file(ORDINARY[1], 3).replace('"checksum":', '"checksum":1', 1),
        "the part that kubelets before 1.37 read cannot be used: checkpoint is corrupted",
    ),
    "pod entries beyond the checksum": (
        CPU_FILE,
        cpu_file(ORDINARY[0], 2).replace('"checksum"', f'"podEntries":{{"{WEB}":{{"cpuSet":"1-2"}}}},"checksum"'),
        "its podEntries are not covered by the checksum",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("file", "text", "says"), UNSOUND.values(), ids=UNSOUND)
def test_verify_tells_each_finding_on_a_line(tmp_path: Path, file: str, text: str, says: str) -> None:
    folder = copied(tmp_path, "kubelet-1.37-gate-off")
    (folder / file).write_text(text)
    result = state("verify", folder, "--machine", MACHINE)
    assert result.status == 1
    assert any(line.startswith(f"{file}: {says}") for line in result.out.splitlines()), result.out


def test_verify_compares_with_the_machine_unless_told_not_to() -> None:
    folder = FOLDER / "kubelet-1.37-gate-on"
    assert state("verify", folder, "--no-machine").out == f"{folder}: sound (CPU V4, memory V3)\n"
    result = state("verify", folder, "--machine", OTHER_MACHINE)
    assert result.status == 1
    assert "cpu_manager_state: CPUs 12-63 of this machine: not in the state" in result.out
    assert "memory_manager_state: NUMA node 7 of this machine: not in the state" in result.out
    assert "memory on NUMA node 0: total is 4294967296 in the state, 16822734848 here" in result.out
    assert state("verify", folder, "--no-machine", "--machine", MACHINE).status == 2


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ("reservedSystemCPUs: 0-1", 'not all reserved cpus: "0-1" are present in defaultCpuSet'),
        ("cpuManagerPolicy: none", 'written under cpuManagerPolicy "static", configured is "none"'),
        ("memoryManagerPolicy: None", 'written under memoryManagerPolicy "Static", configured is "None"'),
        ("systemReserved: {memory: 1Gi}", "memory on NUMA node 0: systemReserved is 104857600 in the state"),
        (
            'cpuManagerPolicyOptions: {strict-cpu-reservation: "true"}',
            "the default set has CPU 0: not on this machine",
        ),
    ],
)
def test_verify_with_a_configuration_checks_what_is_reserved(tmp_path: Path, config: str, says: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(config)
    result = state("verify", FOLDER / "kubelet-1.37-gate-on", "--machine", MACHINE, "--config", file)
    assert result.status == 1
    assert says in result.out


def test_verify_says_where_a_nodes_bookings_are_not_its_blocks(tmp_path: Path) -> None:
    folder, config = copied(tmp_path, "kubelet-1.37-gate-off"), tmp_path / "config.yaml"
    config.write_text("{}")
    miscounted = {**ORDINARY[1], "machineState": nodes((3, 3 << 29), (0, 0))}
    (folder / MEMORY_FILE).write_text(memory_file(miscounted, 3))
    result = state("verify", folder, "--machine", MACHINE, "--config", config)
    assert result.status == 1
    assert "memory_manager_state: NUMA node 0: numberOfAssignments is 3, its blocks are 2" in result.out


def without_record(folder: Path) -> None:
    (folder / "pods" / f"{WEB}.json").unlink()


def without_entry(folder: Path) -> None:
    cpu = POD_LEVEL[0]
    entries = {uid: held for uid, held in cpu["entries"].items() if uid != WEB}
    (folder / CPU_FILE).write_text(cpu_file({**cpu, "defaultCpuSet": "0-2,5,10-11", "entries": entries}, 4))


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (without_record, f"pods: pod {WEB} has no record: it was never acknowledged"),
        (
            without_entry,
            "pods: pod prod/web, container main: its record says CPUs 1-2, the checkpoint nothing",
        ),
    ],
)
def test_verify_compares_pod_records_with_the_checkpoints(
    tmp_path: Path, damage: Callable[[Path], None], says: str
) -> None:
    folder = copied(tmp_path, "numalet-1.0")
    damage(folder)
    result = state("verify", folder, "--machine", MACHINE)
    assert (result.status, says in result.out) == (1, True)


# --- convert ------------------------------------------------------------------------------------


def test_convert_says_what_is_lost_for_each_pod(tmp_path: Path) -> None:
    source = FOLDER / "kubelet-1.37-gate-on"
    cpu = state("convert", "--to", "v2", source / CPU_FILE, tmp_path / "cpu")
    assert cpu.out.splitlines() == [
        f"lost: pod {TRADING}: that CPUs 6-9 are the pod's as a whole",
        (
            f"lost: pod {TIGHT}: that CPUs 3-4 are the pod's as a whole;"
            " CPU 4 of it, which none of its containers has, become shared"
        ),
        f"{tmp_path}/cpu: v2 written",
    ]
    memory = state("convert", "--to", "v1", source / MEMORY_FILE, tmp_path / "memory")
    assert memory.out.splitlines()[1] == (
        f"lost: pod {TIGHT}: that memory 1Gi on NUMA node 0 is the pod's as a whole;"
        " booked is what its containers have, memory 512Mi on NUMA node 0"
    )
    field = state("convert", "--to", "v3", FOLDER / "numalet-1.7" / CPU_FILE, tmp_path / "field")
    assert field.out.startswith("lost: field allocations of the data, which numalet does not know\n")


def test_convert_from_and_to_v1_without_pods_releases_what_it_cannot_name(tmp_path: Path) -> None:
    up = state("convert", "--to", "v2", FOLDER / "kubelet-1.17" / CPU_FILE, tmp_path / "up")
    assert "container id c-web-main: its CPUs 1-2, which become shared" in up.out
    down = state("convert", "--to", "v1", FOLDER / "kubelet-1.20" / CPU_FILE, tmp_path / "down")
    assert f"container main of pod {WEB}: its CPUs 1-2, which become shared" in down.out
    for name in ("up", "down"):
        assert state("show", tmp_path / name, "-o", "json").json["files"][0]["defaultCpuSet"] == "0-11"


def test_convert_replaces_a_file_only_when_forced(tmp_path: Path) -> None:
    source, target = FOLDER / "kubelet-1.35" / CPU_FILE, tmp_path / "out"
    target.write_text("precious")
    refused = state("convert", "--to", "v4", source, target)
    assert (refused.status, refused.err) == (2, f"numalet: {target}: exists already\n  --force replaces it\n")
    assert target.read_text() == "precious"
    assert state("convert", "--to", "v4", "--force", source, target).status == 0
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert target.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("name", "version", "says"),
    [
        ("kubelet-1.35/memory_manager_state", "v4", "is a memory checkpoint: there is no v4"),
        (f"numalet-1.0/pods/{WEB}.json", "v2", "is a pod record: it has no other version"),
        ("damaged", "v2", "checkpoint is corrupted (the stored checksum is 3"),
    ],
)
def test_convert_refuses_what_makes_no_sense(tmp_path: Path, name: str, version: str, says: str) -> None:
    damaged = cpu_file(ORDINARY[0], 2).replace('"checksum":', '"checksum":3', 1)
    (tmp_path / "damaged").write_text(damaged)
    source = tmp_path / name if name == "damaged" else FOLDER / name
    result = state("convert", "--to", version, source, tmp_path / "out")
    assert (result.status, says in result.err) == (2, True)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["show", "verify", "convert", "import", "export"])
def test_every_command_has_help_with_an_example(command: str) -> None:
    result = state(command, "--help")
    assert result.status == 0
    assert result.out.startswith(f"Usage: numalet state {command} ")
    assert f"  numalet state {command} " in result.out
