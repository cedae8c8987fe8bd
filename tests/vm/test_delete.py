"""Deletion: processes are asked, then killed; their CPUs are free when the last one is gone."""

from __future__ import annotations

import signal
import subprocess
import threading
import time

import pytest

from agent.api.client import ControlError
from agent.cli.work import container_cgroup
from agent.domain.idset import CpuSet
from tests.vm.node import Node, amounts, container, is_alive, pod, process_status, wait_until

pytestmark = pytest.mark.vm

POLITE = "trap 'exit 0' TERM; while :; do sleep 0.1; done"
DEAF = "trap '' TERM; while :; do sleep 0.1; done"


def big(name: str) -> dict[str, object]:
    """A pod there is room for once."""
    return pod(
        name, container("main", amounts("6", "64Mi")), container("side"), resources=amounts("8", "1Gi")
    )


def spawn(node: Node, container: str, script: str) -> subprocess.Popen[bytes]:
    """Run a shell in a container; return when it has set what SIGTERM does."""
    process = node.spawn("web", container, "sh", "-c", script)

    def trapped() -> bool:
        status = process_status(process.pid)
        masks = int(status["SigCgt"], 16) | int(status["SigIgn"], 16)
        return bool(masks >> signal.SIGTERM - 1 & 1)

    wait_until(trapped, "it is not killed by SIGTERM")
    return process


@pytest.mark.matrix
def test_a_process_that_ends_when_asked_is_not_killed(node: Node) -> None:
    node.admit(big("web"))
    asked = [spawn(node, "main", POLITE), spawn(node, "side", POLITE)]
    began = time.monotonic()
    node.delete("web", grace=30)
    assert time.monotonic() - began < 25
    assert [process.wait(5) for process in asked] == [0, 0]
    assert (node.pods(), node.cgroups()) == ({}, [])
    assert "pods/uid-web.json" not in node.files()


def test_cpus_return_when_the_last_process_is_killed_after_the_grace_period(node: Node) -> None:
    held = CpuSet.parse(str(node.admit(big("web"))["cpus"]))
    deaf = spawn(node, "main", DEAF)
    began = time.monotonic()
    deletion = threading.Thread(target=node.delete, args=("web", 6))
    deletion.start()
    (early,) = node.apply(big("next"))
    assert early["verdict"] == "rejected"
    samples = 0
    while deletion.is_alive():
        exclusive = CpuSet.parse(node.status()["cpus"]["exclusive"])
        if is_alive(deaf.pid):  # read after the answer: it lived when that was made
            samples += 1
            assert exclusive == held
        time.sleep(0.3)
    assert time.monotonic() - began >= 6
    assert samples >= 2
    assert deaf.wait(5) == -9
    assert node.cgroups() == []
    assert node.status()["cpus"]["exclusive"] == ""
    assert node.admit(big("next"))["cpus"] == str(held)


def test_a_pod_that_is_leaving_takes_no_new_work(node: Node) -> None:
    node.admit(big("web"))
    spawn(node, "main", DEAF)
    deletion = threading.Thread(target=node.delete, args=("web", 5))
    deletion.start()
    wait_until(lambda: bool(node.pod("web")["leaving"]), "the deletion has begun")
    with pytest.raises(ControlError, match="is being deleted"):
        container_cgroup(node.client, "web", "side")
    deletion.join()
    assert (node.pods(), node.cgroups()) == ({}, [])
