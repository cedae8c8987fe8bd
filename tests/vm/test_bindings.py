"""Containers that systemd or runc runs: on their slice, whatever happens to them, and as before when it is over."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.cli.usage import read_cgroup
from agent.domain.idset import CpuSet
from tests.vm.node import (
    MOUNT,
    PATIENCE,
    Json,
    Node,
    allowed,
    exclusive,
    numalet,
    pids_in,
    running,
    text_of,
    wait_until,
)
from tests.vm.units import Unit, systemctl

pytestmark = pytest.mark.vm

ONLINE = CpuSet.parse(text_of(Path("/sys/devices/system/cpu/online")))
DB = "bound-db.service"
SERVICE = """
[Service]
Slice=bounddb.slice
CPUWeight=300
ExecStart=/bin/sh -c 'while :; do sleep 1; done'
"""
CGROUP = "bound-runc/db"


@pytest.fixture(scope="module")
def node(long_running: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A daemon that keeps the host off, and hears of what is bound by inotify or not at all.

    The host is all that is not its own: the other daemon, if its root is a slice, would take its CPUs back.
    """
    config = {"hostIsolation": "slices", "bindings": "all", "cpuManagerReconcilePeriod": "1h"}
    with long_running.paused(), running(tmp_path_factory.mktemp("bindings"), **config) as node:
        yield node
        if node.daemon is not None and node.daemon.poll() is None:
            node.end(signal.SIGTERM)
        release(node)


def release(node: Node) -> None:
    """`numalet release-host`, with the daemon down."""
    numalet("release-host", "--state-dir", node.state).check_returncode()


def bound(name: str, target: str) -> Json:
    """A pod of one container with CPUs of its own, which is ``target``."""
    kind, _, what = target.partition(" ")
    pod = exclusive(name)
    pod["metadata"]["annotations"] = {f"numalet/{kind}.main": what}
    return pod


def main_of(node: Node, name: str) -> Json:
    container: Json = node.pods()[name]["containers"][0]
    return container


def runs(node: Node, name: str) -> None:
    wait_until(lambda: main_of(node, name)["state"] == "running", f"the container of {name} runs")


def told(node: Node) -> str:
    return "\n".join(event["text"] for event in node.client.call("GET", "/v1/events")["events"])


def verified(node: Node) -> list[str]:
    deviations: list[str] = node.client.call("GET", "/v1/deviations")["deviations"]
    return deviations


@pytest.mark.matrix
def test_a_unit_keeps_its_slice_through_restarts_of_everything_and_is_as_before_at_the_end(
    node: Node,
) -> None:
    with Unit(DB, SERVICE) as unit:
        (verdict,) = node.apply(bound("inside", "unit dbus.service"))
        assert verdict["reason"] == "BindingError"
        assert "it is in system.slice" in verdict["message"]

        node.admit(bound("db", f"unit {DB}"))
        assert main_of(node, "db")["state"] == "waiting"
        held = CpuSet.parse(main_of(node, "db")["cpus"])
        assert len(held) == 2
        systemctl("start", DB)
        assert allowed(unit.main_pid) == held, "from the first moment on"
        runs(node, "db")
        systemctl("restart", DB)
        assert allowed(unit.main_pid) == held
        systemctl("daemon-reload")
        assert allowed(unit.main_pid) == held
        wait_until(lambda: verified(node) == [], "the kernel has what was decided")
        assert "drifted" not in told(node)

        systemctl("set-property", "--runtime", DB, f"AllowedCPUs={ONLINE}")
        wait_until(lambda: allowed(unit.main_pid) == held, "what somebody else set is put right")
        wait_until(lambda: "unit bound-db.service had drifted" in told(node), "it is told")
        cgroup = Path(main_of(node, "db")["cgroup"])
        assert cgroup == MOUNT / "bounddb.slice" / DB
        used = read_cgroup(cgroup)
        assert used is not None
        assert used.processes > 0, "as numalet top shows it"

        node.end(signal.SIGKILL)
        systemctl("restart", DB)
        node.start()
        pid = unit.main_pid
        assert allowed(pid) == held
        runs(node, "db")
        assert "drifted" not in told(node)

        node.delete("db")
        assert unit.main_pid == pid, "it runs on"
        assert allowed(pid) == ONLINE
        shown = dict(
            line.split("=", 1)
            for line in systemctl(
                "show", DB, "--property=AllowedCPUs,AllowedMemoryNodes,CPUWeight,MemoryMax,CPUQuotaPerSecUSec"
            ).splitlines()
        )
        assert shown == {
            "AllowedCPUs": "",
            "AllowedMemoryNodes": "",
            "CPUWeight": "300",
            "MemoryMax": "infinity",
            "CPUQuotaPerSecUSec": "infinity",
        }


@contextmanager
def container(work: Path) -> Iterator[int]:
    """A container of runc's in the guest's own file system; its first process."""
    root = work / "rootfs"
    root.mkdir()
    specification = {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": ["sh", "-c", "while :; do sleep 1; done"],
            "cwd": "/",
            "env": ["PATH=/usr/bin:/bin"],
        },
        "root": {"path": "rootfs", "readonly": True},
        "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
        "linux": {"cgroupsPath": f"/{CGROUP}", "namespaces": [{"type": "pid"}, {"type": "mount"}]},
    }
    (work / "config.json").write_text(json.dumps(specification))
    subprocess.run(["mount", "--bind", "/", root], check=True)
    try:
        with (work / "runc.log").open("wb") as log:
            command = ["runc", "run", "--detach", "--bundle", str(work), "bound-db"]
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=PATIENCE, check=False
            )
        assert done.returncode == 0, (work / "runc.log").read_text()
        yield pids_in(MOUNT / CGROUP)[0]
    finally:
        subprocess.run(["runc", "delete", "--force", "bound-db"], check=True, timeout=PATIENCE)
        subprocess.run(["umount", root], check=True)


def test_a_container_of_runc_is_waited_for_has_its_slice_and_is_as_before_at_the_end(
    node: Node, tmp_path: Path
) -> None:
    node.admit(bound("ctr", f"cgroup {CGROUP}"))
    held = CpuSet.parse(main_of(node, "ctr")["cpus"])
    assert main_of(node, "ctr")["state"] == "waiting"
    with container(tmp_path) as pid:
        wait_until(lambda: allowed(pid) == held, "the container is on its slice")
        runs(node, "ctr")
        wait_until(lambda: verified(node) == [], "the kernel has what was decided")
        (MOUNT / CGROUP / "cpuset.cpus").write_text(str(ONLINE))
        wait_until(lambda: allowed(pid) == held, "what somebody else wrote is put right")
        node.delete("ctr")
        assert allowed(pid) == ONLINE
        assert text_of(MOUNT / CGROUP / "memory.max") == "max"

        node.admit(bound("ctr", f"cgroup {CGROUP}"))
        assert allowed(pid) == held, "one that is there is set before the answer"
        node.end(signal.SIGTERM)
        assert allowed(pid) == held
        release(node)
        assert allowed(pid) == ONLINE
    (MOUNT / "bound-runc").rmdir()
