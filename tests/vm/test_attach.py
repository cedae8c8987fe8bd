"""`numalet attach`: running processes move into a container, with threads and descendants."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agent.cli.processes import Processes
from agent.domain.idset import CpuSet
from agent.errors import HostError
from tests.vm.node import Node, exclusive, mixed, numalet, pids_in, wait_until

pytestmark = pytest.mark.vm

THREADS = (
    "import threading, time; [threading.Thread(target=time.sleep, args=(600,)).start() for _ in range(3)]"
)


def masks(pid: int) -> set[str]:
    """Where each thread may run."""
    texts = [task.read_text() for task in Path(f"/proc/{pid}/task").glob("*/status")]
    return {line.split()[1] for text in texts for line in text.splitlines() if "Cpus_allowed_list" in line}


def test_a_process_moves_with_all_its_threads(node: Node) -> None:
    cpus = node.admit(mixed("web"))["containers"][0]["cpus"]
    process = node.outside(sys.executable, "-SEc", THREADS)
    wait_until(lambda: len(list(Path(f"/proc/{process.pid}/task").iterdir())) == 4, "its threads run")
    done = numalet("attach", "--socket", node.client.path, "web", "main", "--pid", str(process.pid))
    assert (done.returncode, done.stdout) == (0, f"moved to main of web: {process.pid}\n"), done.stderr
    assert masks(process.pid) == {cpus}
    wait_until(lambda: node.pods()["web"]["containers"][0]["state"] == "running", "main runs")


def test_a_tree_moves_with_what_is_born_meanwhile(node: Node) -> None:
    node.admit(mixed("web"))
    forking = "sh -c 'sleep 600 & sleep 600' & while :; do sleep 0.05; done"
    process = node.outside("sh", "-c", forking)
    processes, cgroup = Processes(node.root), node.cgroup("web", "side")
    wait_until(lambda: len(list(processes.descendants(process.pid))) >= 3, "its descendants run")
    moved = list(processes.move_tree(process.pid, cgroup))
    assert len(moved) >= 4
    assert {process.pid, *processes.descendants(process.pid)} <= {*moved, *pids_in(cgroup)}
    assert set(processes.move_tree(process.pid, cgroup)) == set()


def test_what_is_not_to_be_moved_is_refused_with_the_reason(node: Node) -> None:
    node.admit(mixed("web"))
    node.admit(exclusive("other"))
    processes, cgroup = Processes(node.root, names=node.names), node.cgroup("web", "main")
    held = node.spawn("other", "main")
    ended = node.outside("true")
    wait_until(lambda: ") Z " in Path(f"/proc/{ended.pid}/stat").read_text(), "it is a zombie")
    reasons = {
        1: "process 1 is the machine's init",
        2: "process 2 is a kernel thread",
        1 << 22: f"there is no process {1 << 22}",
        held.pid: f"process {held.pid} is already in another pod's cgroup, {node.at('poduid-other/main')}",
        ended.pid: f"process {ended.pid} has ended: its parent has yet to take note",
    }
    for pid, reason in reasons.items():
        with pytest.raises(HostError) as caught:
            processes.check(pid, cgroup, force=False)
        assert caught.value.message == reason
    done = numalet("attach", "--socket", node.client.path, "web", "main", "--pid", str(held.pid))
    assert (done.returncode, done.stdout) == (2, "")
    assert "to move it all the same: --force" in done.stderr
    processes.check(held.pid, cgroup, force=True)
    assert processes.move(held.pid, cgroup) == (held.pid,)
    assert masks(held.pid) == {str(CpuSet.parse(node.pods()["web"]["containers"][0]["cpus"]))}


def test_a_cgroup_with_cgroups_of_its_own_takes_no_process(node: Node) -> None:
    node.admit(mixed("web"))
    cgroup = node.cgroup("web", "main")
    (cgroup / "nested").mkdir()
    (cgroup / "cgroup.subtree_control").write_text("+memory")
    process = node.outside("sleep", "600")
    try:
        with pytest.raises(HostError, match="passes controllers on to cgroups that were made in it"):
            Processes(node.root).move(process.pid, cgroup)
    finally:
        (cgroup / "cgroup.subtree_control").write_text("-memory")
        (cgroup / "nested").rmdir()
