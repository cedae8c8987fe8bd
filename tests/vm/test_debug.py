"""`numalet debug`: ephemeral work within a pod's limits, on none of its CPUs."""

from __future__ import annotations

import signal
import subprocess

import pytest

from agent.domain.idset import CpuSet
from tests.vm.node import (
    NUMALET,
    Node,
    allowed,
    amounts,
    container,
    is_command,
    pids_in,
    pod,
    text_of,
    wait_until,
)

pytestmark = pytest.mark.vm


@pytest.fixture
def web(node: Node) -> CpuSet:
    """An exclusive container that runs, in a pod with 48 MiB; its CPUs."""
    held = node.admit(pod("web", container("main", amounts("4", "48Mi"))))
    node.spawn("web", "main")
    return CpuSet.parse(held["containers"][0]["cpus"])


def debug(node: Node, *command: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([*NUMALET, "debug", "--socket", str(node.client.path), "web", "--", *command])
    node.processes.append(process)
    return process


def test_debug_work_runs_on_the_node_shared_pool_also_when_the_daemon_starts_again(
    node: Node, web: CpuSet
) -> None:
    cgroup = node.at("poduid-web/debug-1")
    process = debug(node, "sleep", "600")
    wait_until(lambda: is_command(process.pid, "sleep"), "it is the command")
    assert pids_in(cgroup) == [process.pid]
    shared = CpuSet.parse(node.status()["cpus"]["shared"])
    assert allowed(process.pid) == shared
    assert shared.isdisjoint(web)
    assert [c["name"] for c in node.pods()["web"]["ephemeralContainers"]] == ["debug-1"]
    assert node.end(signal.SIGKILL) == -signal.SIGKILL
    node.start()
    assert allowed(process.pid) == shared
    process.kill()
    process.wait()
    wait_until(lambda: not cgroup.exists(), "its cgroup is removed")
    assert node.pods()["web"]["ephemeralContainers"] == []  # the daemon has done all of it when it answers
    assert text_of(cgroup.parent / "cpuset.cpus") == str(web)


def test_debug_work_is_held_to_the_memory_limit_of_its_pod(node: Node, web: CpuSet) -> None:
    main = pids_in(node.cgroup("web", "main"))
    eater = debug(node, "sh", "-c", "head -c 128M /dev/zero | tail | wc -c")
    assert eater.wait(60) == -signal.SIGKILL
    assert pids_in(node.cgroup("web", "main")) == main
    assert "oom_kill 0" not in text_of(node.at("poduid-web") / "memory.events").splitlines()
