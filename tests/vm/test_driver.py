"""``cgroupDriver: systemd``: pods that systemctl knows, and that both sides have the same idea of.

With hostIsolation: partition, of which systemd knows nothing.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent.domain.idset import CpuSet
from tests.vm.node import (
    MOUNT,
    NUMALET,
    Node,
    allowed,
    held,
    is_alive,
    is_command,
    mixed,
    numalet,
    pids_in,
    text_of,
    wait_until,
)
from tests.vm.units import systemctl

pytestmark = pytest.mark.vm

SLICE = "numaletdriver.slice"
PREFIX = SLICE.removesuffix(".slice")
SERVICE = "numalet-test-driver.service"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """One for all tests, which tell the life of a pod in this order."""
    node = Node(
        tmp_path_factory.mktemp("driver"),
        cgroupDriver="systemd",
        cgroupRoot=str(MOUNT / SLICE),
        cpuManagerReconcilePeriod="1h",
        hostIsolation="partition",
    )
    node.root = MOUNT / SLICE
    try:
        node.start()
        yield node
    finally:
        node.close()


@dataclass(frozen=True)
class Web:
    """A pod with a process in its slice, and a service of systemd's in its pool."""

    node: Node
    main: Path
    side: Path
    cpus: CpuSet
    work: int
    beside: int

    def assert_placed(self) -> None:
        """Both run where they may, and not where they may not."""
        assert is_alive(self.work)
        assert is_alive(self.beside)
        assert allowed(self.work) == self.cpus
        assert allowed(self.beside).isdisjoint(self.cpus)
        assert CpuSet.parse(text_of(MOUNT / "cpuset.cpus.effective")).isdisjoint(self.cpus), "nor the host"


@pytest.fixture(scope="module")
def web(node: Node) -> Web:
    node.admit(mixed("web"))
    main, side = node.cgroup("web", "main"), node.cgroup("web", "side")
    joined = [*NUMALET, "exec", "--socket", str(node.client.path), "web", "main", "--"]
    work = node.outside(*joined, "sleep", "600")
    subprocess.run(["systemd-run", f"--slice={side.name}", f"--unit={SERVICE}", "sleep", "600"], check=True)
    wait_until(lambda: is_command(work.pid, "sleep"), "it is the command")
    assert pids_in(main) == [work.pid]
    beside = int(shown(SERVICE, "MainPID"))
    assert pids_in(side / SERVICE) == [beside]
    return Web(node, main, side, CpuSet.parse(text_of(main / "cpuset.cpus")), work.pid, beside)


def values(node: Node) -> Mapping[str, str]:
    """What numalet writes and systemd might, of every cgroup."""
    names = (
        "cpuset.cpus",
        "cpuset.mems",
        "cpuset.cpus.exclusive",
        "cpuset.cpus.partition",
        "cpu.max",
        "cpu.weight",
        "memory.max",
        "memory.oom.group",
        "pids.max",
    )
    files = (path for name in names for path in node.root.rglob(name))
    return {str(path.relative_to(node.root)): text_of(path) for path in files}


def held_by_systemd(values: Mapping[str, str]) -> Mapping[str, str]:
    """All but what is no unit property, and is put back after systemd has reset it."""
    return {file: text for file, text in values.items() if not file.endswith("memory.oom.group")}


def units() -> list[str]:
    """Our units that are active."""
    lines = systemctl("list-units", "--plain", "--no-legend", "--state=active", f"{PREFIX}*").splitlines()
    return sorted(line.split()[0] for line in lines)


def shown(unit: str, name: str) -> str:
    """A property of a unit."""
    return systemctl("show", "--value", f"--property={name}", unit).strip()


def drifted(node: Node) -> list[str]:
    """What was told of drift."""
    events = node.client.call("GET", "/v1/events")["events"]
    return [event["text"] for event in events if "drifted" in event["text"]]


def allowed_by(unit: str) -> CpuSet:
    """AllowedCPUs, which systemctl shows in ranges with blanks in between."""
    return CpuSet.parse(",".join(shown(unit, "AllowedCPUs").split()))


def test_pods_and_containers_are_slices_that_systemctl_shows(web: Web) -> None:
    assert web.main.name == f"{PREFIX}-poduid_web-main.slice"
    assert web.side.parent.name == f"{PREFIX}-poduid_web-shared.pool.slice"
    web.assert_placed()
    assert text_of(web.main / "cpuset.cpus.partition") == "root"
    status = systemctl("status", "--no-pager", SLICE)
    for part in (
        web.main.parent.name,
        web.main.name,
        web.side.parent.name,
        web.side.name,
        web.work,
        web.beside,
    ):
        assert str(part) in status
    assert len(units()) == 3 + 4
    assert allowed_by(web.main.name) == web.cpus
    assert shown(web.main.parent.name, "MemoryMax") == text_of(web.main.parent / "memory.max")


def test_a_daemon_reload_changes_nothing(web: Web) -> None:
    before = values(web.node)
    systemctl("daemon-reload")
    assert held_by_systemd(values(web.node)) == held_by_systemd(before)
    wait_until(lambda: values(web.node) == before, "memory.oom.group is back")
    assert web.node.client.call("GET", "/v1/deviations") == {"deviations": []}
    assert drifted(web.node) == []


def test_what_somebody_tells_systemd_is_put_right_there_too(web: Web) -> None:
    before, pool = values(web.node), web.side.parent.name
    agreed = allowed_by(pool)
    systemctl("set-property", "--runtime", pool, f"AllowedCPUs={web.cpus}", "CPUWeight=3")
    wait_until(lambda: bool(drifted(web.node)), "it is told")
    # systemd writes one file after the other, so it may be found in two steps.
    wait_until(lambda: values(web.node) == before, "all of it is put right")
    assert allowed_by(pool) == agreed
    assert shown(pool, "CPUWeight") == before[f"{web.side.parent.relative_to(web.node.root)}/cpu.weight"]
    web.assert_placed()


def test_a_killed_daemon_finds_its_units_again_and_starts_what_somebody_stopped(web: Web) -> None:
    node, known, before, given = web.node, units(), values(web.node), held(web.node.pods()["web"])
    node.end(signal.SIGKILL)
    systemctl("stop", web.main.name)
    assert web.main.name not in units()
    systemctl("daemon-reload")
    assert held_by_systemd(values(node)) == held_by_systemd(before)
    node.start()
    assert units() == known
    assert values(node) == before
    assert held(node.pods()["web"]) == given
    assert allowed_by(web.main.name) == web.cpus
    web.assert_placed()


def test_another_driver_does_not_start_while_pods_run(web: Web) -> None:
    web.node.end(signal.SIGTERM)
    done = numalet("run", "--config", web.node.config_file(cgroupDriver="cgroupfs"))
    assert done.returncode != 0
    assert f"$.cgroupDriver: pods still run in {web.node.root}" in done.stderr
    web.assert_placed()
    web.node.start()


def test_no_unit_is_left_of_a_pod_that_was_deleted(web: Web) -> None:
    web.node.delete("web")
    assert units() == [f"{PREFIX}-besteffort.slice", f"{PREFIX}-burstable.slice", SLICE]
    assert list(Path("/run/systemd").rglob(f"{PREFIX}-pod*")) == []
    assert list(web.node.root.rglob("*pod*")) == []
    assert not is_alive(web.work)
    assert not is_alive(web.beside)
