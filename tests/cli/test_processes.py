"""Which processes may be moved into a container: /proc and the cgroups are ordinary directories here."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.cgroup.naming import SliceNames
from agent.cli.processes import Processes
from agent.errors import HostError

KTHREAD = 0x00200000 | 0x40


class Machine:
    def __init__(self, root: Path) -> None:
        (root / "cgroup").mkdir()
        (root / "cgroup" / "cgroup.controllers").write_text("cpu\n")
        self.cgroups, self.proc = root / "cgroup", root / "proc"
        self.processes = Processes(self.cgroups / "numalet", self.proc)
        self.main = self.container("poda/main")

    def container(self, directory: str) -> Path:
        cgroup = self.cgroups / "numalet" / directory
        cgroup.mkdir(parents=True)
        return cgroup

    def process(self, pid: int, cgroup: str = "/user.slice", *, state: str = "S", flags: int = 0x40) -> None:
        directory = self.proc / str(pid)
        directory.mkdir(parents=True)
        (directory / "stat").write_text(f"{pid} (a ) Z (b) {state} 1 1 1 0 -1 {flags} 0 0\n")
        (directory / "cgroup").write_text(f"1:name=systemd:/x\n0::{cgroup}\n")

    def refusal(self, pid: int) -> str:
        with pytest.raises(HostError) as caught:
            self.processes.check(pid, self.main, force=False)
        return caught.value.message


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_what_is_not_to_be_moved_is_refused_with_the_reason(machine: Machine) -> None:
    machine.process(1)
    machine.process(2, flags=KTHREAD)
    machine.process(7, state="Z")
    machine.process(8, "/numalet/burstable/podb/shared.pool/main")
    assert machine.refusal(1) == "process 1 is the machine's init"
    assert machine.refusal(2) == "process 2 is a kernel thread"
    assert machine.refusal(6) == "there is no process 6"
    assert machine.refusal(7) == "process 7 has ended: its parent has yet to take note"
    other = f"{machine.cgroups}/numalet/burstable/podb/shared.pool/main"
    assert machine.refusal(8) == f"process 8 is already in another pod's cgroup, {other}"


@pytest.mark.parametrize(
    "cgroup",
    [
        pytest.param("/user.slice/session-1.scope", id="outside"),
        pytest.param("/numalet", id="in the root of ours"),
        pytest.param("/numalet/poda/shared.pool/side", id="in another container of the pod"),
        pytest.param("/numalet/poda/main/nested", id="in a cgroup of the workload"),
        pytest.param("/numalet-2/podb/main", id="in a pod of another numalet"),
    ],
)
def test_a_process_that_is_in_no_other_pod_may_be_moved(machine: Machine, cgroup: str) -> None:
    machine.process(9, cgroup)
    machine.processes.check(9, machine.main, force=False)
    assert machine.processes.move(9, machine.main) == (9,)
    assert (machine.main / "cgroup.procs").read_text() == "9"


def test_a_process_of_another_pod_is_moved_by_force(machine: Machine) -> None:
    machine.process(9, "/numalet/podb/main")
    machine.processes.check(9, machine.main, force=True)


def test_pods_that_are_slices_are_told_apart_too(machine: Machine) -> None:
    main = machine.cgroups / "numalet.slice/numalet-poda.slice/numalet-poda-main.slice"
    main.mkdir(parents=True)
    root = machine.cgroups / "numalet.slice"
    processes = Processes(root, machine.proc, SliceNames(root.name))
    machine.process(8, "/numalet.slice/numalet-poda.slice/numalet-poda-side.slice")
    processes.check(8, main, force=False)
    machine.process(9, "/numalet.slice/numalet-podb.slice/numalet-podb-main.slice/job.service")
    with pytest.raises(HostError, match="in another pod's cgroup"):
        processes.check(9, main, force=False)


def test_a_process_that_is_there_is_left_alone(machine: Machine) -> None:
    machine.process(9, "/numalet/poda/main")
    assert machine.processes.move(9, machine.main) == ()
    assert not (machine.main / "cgroup.procs").exists()


def test_a_container_that_is_gone_is_named(machine: Machine) -> None:
    machine.process(9)
    gone = machine.cgroups / "numalet/podc/main"
    with pytest.raises(HostError) as caught:
        machine.processes.move(9, gone)
    assert caught.value.message == f"cannot move process 9 to {gone}: the cgroup was removed"
