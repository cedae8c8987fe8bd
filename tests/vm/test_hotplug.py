"""CPUs go offline and return under pods that run: slices shrink and grow in the kernel, nobody else is touched."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.domain.idset import CpuSet
from tests.vm.node import Node, allowed, best_effort, exclusive, mixed, running, text_of, wait_until

pytestmark = pytest.mark.vm

CPUS = Path("/sys/devices/system/cpu")


def set_online(cpu: int, state: str) -> None:
    (CPUS / f"cpu{cpu}/online").write_text(state)


@pytest.fixture(scope="module")
def hotplugged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A daemon that reconciles too seldom to help."""
    before = CpuSet.parse(text_of(CPUS / "online"))
    config = {"cpuManagerReconcilePeriod": "10m", "reservedSystemCPUs": "0"}
    with running(tmp_path_factory.mktemp("node"), **config) as node:
        yield node
        for cpu in before - CpuSet.parse(text_of(CPUS / "online")):
            set_online(cpu, "1")


def effective(node: Node, pod: str, container: str) -> CpuSet:
    return CpuSet.parse(text_of(node.cgroup(pod, container) / "cpuset.cpus.effective"))


def test_a_slice_shrinks_and_gets_its_cpu_back_also_over_a_restart(hotplugged: Node) -> None:
    node = hotplugged
    for pod in (mixed("web"), exclusive("neighbour"), best_effort("guest")):
        node.admit(pod)
    names = (("web", "main"), ("web", "side"), ("neighbour", "main"), ("guest", "main"))
    processes = {name: node.spawn(*name) for name in names}
    placed = {name: allowed(process.pid) for name, process in processes.items()}
    slice_ = placed["web", "main"]
    lost, rest = max(slice_), CpuSet.of(list(slice_)[:-1])
    others = {name: cpus for name, cpus in placed.items() if name != ("web", "main")}

    def now() -> dict[tuple[str, str], CpuSet]:
        return {name: allowed(process.pid) for name, process in processes.items()}

    set_online(lost, "0")
    wait_until(lambda: node.pod("web")["degraded"] != [], "the pod is degraded")
    assert str(CpuSet.of([lost])) in node.pod("web")["degraded"][0]
    assert now() == others | {("web", "main"): rest}
    assert effective(node, "web", "main") == rest
    assert node.page("/readyz") == (200, "ok\n")
    assert node.pod("neighbour")["degraded"] == node.pod("guest")["degraded"] == []

    assert node.end(signal.SIGKILL) == -9
    node.start()
    assert now() == others | {("web", "main"): rest}
    assert node.pod("web")["degraded"] != []
    assert node.pod("web")["cpus"] == str(slice_ | placed["web", "side"])

    set_online(lost, "1")
    wait_until(lambda: node.pod("web")["degraded"] == [], "the pod has its CPU again")
    assert now() == placed
    assert effective(node, "web", "main") == slice_
    log = node.log.read_text()
    assert log.count("pod default/web has all it holds again") == 1


def test_the_shared_pool_follows_and_what_was_released_meanwhile_joins_it(hotplugged: Node) -> None:
    node = hotplugged
    held = CpuSet.parse(node.pod("neighbour")["containers"][0]["cpus"])
    shared = CpuSet.parse(node.status()["cpus"]["shared"])
    gone = CpuSet.of([max(held), max(shared)])
    for cpu in gone:
        set_online(cpu, "0")
    left = shared - gone
    wait_until(lambda: effective(node, "guest", "main") == left, "the pool is smaller")
    node.delete("neighbour")
    wait_until(lambda: effective(node, "guest", "main") == left | held - gone, "the pool has what is online")
    for cpu in gone:
        set_online(cpu, "1")
    wait_until(lambda: effective(node, "guest", "main") == shared | held, "the pool has everything")
    assert node.status()["problems"] == []


def test_who_loses_every_cpu_waits_in_the_shared_pool(hotplugged: Node) -> None:
    node = hotplugged
    node.admit(exclusive("short"))
    process = node.spawn("short", "main")
    own = allowed(process.pid)
    for cpu in own:
        set_online(cpu, "0")
    pool = CpuSet.parse(node.status()["cpus"]["shared"])
    wait_until(lambda: allowed(process.pid) == pool, "it runs in the shared pool")
    for cpu in own:
        set_online(cpu, "1")
    wait_until(lambda: allowed(process.pid) == own, "it has its CPUs again")
    assert node.page("/readyz") == (200, "ok\n")
