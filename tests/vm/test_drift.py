"""Somebody else writes into our cgroups: it is noticed at once, put right, counted by file and told.

The reconcile period is an hour here: whatever is repaired was noticed.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.domain.idset import CpuSet
from tests.vm.node import (
    DRIVER,
    MOUNT,
    Node,
    allowed,
    best_effort,
    exclusive,
    mixed,
    running,
    text_of,
    wait_until,
)
from tests.vm.units import Unit, systemctl

pytestmark = pytest.mark.vm


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with running(tmp_path_factory.mktemp("drift"), cpuManagerReconcilePeriod="1h") as node:
        node.admit(mixed("web"))
        node.admit(best_effort("crowd"))
        yield node


def told(node: Node) -> int:
    return node.log.read_text().count("had drifted")


def repaired(node: Node, path: Path, right: str) -> None:
    """Wait until a file is as it was, and say how long that took."""
    start = time.monotonic()
    wait_until(lambda: path.exists() and text_of(path) == right, f"{path} is put right", every=0.01)
    sys.stderr.write(f"{path.relative_to(node.root)}: put right after {time.monotonic() - start:.2f} s\n")


@pytest.mark.parametrize(
    ("directory", "file", "text"),
    [
        pytest.param("poduid-web/main", "cpuset.cpus", "1", id="an exclusive container's CPUs"),
        pytest.param("poduid-web/shared.pool", "cpuset.cpus", "", id="a pool that would inherit"),
        pytest.param("poduid-web/shared.pool", "cpuset.mems", "1", id="memory nodes"),
        pytest.param("poduid-web", "cpuset.cpus", "0-15", id="a pod's CPUs"),
        pytest.param("poduid-web/main", "cpu.max", "1000 100000", id="a quota"),
        pytest.param("poduid-web/shared.pool", "cpu.weight", "7", id="a weight"),
        pytest.param("poduid-web/main", "memory.max", "max", id="a memory limit"),
        pytest.param("poduid-web/main", "memory.oom.group", "0", id="whom the OOM killer takes"),
        pytest.param("besteffort", "cpu.weight", "9", id="the weight of a class"),
    ],
)
def test_a_file_that_somebody_wrote_is_put_right(watched: Node, directory: str, file: str, text: str) -> None:
    process = watched.spawn("web", "main")
    cpus, path = allowed(process.pid), watched.at(directory) / file
    right, before = text_of(path), told(watched)
    # Not by this process: whoever writes is another program.
    subprocess.run(["sh", "-c", f"echo '{text}' >{path}"], check=True)
    repaired(watched, path, right)
    # systemd resets it on its own, which is no drift.
    once = 0 if DRIVER == "systemd" and file == "memory.oom.group" else 1
    wait_until(lambda: told(watched) == before + once, "it is told once")
    wait_until(lambda: watched.client.call("GET", "/v1/deviations") == {"deviations": []}, "nothing deviates")
    assert allowed(process.pid) == cpus


@pytest.mark.parametrize(
    ("directory", "file", "text", "right"),
    [
        pytest.param("", "cpuset.cpus", "1", MOUNT, id="the root's CPUs"),
        pytest.param("", "cpuset.mems", "1", MOUNT, id="the root's memory nodes"),
        pytest.param("besteffort", "cpuset.cpus", "0", MOUNT, id="a class's CPUs"),
        pytest.param("poduid-web", "cpuset.mems", "1", MOUNT, id="a pod's memory nodes"),
        pytest.param(
            "poduid-web/shared.pool/side",
            "cpuset.cpus",
            "",
            "poduid-web/shared.pool",
            id="a pool's container",
        ),
    ],
)
def test_a_cpuset_that_only_has_to_leave_room_is_opened_and_told_by_its_own_path(
    watched: Node, directory: str, file: str, text: str, right: Path | str
) -> None:
    process, before = watched.spawn("web", "main"), told(watched)
    cpus, counted = allowed(process.pid), repairs(watched, file)
    above = right if isinstance(right, Path) else watched.at(right)
    everything = text_of(above / f"{file}.effective")
    path = watched.at(directory) / file
    # The highest CPU of a pool is on none of the first ones.
    narrow = text or str(max(CpuSet.parse(everything)))
    subprocess.run(["sh", "-c", f"echo {narrow} >{path}"], check=True)
    repaired(watched, path, everything)
    wait_until(lambda: told(watched) == before + 1, "it is told once")
    assert (
        f"cgroup {directory or 'root'} had drifted and was put right: {file} was {narrow}"
        in watched.log.read_text()
    )
    assert repairs(watched, file) == counted + 1
    wait_until(lambda: watched.client.call("GET", "/v1/deviations") == {"deviations": []}, "nothing deviates")
    assert allowed(process.pid) == cpus
    assert watched.page("/readyz") == (200, "ok\n")


def repairs(node: Node, file: str) -> int:
    """How often this file was put right, by the metrics."""
    lines = node.page("/metrics")[1].splitlines()
    name = f'cgroup_drift_repairs_total{{file="{file}"}} '
    return sum(int(float(line.removeprefix(name))) for line in lines if line.startswith(name))


def test_a_cgroup_that_somebody_removed_is_made_again(watched: Node) -> None:
    side = watched.at("poduid-web/shared.pool/side")
    side.rmdir()
    repaired(watched, side / "memory.oom.group", "1")


def test_a_pod_that_somebody_removed_is_made_again(watched: Node) -> None:
    crowd = watched.at("besteffort/poduid-crowd")
    right = text_of(crowd / "cpuset.cpus")
    with watched.paused():  # or it would make them again meanwhile
        for directory in ("/shared.pool/main", "/shared.pool", ""):
            watched.at(f"besteffort/poduid-crowd{directory}").rmdir()
    repaired(watched, crowd / "cpuset.cpus", right)
    wait_until(lambda: watched.client.call("GET", "/v1/deviations") == {"deviations": []}, "nothing deviates")


def test_a_controller_that_somebody_took_away_is_given_back(watched: Node) -> None:
    quota = watched.at("poduid-web/shared.pool") / "cpu.max"
    right = text_of(quota)
    with watched.paused():
        for directory in ("poduid-web/shared.pool", "poduid-web"):
            (watched.at(directory) / "cgroup.subtree_control").write_text("-cpu")
    repaired(watched, quota, right)
    wait_until(lambda: watched.client.call("GET", "/v1/deviations") == {"deviations": []}, "nothing deviates")


def test_what_the_daemon_writes_itself_is_no_drift(watched: Node) -> None:
    before = told(watched)
    for number in range(3):
        watched.admit(exclusive(f"own-{number}", "1"))
    for number in range(3):
        watched.delete(f"own-{number}")
    assert watched.client.call("GET", "/v1/deviations") == {"deviations": []}
    assert told(watched) == before


def test_a_root_that_somebody_removed_is_made_again(tmp_path: Path) -> None:
    with running(tmp_path, cpuManagerReconcilePeriod="1h") as node:
        with node.paused():
            for directory in ("burstable", "besteffort", ""):
                node.at(directory).rmdir()
        wait_until(node.at("burstable").exists, "it is made again")
        assert node.admit(mixed("web"))["state"] == "Admitted"
        assert node.page("/readyz") == (200, "ok\n")


def test_f7_a_slice_of_systemds_that_holds_our_root_is_reloaded(tmp_path: Path) -> None:
    with Unit("drift.slice", "[Slice]\nAllowedCPUs=0-15\n"):
        systemctl("start", "drift.slice")
        node = Node(tmp_path, cpuManagerReconcilePeriod="1h", cgroupRoot=str(MOUNT / "drift.slice"))
        node.root = MOUNT / "drift.slice"
        try:
            node.start()
            node.admit(mixed("web"))
            cpus = allowed(node.spawn("web", "main").pid)
            systemctl("set-property", "--runtime", "drift.slice", "CPUWeight=50", "MemoryHigh=4G")
            systemctl("daemon-reload")
            wait_until(
                lambda: node.client.call("GET", "/v1/deviations") == {"deviations": []}, "nothing deviates"
            )
            assert allowed(node.processes[0].pid) == cpus
        finally:
            node.close()


def test_watches_that_are_used_up_are_told_and_the_period_serves(tmp_path: Path) -> None:
    limit = Path("/proc/sys/fs/inotify/max_user_watches")
    usual = limit.read_text()
    try:
        with running(tmp_path, cpuManagerReconcilePeriod="1s") as node:
            limit.write_text("1")
            node.apply(*map(exclusive, ("a",)))
            assert "fs.inotify.max_user_watches" in node.log.read_text()
            quota = node.at("poduid-a/main") / "cpu.max"
            quota.write_text("1000 100000")
            repaired(node, quota, "max 100000")
    finally:
        limit.write_text(usual)
