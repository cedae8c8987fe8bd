"""Host processes and exclusive CPUs: together without isolation, never together with it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.checkpoint.store import HOST_FILE
from agent.domain.idset import CpuSet
from agent.irq.affinity import DEFAULT, Affinities
from tests.vm.hostprocess import assert_kept_off, may_run_on, spinning
from tests.vm.node import (
    DRIVER,
    MOUNT,
    Json,
    Node,
    allowed,
    exclusive,
    numalet,
    running,
    text_of,
    wait_until,
)
from tests.vm.units import systemctl

pytestmark = [pytest.mark.vm, pytest.mark.matrix]

CPUS = Path("/sys/devices/system/cpu")
ONLINE = CpuSet.parse(text_of(CPUS / "online"))
CONFINED = ("init.scope", "system.slice", "user.slice")
LATE = "late.slice"
IRQS = Path("/proc/irq")
HAS_PARTITIONS = (MOUNT / "system.slice/cpuset.cpus.exclusive").exists()
"""Linux 6.7 and newer."""


@pytest.fixture(scope="module")
def spinners() -> Iterator[tuple[int, ...]]:
    with spinning("system.slice") as cron, spinning("user.slice") as login:
        yield cron, login


@pytest.fixture(scope="module")
def confining(long_running: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A daemon that keeps the host off exclusive CPUs; what it changed is undone at the end.

    The host is all that is not its own: the other daemon, if its root is a slice, would take its CPUs back.
    """
    config = {"hostIsolation": "slices", "cpuManagerReconcilePeriod": "1h"}
    with long_running.paused(), running(tmp_path_factory.mktemp("confining"), **config) as node:
        yield node
        undo(node)


@pytest.fixture(scope="module")
def affinities_before() -> Affinities:
    """Where interrupts went when no daemon had moved any."""
    return affinities()


@pytest.fixture(scope="module")
def partitioning(affinities_before: Affinities, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A daemon whose slices are partitions, and that steers interrupts, too; what it changed is undone at the end."""
    config = {"hostIsolation": "partition", "irqAffinity": True, "cpuManagerReconcilePeriod": "1h"}
    with running(tmp_path_factory.mktemp("partitioning"), **config) as node:
        yield node
        undo(node)


def undo(node: Node) -> None:
    """Give the host back what a test left confined."""
    if node.daemon is not None and node.daemon.poll() is None:
        node.end(signal.SIGTERM)
    if (node.state / HOST_FILE).exists():
        release(node)


def release(node: Node) -> str:
    """`numalet release-host`; what it says."""
    done = numalet("release-host", "--state-dir", node.state)
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
    # With slices of systemd's the reload took memory.oom.group back, which is no property.
    assert told(confining).count("had changed") == (DRIVER == "systemd"), (
        "a restart takes nothing back in between"
    )

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
            assert "AllowedCPUs" not in systemctl("show", "--value", "--property=DropInPaths", unit)
            assert CpuSet.parse(text_of(MOUNT / unit / "cpuset.cpus")) in {CpuSet(), ONLINE}
        assert "nothing" in release(confining)
    wait_until(lambda: not (MOUNT / LATE / "spin-late.service").exists(), "the spinner is gone")


def test_partitions_keep_the_host_off_and_where_there_are_none_slices_do_and_the_status_says_so(
    partitioning: Node, spinners: tuple[int, ...]
) -> None:
    stray = partitioning.outside("sleep", "600").pid
    (MOUNT / "cgroup.procs").write_text(str(stray))  # in no slice at all
    first = one_more(partitioning, exclusive("first"))
    assert_kept_off(spinners, first)
    isolated = exclusive("second", "3")
    isolated["metadata"]["annotations"] = {"numalet/cpu-isolation": "isolated"}
    second = one_more(partitioning, isolated)
    assert_kept_off(spinners, first | second)
    status = partitioning.status()
    if HAS_PARTITIONS:
        assert (status["hostIsolation"], status["problems"]) == ("partition", [])
        assert allowed(stray) == ONLINE - first - second == effective(MOUNT)
        assert kinds(partitioning) == {"first": "root", "second": "isolated"}
        assert CpuSet.parse(text_of(MOUNT / "cpuset.cpus.isolated")) == second
        assert {systemctl("show", "--value", "--property=AllowedCPUs", unit) for unit in CONFINED} == {"\n"}
    else:
        assert status["hostIsolation"] == "slices"
        (problem,) = status["problems"]
        assert (
            "partition cannot be had, slices take its place: this kernel has no cpuset.cpus.excl" in problem
        )


def test_interrupts_leave_slices_and_those_that_do_not_are_told(
    partitioning: Node, affinities_before: Affinities
) -> None:
    held, steered = held_by(partitioning), affinities()
    moved = {irq for irq, cpus in steered.items() if cpus != affinities_before[irq]}
    assert steered[DEFAULT] == ONLINE - held
    assert len(moved) > 1, "virtio's control interrupts can be moved"
    assert all(steered[irq] == (affinities_before[irq] - held or ONLINE - held) for irq in moved)
    stuck = {irq for irq, cpus in steered.items() if not cpus.isdisjoint(held)}
    notice = next(text for text in partitioning.status()["notices"] if text.startswith("interrupts "))
    assert stuck, "virtio's queues cannot"
    assert serving(stuck, held) == CpuSet.parse(notice.split()[1]), notice


def test_partitions_and_interrupts_outlive_the_daemon_and_what_others_write(
    partitioning: Node, spinners: tuple[int, ...]
) -> None:
    held, steered = held_by(partitioning), affinities()
    work = partitioning.spawn("first", "main")
    partitioning.end(signal.SIGKILL)
    assert_kept_off(spinners, held)
    partitioning.start()
    assert_kept_off(spinners, held)
    assert affinities() == steered
    assert "had changed" not in told(partitioning), "a restart takes nothing back in between"
    if HAS_PARTITIONS:
        repaired(partitioning, held)
        replugged(partitioning, held, spinners)
        assert partitioning.status()["problems"] == []
        assert kinds(partitioning) == {"first": "root", "second": "isolated"}
    assert allowed(work.pid) == effective(partitioning.cgroup("first", "main"))


def repaired(node: Node, held: CpuSet) -> None:
    """Others dissolve one partition, and then take CPUs from what is handed down to it."""
    first = node.cgroup("first", "main")
    (first / "cpuset.cpus.partition").write_text("member")
    wait_until(lambda: effective(MOUNT) == ONLINE - held, "it is a partition again")
    (node.root / "cpuset.cpus.exclusive").write_text(str(held - effective(first)))
    wait_until(lambda: "cpuset.cpus.exclusive was" in told(node), "the drift is told")
    wait_until(lambda: effective(MOUNT) == ONLINE - held, "all of them are partitions again")
    assert "cpuset.cpus.partition was member" in told(node)


def replugged(node: Node, held: CpuSet, spinners: tuple[int, ...]) -> None:
    """A CPU of a partition goes offline, and returns."""
    second = node.cgroup("second", "main")
    slice_ = effective(second)
    lost = CpuSet.of([max(slice_)])
    switch = CPUS / f"cpu{lost}/online"
    switch.write_text("0")
    try:
        wait_until(lambda: text_of(second / "cpuset.cpus") == str(slice_ - lost), "the slice is smaller")
        assert kinds(node)["second"] == "isolated", "it has been a partition all the time"
        assert_kept_off(spinners, held - lost)
    finally:
        switch.write_text("1")
    wait_until(lambda: effective(second) == slice_, "the slice has its CPU back")
    wait_until(lambda: effective(MOUNT) == ONLINE - held, "and nobody else")


def test_all_comes_back_with_the_end_of_pods_and_with_release_host(
    partitioning: Node, spinners: tuple[int, ...], affinities_before: Affinities
) -> None:
    def is_as_before() -> bool:
        return affinities() == affinities_before and effective(MOUNT) == ONLINE

    held = held_by(partitioning)
    first = effective(partitioning.cgroup("first", "main"))
    partitioning.delete("first")
    assert_kept_off(spinners, held - first)
    assert all(first <= allowed(pid) for pid in spinners)
    partitioning.delete("second")
    assert is_as_before()
    assert all(allowed(pid) == ONLINE for pid in spinners)
    assert partitioning.status()["notices"] == []

    held = one_more(partitioning, exclusive("third"))
    cgroup = partitioning.cgroup("third", "main")
    assert not is_as_before()
    partitioning.end(signal.SIGKILL)
    assert "back" in release(partitioning)
    assert is_as_before()
    assert all(allowed(pid) == ONLINE for pid in spinners)
    assert effective(cgroup) == held


def one_more(node: Node, pod: Json) -> CpuSet:
    """Admit a pod; which CPUs it has for itself."""
    before = held_by(node)
    node.admit(pod)
    return held_by(node) - before


def kinds(node: Node) -> dict[str, str]:
    """What the kernel shows of each pod's slice."""
    return {name: text_of(node.cgroup(name, "main") / "cpuset.cpus.partition") for name in node.pods()}


def effective(cgroup: Path) -> CpuSet:
    return CpuSet.parse(text_of(cgroup / "cpuset.cpus.effective"))


def affinities() -> Affinities:
    """Where each interrupt may go, and new ones."""
    found = {one.name: CpuSet.parse(text_of(one / "smp_affinity_list")) for one in IRQS.glob("[0-9]*")}
    return {**found, DEFAULT: CpuSet.parse_mask(text_of(IRQS / "default_smp_affinity"))}


def serving(irqs: set[str], held: CpuSet) -> CpuSet:
    """Those of ``irqs`` that the hardware delivers to one of ``held``."""
    where = {irq: CpuSet.parse(text_of(IRQS / irq / "effective_affinity_list")) for irq in irqs}
    return CpuSet.of(int(irq) for irq, cpus in where.items() if not cpus.isdisjoint(held))
