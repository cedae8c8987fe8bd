"""`numalet state import` and `export`: a node moves from the kubelet and comes back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

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
from tests.cli.command import Result
from tests.cli.statecommand import MACHINE, OTHER_MACHINE, PODS, contents, copied, state
from tests.containermanager.faults import Died
from tests.containermanager.node import Node, unsound
from tests.data.state.generate import DB, FOLDER, POD_LEVEL, TIGHT, TRADING, WEB, pod, resources


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
