"""`numalet gather` and ``--bundle``: a node is saved in one file, and decided on elsewhere."""

from __future__ import annotations

import json
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.api.routes import control_routes
from agent.api.server import ControlServer
from agent.bundle.archive import MANIFEST, pack, unpack
from agent.bundle.contents import Contents
from agent.bundle.host import gather_cgroups, gather_machine, gather_state
from agent.checkpoint.store import CPU_FILE
from agent.config import Config
from agent.config.table import dump
from agent.containermanager import ContainerManager
from agent.manifest.yamlnodes import yaml_text
from agent.sysfs.discovery import discover
from agent.sysfs.recorded import load_recording
from tests.cli.command import Result, invoke
from tests.containermanager.node import Node, budgeted, manifest, parsed

MACHINE = Path(__file__).parents[1] / "data/machines/64amd64-4p2n4ca2co.json.xz"
HUSH = "hush-hush"


def with_a_secret(document: dict[str, Any]) -> dict[str, Any]:
    document["spec"]["containers"][0]["env"] = [{"name": "TOKEN", "value": HUSH}]
    return document


class Host:
    """A node whose state, cgroups and configuration lie in directories of a test."""

    def __init__(self, root: Path) -> None:
        self.root, self.state, self.cgroups = root, root / "state", root / "cgroup/numalet"
        self.node = Node(machine=discover(load_recording(MACHINE)))
        self.owner: ContainerManager = self.node.owner()
        self.owner.admit(parsed(with_a_secret(budgeted("held"))), "held.yaml")
        self.config = Config(state_dir=str(self.state), cgroup_root=str(self.cgroups))
        self.write_state()
        container = self.cgroups / "poduid-held/main"
        container.mkdir(parents=True)
        (container / "cpuset.cpus").write_text("1-2\n")
        (container / "cgroup.procs").write_text("1\n")
        (self.cgroups.parent / "cgroup.controllers").write_text("cpu memory\n")
        self.config_file = root / "config.yaml"
        self.config_file.write_text(f"# {HUSH}\n{yaml_text(dump(self.config))}")

    def write_state(self) -> None:
        shutil.rmtree(self.state, ignore_errors=True)
        for name, data in self.node.store.files.items():
            path = self.state / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def gather(self, *arguments: str, file: str = "node.tar.gz") -> Result:
        """On this machine, with the node's directories."""
        socket = str(self.root / "control.sock")
        paths = ("--config", str(self.config_file), "--socket", socket)
        return invoke("gather", str(self.root / file), *paths, *arguments)

    def bundle(self, extra: dict[str, bytes] | None = None) -> str:
        """A bundle of the recorded machine, as one of its own would be."""
        into = Contents()
        gather_machine(into, load_recording(MACHINE))
        gather_state(into, self.state)
        into.add("config.yaml", "", yaml_text(dump(self.config)).encode())
        path = self.root / "replayed.tar.gz"
        path.write_bytes(pack({MANIFEST: b"{}", **into.files, **(extra or {})}, 0))
        return str(path)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.fixture
def daemon(host: Host) -> Iterator[Host]:
    answer = {"source": "config.yaml", "config": dump(host.config), "computed": {}}
    routes = {**control_routes(host.owner), "GET config": lambda _parts, _query, _body: answer}
    server = ControlServer(host.root / "control.sock", routes)
    server.start()
    yield host
    server.stop()


def about(files: dict[str, bytes]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(files[MANIFEST])
    return document


def test_with_a_daemon_everything_is_in_the_bundle(daemon: Host) -> None:
    done = daemon.gather()
    assert done.status == 0, done.err
    files = unpack(daemon.root / "node.tar.gz")
    assert {
        "machine.json", "versions.json", "check.json", "config.yaml", "config.json", "cgroups.json", "cgroups-above.json",
        "processes.json", "state/listing.json", f"state/{CPU_FILE}", "state/memory_manager_state",
        "state/pods/uid-held.json", "api/status.json", "api/pods.json", "api/cpus.json", "api/nodes.json",
        "api/events.json", "api/deviations.json", "api/pods/default.held.json",
    } <= files.keys()  # fmt: skip
    assert "cgroups" in {check["subject"] for check in json.loads(files["check.json"])["checks"]}
    described = json.loads(files["api/pods/default.held.json"])
    assert described["trace"]
    assert [container["name"] for container in described["containers"]] == ["main", "helper"]
    cgroups = json.loads(files["cgroups.json"])["cgroups"]
    assert cgroups["poduid-held/main"] == {"cpuset.cpus": "1-2"}
    assert json.loads(files["processes.json"])["poduid-held/main"]["1"].keys() == {
        "Cpus_allowed_list",
        "Mems_allowed_list",
    }


def test_the_manifest_lists_every_file_and_what_could_not_be_had(host: Host) -> None:
    done = host.gather()
    files = unpack(host.root / "node.tar.gz")
    listed = about(files)
    assert {one["name"] for one in listed["files"]} == files.keys() - {MANIFEST}
    missing = {one["what"]: one["why"] for one in listed["missing"]}
    assert "no daemon answers" in missing["api"]
    for what, why in missing.items():
        assert f"  without {what}: {why}" in done.out
    assert listed["redacted"]


def test_no_secret_of_manifests_and_no_comment_of_the_configuration_is_in_it(daemon: Host) -> None:
    daemon.gather()
    for name, data in unpack(daemon.root / "node.tar.gz").items():
        assert HUSH.encode() not in data, name


def test_only_its_owner_reads_a_bundle(host: Host) -> None:
    host.gather()
    assert stat.S_IMODE((host.root / "node.tar.gz").stat().st_mode) == 0o600


def test_a_file_is_replaced_only_with_force(host: Host) -> None:
    file = host.root / "node.tar.gz"
    file.write_text("precious")
    refused = host.gather()
    assert refused.status == 2
    assert "exists already" in refused.err
    assert file.read_text() == "precious"
    assert host.gather("--force").status == 0
    assert MANIFEST in unpack(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in host.root.iterdir() if "node.tar" in path.name] == ["node.tar.gz"]


def test_a_configuration_that_is_wrong_is_told_and_the_rest_is_gathered(host: Host) -> None:
    host.config_file.write_text("cpuManagerPolicy: sttic\n")
    assert host.gather().status == 0
    files = unpack(host.root / "node.tar.gz")
    missing = {one["what"]: one["why"] for one in about(files)["missing"]}
    assert "sttic" in missing["config.yaml"]
    assert "machine.json" in files


def test_a_record_that_cannot_be_redacted_is_left_out_and_told(host: Host) -> None:
    (host.state / "pods/odd.json").write_text(HUSH)
    host.gather()
    files = unpack(host.root / "node.tar.gz")
    assert "state/pods/odd.json" not in files
    assert "state/pods/odd.json" in {one["what"] for one in about(files)["missing"]}


def test_damaged_checkpoints_that_were_set_aside_come_along(host: Host) -> None:
    (host.state / f"{CPU_FILE}.corrupt-2026").write_bytes(b"{")
    into = Contents()
    gather_state(into, host.state)
    assert into.files[f"state/{CPU_FILE}.corrupt-2026"] == b"{"


def test_where_there_are_no_cgroups_those_above_are_told(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    into = Contents()
    gather_cgroups(into, tmp_path / "numalet", Path("/proc"))
    assert [what for what, _ in into.missing] == ["cgroups.json"]
    above = json.loads(into.files["cgroups-above.json"])
    assert above[str(tmp_path)] == {"cgroup.controllers": "cpu memory"}


def test_explain_decides_on_top_of_the_pods_in_the_bundle(host: Host) -> None:
    pod = host.root / "pod.json"
    pod.write_text(json.dumps(manifest("new", cpu="3")))
    bundle = host.bundle()
    done = invoke("explain", "--bundle", bundle, "-f", str(pod), "-o", "json")
    assert done.status == 0, done.err
    assert done.json["machine"] == bundle
    host.owner.admit(parsed(manifest("new", cpu="3")), "new.yaml")
    (container,) = done.json["pods"][0]["containers"]
    decided = host.owner.snapshot().state.cpu.entries
    assert container["cpus"] == str(decided[parsed(manifest("new")).uid]["main"])
    assert f"{bundle}: 1 pod there already" in invoke("explain", "--bundle", bundle, "-f", str(pod)).out


def test_plan_may_try_another_configuration_on_the_node_in_a_bundle(host: Host) -> None:
    pod, config = host.root / "pod.json", host.root / "other.yaml"
    pod.write_text(json.dumps(manifest("new")))
    config.write_text("topologyManagerPolicy: best-effort\n")
    done = invoke("plan", "--bundle", host.bundle(), "--config", str(config), "-f", str(pod), "-o", "json")
    assert done.status == 0, done.err
    assert done.json["settings"]["topologyManagerPolicy"] == "best-effort"
    assert "1" not in done.json["numaNodes"][0]["freeCPUs"].split(","), "the pod in the bundle holds it"


def test_the_state_and_configuration_in_a_bundle_are_checked(host: Host) -> None:
    bundle = host.bundle()
    verified = invoke("state", "verify", "--bundle", bundle)
    assert (verified.status, verified.out) == (0, f"{bundle}: sound (CPU V4, memory V3, 1 pod record)\n")
    checked = invoke("config", "check", "--bundle", bundle)
    assert checked.status == 0
    assert checked.out.startswith(f"{bundle}: config.yaml: no problem")
    shown = invoke("config", "show", "--bundle", bundle, "-o", "json").json
    assert shown["config"]["stateDir"] == str(host.state)


def test_the_picture_of_a_bundle_shows_who_held_what(daemon: Host) -> None:
    daemon.gather()
    gathered = unpack(daemon.root / "node.tar.gz")
    api = {name: data for name, data in gathered.items() if name.startswith("api/")}
    drawn = invoke("topology", "--text", "--bundle", daemon.bundle(api))
    assert drawn.status == 0, drawn.err
    assert "held" in drawn.out
    bare = invoke("topology", "--text", "--bundle", daemon.bundle())
    assert "no daemon answered there" in bare.err


def test_a_bundle_whose_answers_are_not_a_daemons_is_refused(host: Host) -> None:
    odd = host.bundle({"api/cpus.json": b"[1]", "api/nodes.json": b"{}"})
    drawn = invoke("topology", "--text", "--bundle", odd)
    assert drawn.status == 2
    assert "is not a daemon's answer" in drawn.err


def test_a_machine_and_a_bundle_exclude_each_other(host: Host) -> None:
    done = invoke("topology", "--machine", str(MACHINE), "--bundle", host.bundle())
    assert done.status == 2
    assert "exclude each other" in done.err


def test_a_directory_that_is_not_there_is_told_before_anything_is_gathered(host: Host) -> None:
    done = host.gather(file="nowhere/node.tar.gz")
    assert done.status == 2
    assert "there is no directory" in done.err


def test_replay_decides_the_pods_of_a_bundle_again_in_the_order_they_came(host: Host) -> None:
    for name in ("second", "third"):
        host.owner.admit(parsed(manifest(name)), "more.yaml")
    host.write_state()
    same = invoke("replay", "--bundle", host.bundle())
    assert (same.status, same.err) == (0, "")
    assert [line.split(":")[0] for line in same.out.splitlines()] == [
        "same pod default/held",
        "same pod default/second",
        "same pod default/third",
        "3 of 3 pods decided as held",
    ]
    host.owner.remove(parsed(manifest("second")).uid, 0)
    host.write_state()
    after = invoke("replay", "--bundle", host.bundle())
    assert after.status == 1
    assert "differs pod default/third: " in after.out
    assert after.out.endswith("1 of 2 pods decided as held\n")


def test_replay_takes_cases_or_a_bundle(host: Host) -> None:
    assert "name FILES, or a --bundle" in invoke("replay").err
    assert "goes with neither" in invoke("replay", "--bundle", host.bundle(), str(MACHINE)).err
    stateless = Contents()
    gather_machine(stateless, load_recording(MACHINE))
    path = host.root / "stateless.tar.gz"
    path.write_bytes(pack({MANIFEST: b"{}", **stateless.files}, 0))
    done = invoke("replay", "--bundle", str(path))
    assert (done.status, done.err.splitlines()[0]) == (2, f"numalet: {path}: holds no state")
