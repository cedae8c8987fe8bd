"""The machine reboots with pods: `scripts/vm-lane` runs this in one boot, and again in another on what that left."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from agent.domain.idset import CpuSet
from tests.vm.node import Json, Node, allowed, best_effort, exclusive, mixed, running

pytestmark = pytest.mark.vm

BEFORE = os.environ.get("NUMALET_BEFORE")
"""What the first boot left; unset there."""
LEFT = Path("/results/reboot")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def allocations(node: Node) -> Json:
    """What each pod was given; cgroup paths name the test's own root."""
    pods = node.pods()
    for pod in pods.values():
        for container in pod["containers"]:
            del container["cgroup"]
    return pods


def test_pods_have_the_same_allocations_and_new_cgroups_after_a_reboot(tmp_path: Path) -> None:
    if BEFORE is None:
        leave_pods_behind(tmp_path)
    else:
        find_them_again(tmp_path, Path(BEFORE))


def leave_pods_behind(work: Path) -> None:
    with running(work) as node:
        for pod in (mixed("web"), exclusive("db"), best_effort("log")):
            node.admit(pod)
        node.spawn("web", "main")
        pods = allocations(node)
        assert node.end(signal.SIGKILL) == -9
        shutil.copytree(node.state, LEFT / "state", ignore=shutil.ignore_patterns("*.sock"))
    (LEFT / "pods.json").write_text(json.dumps(pods))
    (LEFT / "boot_id").write_text(BOOT_ID.read_text())


def find_them_again(work: Path, before: Path) -> None:
    assert BOOT_ID.read_text() != (before / "boot_id").read_text(), "this is another boot"
    node = Node(work)
    try:
        shutil.copytree(before / "state", node.state)
        node.start()
        assert allocations(node) == json.loads((before / "pods.json").read_text())
        assert node.client.call("GET", "/v1/deviations")["deviations"] == []
        assert (node.status()["problems"], node.page("/readyz")) == ([], (200, "ok\n"))
        assert "the machine was booted since" in node.log.read_text()
        main = next(c for c in node.pods()["web"]["containers"] if c["name"] == "main")
        assert allowed(node.spawn("web", "main").pid) == CpuSet.parse(main["cpus"])
    finally:
        node.close()
