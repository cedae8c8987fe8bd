"""Host processes and exclusive CPUs: together without isolation, never together with it."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.domain.idset import CpuSet
from tests.vm.hostprocess import assert_kept_off, may_run_on, spinning
from tests.vm.node import MOUNT, NUMALET, PATIENCE, Node, allowed, exclusive, running, text_of, wait_until
from tests.vm.units import systemctl

pytestmark = [pytest.mark.vm, pytest.mark.matrix]

ONLINE = CpuSet.parse(text_of(Path("/sys/devices/system/cpu/online")))
CONFINED = ("init.scope", "system.slice", "user.slice")
LATE = "late.slice"
"""Nobody else's: what was released keeps a drop-in with an empty AllowedCPUs until the next boot (docs/isolation.md)."""


@pytest.fixture(scope="module")
def spinners() -> Iterator[tuple[int, ...]]:
    with spinning("system.slice") as cron, spinning("user.slice") as login:
        yield cron, login


@pytest.fixture(scope="module")
def confining(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A daemon that keeps the host off exclusive CPUs; what it changed is undone at the end."""
    config = {"hostIsolation": "slices", "cpuManagerReconcilePeriod": "1h"}
    with running(tmp_path_factory.mktemp("confining"), **config) as node:
        yield node
        if node.daemon is not None and node.daemon.poll() is None:
            node.end(signal.SIGTERM)
        release(node)


def release(node: Node) -> str:
    """`numalet release-host`; what it says."""
    command = [*NUMALET, "release-host", "--state-dir", str(node.state)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def told(node: Node) -> str:
    """All events."""
    return "\n".join(event["text"] for event in node.client.call("GET", "/v1/events")["events"])


def held_by(node: Node) -> CpuSet:
    return CpuSet.parse(node.status()["cpus"]["exclusive"])


def test_without_isolation_the_host_may_run_on_exclusive_cpus_and_the_status_says_so(
    node: Node, spinners: tuple[int, ...]
) -> None:
    assert node.status()["notices"] == []
    node.admit(exclusive("alone"))
    held = held_by(node)
    assert all(may_run_on(pid, cpu) for pid in spinners for cpu in held)
    status = node.status()
    assert status["hostIsolation"] == "none"
    assert "hostIsolation: slices" in status["notices"][0]
    assert status["problems"] == []


def test_slices_keep_the_host_off_through_a_daemon_reload_and_the_death_of_the_daemon(
    confining: Node, spinners: tuple[int, ...]
) -> None:
    confining.admit(exclusive("one"))
    first = held_by(confining)
    assert_kept_off(spinners, first)
    confining.admit(exclusive("two", "3"))
    held = held_by(confining)
    assert len(held) == 5
    assert_kept_off(spinners, held)
    assert confining.status()["hostIsolation"] == "slices"
    assert confining.status()["problems"] == []
    systemctl("daemon-reload")
    assert_kept_off(spinners, held)

    confining.end(signal.SIGKILL)
    assert_kept_off(spinners, held)
    systemctl("daemon-reload")
    confining.start()
    assert_kept_off(spinners, held)
    assert "had changed" not in told(confining), "a restart takes nothing back in between"

    confining.delete("one")
    assert_kept_off(spinners, held - first)
    assert all(first <= allowed(pid) for pid in spinners)
    confining.delete("two")
    assert all(allowed(pid) == ONLINE for pid in spinners)


def test_a_slice_that_comes_later_is_confined_and_release_host_gives_all_back(
    confining: Node, spinners: tuple[int, ...]
) -> None:
    if confining.daemon is None or confining.daemon.poll() is not None:
        confining.start()
    confining.admit(exclusive("three"))
    held = held_by(confining)
    with spinning(LATE) as late:
        assert may_run_on(late, next(iter(held)))
        confining.client.call("DELETE", "/v1/pods/default/three?grace=0")
        confining.admit(exclusive("three"))
        assert_kept_off((late, *spinners), held_by(confining))
        confining.end(signal.SIGKILL)
        assert "back" in release(confining)
        assert all(allowed(pid) == ONLINE for pid in (late, *spinners))
        for unit in (*CONFINED, LATE):
            assert systemctl("show", "--value", "--property=AllowedCPUs", unit).strip() == ""
            assert CpuSet.parse(text_of(MOUNT / unit / "cpuset.cpus")) in {CpuSet(), ONLINE}
        assert "nothing" in release(confining)
    wait_until(lambda: not (MOUNT / LATE / "spin-late.service").exists(), "the spinner is gone")
