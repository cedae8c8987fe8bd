"""`numalet state` as an operator uses it: look, check, convert, move a node and come back."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from agent.checkpoint.files import SystemFiles
from agent.checkpoint.store import CPU_FILE, MEMORY_FILE, StateDir
from agent.cli.statefiles import read_path, read_pods
from agent.cli.statehost import Host
from agent.cli.statemove import write_imported
from agent.config import Config
from agent.containermanager.handover import Stamp, adopted, holders
from agent.domain.idset import CpuSet
from agent.sysfs.discovery import discover
from agent.sysfs.recorded import load_recording
from tests.cli.command import Result, invoke
from tests.containermanager.faults import Died
from tests.containermanager.node import Node, unsound
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
    pod,
    resources,
)
from tests.sysfs.machines import FOLDER as MACHINES

Json = dict[str, Any]

MACHINE: Final = FOLDER / "machine.json.xz"
PODS: Final = FOLDER / "pods.json"
OTHER_MACHINE: Final = MACHINES / "64amd64-4p2n4ca2co.json.xz"


def state(*arguments: object) -> Result:
    return invoke("state", *map(str, arguments))


def copied(tmp_path: Path, name: str) -> Path:
    return shutil.copytree(FOLDER / name, tmp_path / name)


def contents(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


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


# --- import and export --------------------------------------------------------------------------


def imported(tmp_path: Path, name: str, *arguments: object, pods: Path = PODS) -> Result:
    return state(
        "import", "--from", FOLDER / name, "--pods", pods, "--machine", MACHINE, "--state", tmp_path / "numalet",
        *arguments,
    )  # fmt: skip


def exported(tmp_path: Path, *arguments: object) -> Result:
    (tmp_path / "kubelet").mkdir(exist_ok=True)
    target, source = tmp_path / "kubelet", tmp_path / "numalet"
    return state("export", "--to", target, "--state", source, "--machine", MACHINE, *arguments)


def test_the_daemon_takes_an_imported_node_over_and_no_pod_moves(tmp_path: Path) -> None:
    result = imported(tmp_path, "kubelet-1.37-gate-on")
    assert (result.status, result.err) == (0, "")
    assert "pod prod/trading keeps CPUs 6-9, memory 2Gi on NUMA node 1" in result.out.splitlines()
    with StateDir(tmp_path / "numalet") as store:
        owner = Node(machine=discover(load_recording(MACHINE))).stopped_owner(store=store)
        owner.start()
        shot = owner.snapshot()
    assert (sorted(shot.pods), shot.failures, shot.problems) == (sorted((WEB, TRADING, TIGHT)), (), ())
    assert shot.state.cpu.default == CpuSet.parse("0,5,10-11")
    assert {uid: str(cpus) for uid, cpus in shot.state.cpu.pod_entries.items()} == {TRADING: "6-9", TIGHT: "3-4"}  # fmt: skip
    assert exported(tmp_path).status == 0
    for name in (CPU_FILE, MEMORY_FILE):
        back = tmp_path / "kubelet" / name
        assert state("verify", back, "--machine", MACHINE).status == 0
    again = json.loads((tmp_path / "kubelet" / CPU_FILE).read_text())
    assert again["entries"] == POD_LEVEL[0]["entries"]


def test_a_static_pod_is_known_by_the_kubelets_uid_not_by_its_mirrors(tmp_path: Path) -> None:
    assert "pod prod/db keeps CPUs 3-4" in imported(tmp_path, "kubelet-1.35").out
    assert (tmp_path / "numalet" / "pods" / f"{DB}.json").exists()


def test_manifests_that_state_their_uid_will_do_and_the_kubelets_files_stay(tmp_path: Path) -> None:
    folder = tmp_path / "manifests"
    folder.mkdir()
    (folder / "web.yaml").write_text(json.dumps(pod("web", WEB, {"main": resources("2", "1Gi")})))
    (folder / "db.yaml").write_text(json.dumps(pod("db", DB, {"main": resources("2", "512Mi")})))
    before = contents(FOLDER / "kubelet-1.35")
    assert imported(tmp_path, "kubelet-1.35", pods=folder).status == 0
    assert contents(FOLDER / "kubelet-1.35") == before


def test_pods_without_a_manifest_are_named_and_dropped_only_on_request(tmp_path: Path) -> None:
    only = tmp_path / "web.json"
    only.write_text(json.dumps(pod("web", WEB, {"main": resources("2", "1Gi")})))
    refused = imported(tmp_path, "kubelet-1.35", pods=only)
    assert refused.status == 1
    assert refused.err.splitlines() == [
        (
            f"numalet: import refused: no manifest states the uid of pod {DB},"
            " which holds CPUs 3-4, memory 512Mi on NUMA node 0"
        ),
        "  give more manifests with --pods; --drop-unknown releases what these pods hold",
    ]
    assert not (tmp_path / "numalet").exists()
    done = imported(tmp_path, "kubelet-1.35", "--drop-unknown", pods=only)
    assert done.status == 0
    assert f"pod {DB} is dropped: released CPUs 3-4, memory 512Mi on NUMA node 0" in done.out
    assert state("verify", tmp_path / "numalet", "--machine", MACHINE).status == 0


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ("reservedSystemCPUs: 0-1", 'cpu_manager_state: not all reserved cpus: "0-1"'),
        ("cpuManagerPolicy: none", 'cpu_manager_state: written under cpuManagerPolicy "static"'),
        (
            "featureGates: {PodLevelResourceManagers: false}",
            f"cpu_manager_state: pod {TRADING} was allocated as one, which needs PodLevelResourceManagers",
        ),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused(tmp_path: Path, config: str, says: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(config)
    result = imported(tmp_path, "kubelet-1.37-gate-on", "--config", file)
    assert (result.status, says in result.err) == (1, True)
    assert not (tmp_path / "numalet").exists()


def test_another_machine_is_refused_with_every_place(tmp_path: Path) -> None:
    result = imported(tmp_path, "kubelet-1.37-gate-on", "--machine", OTHER_MACHINE)
    assert result.status == 1
    assert "cpu_manager_state: CPUs 12-63 of this machine: not in the state" in result.err
    assert "memory_manager_state: memory on NUMA node 1: total is 4294967296 in the state" in result.err
    assert imported(tmp_path, "kubelet-1.37-gate-on").status == 0
    back = exported(tmp_path, "--machine", OTHER_MACHINE)
    assert (back.status, "CPUs 12-63 of this machine" in back.err) == (1, True)
    assert list((tmp_path / "kubelet").iterdir()) == []


def test_a_manifest_of_another_pod_is_refused(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.json"
    items = [
        pod("web", WEB, {"app": resources("2", "1Gi")}),
        {**pod("db", DB, {"main": resources("2", "x")}), "status": None},
    ]
    wrong.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    result = imported(tmp_path, "kubelet-1.35", pods=wrong)
    assert result.status == 1
    assert "pod prod/web has no container main, which holds resources" in result.err
    assert '"x" is not a quantity' in result.err


def test_a_directory_in_use_or_with_pods_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "numalet"
    with StateDir(target):
        locked = imported(tmp_path, "kubelet-1.35")
        assert (locked.status, "in use by another numalet" in locked.err) == (1, True)
    assert imported(tmp_path, "kubelet-1.35").status == 0
    before = contents(target)
    again = imported(tmp_path, "kubelet-1.35")
    assert (again.status, "holds pods already" in again.err) == (1, True)
    assert contents(target) == before
    with StateDir(target):
        assert exported(tmp_path).status == 1


class Dying(SystemFiles):
    """A disk whose user is killed before the operation of that number; syncing takes no time."""

    def __init__(self, last: int = 1 << 30) -> None:
        self.count, self.last = 0, last

    def _step(self) -> None:
        self.count += 1
        if self.count > self.last:
            raise Died

    def create(self, path: Path) -> int:
        self._step()
        return super().create(path)

    def write(self, descriptor: int, data: bytes) -> int:
        self._step()
        return super().write(descriptor, data)

    def rename(self, old: Path, new: Path) -> None:
        self._step()
        super().rename(old, new)

    def unlink(self, path: Path) -> None:
        self._step()
        super().unlink(path)


def import_on(files: Dying, target: Path) -> None:
    """What the command writes, on a disk of ours."""
    host, known = Host.of(MACHINE, Config()), read_pods((PODS,))
    source = FOLDER / "kubelet-1.37-gate-on"
    stored = read_path(source)
    stamp = Stamp("boot", "2026-01-01T00:00:00Z", f"import:{source}")
    kept, records = adopted(stored.state, holders(stored.state, known, host.managed), host.managed, stamp)
    with StateDir(target, files) as store:
        files.count = 0
        write_imported(store, stored, kept, records, host.managed.settings)


def test_an_import_that_was_killed_at_any_operation_can_be_run_again(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    whole = Dying()
    import_on(whole, tmp_path / "whole")
    for last in range(whole.count):
        files = Dying(last)
        with pytest.raises(Died):
            import_on(files, tmp_path / str(last) / "numalet")
        result = imported(tmp_path / str(last), "kubelet-1.37-gate-on")
        assert (result.status, result.err) == (0, ""), last
        with StateDir(tmp_path / str(last) / "numalet") as store:
            assert store.records().pods == tuple(sorted((WEB, TRADING, TIGHT)))
            for name in (CPU_FILE, MEMORY_FILE):
                assert store.read(name) == (tmp_path / "whole" / name).read_bytes(), last
    record_property("crash points of import", whole.count)


def test_a_daemon_that_starts_on_an_interrupted_import_takes_whole_pods_only(tmp_path: Path) -> None:
    machine = discover(load_recording(MACHINE))
    whole = Dying()
    import_on(whole, tmp_path / "whole")
    for last in range(whole.count):
        with pytest.raises(Died):
            import_on(Dying(last), tmp_path / str(last))
        node = Node(machine=machine)
        with StateDir(tmp_path / str(last)) as store:
            owner = node.stopped_owner(store=store)
            owner.start()
            assert owner.snapshot().failures == ()
            assert unsound(node, owner, store) == [], last


def test_unknown_fields_of_the_kubelets_files_go_with_them(tmp_path: Path) -> None:
    assert imported(tmp_path, "numalet-1.7").status == 0
    shown = state("show", tmp_path / "numalet" / CPU_FILE, "-o", "json").json["files"][0]
    assert shown["unknownFields"]["data"] == ["allocations"]


def test_export_replaces_the_kubelets_files_only_when_forced(tmp_path: Path) -> None:
    assert imported(tmp_path, "kubelet-1.35").status == 0
    assert exported(tmp_path, "--kubelet", "1.35").status == 0
    written = contents(tmp_path / "kubelet")
    assert written == contents(FOLDER / "kubelet-1.35")
    refused = exported(tmp_path)
    assert (refused.status, "exists already" in refused.err) == (1, True)
    assert contents(tmp_path / "kubelet") == written
    assert exported(tmp_path, "--force").status == 0
    assert contents(tmp_path / "kubelet") == contents(FOLDER / "kubelet-1.37-gate-off")


def test_a_damaged_state_is_exported_by_nobody(tmp_path: Path) -> None:
    folder = copied(tmp_path, "numalet-1.0").rename(tmp_path / "numalet")
    (folder / MEMORY_FILE).unlink()
    missing = exported(tmp_path)
    assert (missing.status, "there is no memory_manager_state" in missing.err) == (1, True)
    (folder / MEMORY_FILE).write_text("{")
    assert exported(tmp_path).status == 1
    assert state("export", "--to", tmp_path, "--state", tmp_path / "nowhere").status == 2


@pytest.mark.parametrize("command", ["show", "verify", "convert", "import", "export"])
def test_every_command_has_help_with_an_example(command: str) -> None:
    result = state(command, "--help")
    assert result.status == 0
    assert result.out.startswith(f"Usage: numalet state {command} ")
    assert f"  numalet state {command} " in result.out
