"""`numalet exec`: the process joins the container, then is the command."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from agent.domain.idset import CpuSet
from tests.vm.node import NUMALET, Node, allowed, is_command, mixed, numalet, pids_in, wait_until
from tests.vm.units import Unit, systemctl

pytestmark = pytest.mark.vm


@pytest.fixture(autouse=True)
def _a_pod(node: Node) -> None:
    node.admit(mixed("web"))


def exec_command(node: Node, *words: str) -> list[str]:
    return ["exec", "--socket", str(node.client.path), *words]


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        pytest.param("web main -- sh -c", 7, "", id="the command's own"),
        pytest.param("web main -- /etc/passwd", 126, "/etc/passwd: Permission denied", id="not a program"),
        pytest.param("web main -- /no/such", 127, "/no/such: No such file", id="no such program"),
        pytest.param("nobody main -- true", 4, "no pod default/nobody", id="no such pod"),
        pytest.param("web nothing -- true", 4, "it has: main, side", id="no such container"),
        pytest.param("--socket /none web main -- true", 3, "no daemon answers on /none", id="no daemon"),
    ],
)
def test_the_exit_status_tells_what_happened(node: Node, words: str, status: int, told: str) -> None:
    command = exec_command(node, *words.split(), *(["exit 7"] if words.endswith("-c") else []))
    done = numalet(*command)
    assert done.returncode == status
    assert told in done.stderr


def test_the_command_keeps_the_process_and_gets_its_signals(node: Node, tmp_path: Path) -> None:
    script = f"trap 'exit 5' USR1; echo $$ >{tmp_path}/pid; while :; do sleep 0.1; done"
    process = subprocess.Popen([*NUMALET, *exec_command(node, "web", "main", "sh", "-c", script)])
    node.processes.append(process)
    wait_until((tmp_path / "pid").exists, "the command runs")
    wait_until(lambda: (tmp_path / "pid").read_text() == f"{process.pid}\n", "it is the same process")
    assert process.pid in pids_in(node.cgroup("web", "main"))
    assert allowed(process.pid) == CpuSet.parse(node.pods()["web"]["containers"][0]["cpus"])
    process.send_signal(signal.SIGUSR1)
    assert process.wait(10) == 5


def test_a_systemd_service_runs_in_a_container_by_a_prefix(node: Node, tmp_path: Path) -> None:
    start = f"/usr/local/bin/numalet exec --socket {node.client.path} web side -- /bin/sleep 600"
    with Unit("numalet-test-work.service", f"[Service]\nExecStart={start}\n") as unit:
        systemctl("start", unit.name)
        cgroup = node.cgroup("web", "side")
        wait_until(lambda: bool(pids_in(cgroup)), "the service has joined the container")
        (pid,) = pids_in(cgroup)
        wait_until(lambda: is_command(pid, "sleep"), "it is the command")
        assert allowed(pid) == CpuSet.parse(node.pods()["web"]["containers"][1]["cpus"])
        assert (unit.main_pid, unit.show("ActiveState")) == (pid, "active")
        systemctl("stop", unit.name)
        assert pids_in(cgroup) == []
        assert unit.show("Result") == "success"
