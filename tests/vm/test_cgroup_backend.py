"""`CgroupFs` on the real kernel: the contract the fake keeps, and what only processes can show."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.cgroup import layout
from agent.cgroup.backend import EnforcementError, apply
from agent.cgroup.cgroupfs import CgroupFs
from agent.cgroup.diff import deviations, diff
from agent.cgroup.layout import CgroupDir
from agent.cgroup.plan import plan
from agent.cgroup.preflight import mount_of, preflight
from agent.cgroup.tree import Wanted
from agent.domain.idset import CpuSet
from agent.domain.pod import PodUid
from tests.cgroup.contract import MAIN, POD, BackendContract, ControllerContract, PartitionContract, open_up
from tests.cgroup.worlds import World, app, pinned, pod
from tests.vm.kernelhost import MOUNT, KernelHost, prepared

pytestmark = [pytest.mark.vm, pytest.mark.matrix]

A, B = PodUid("a"), PodUid("b")
WEB = CgroupDir("besteffort/poda/shared.pool/web")
BUSY = "while True: pass"
HAS_PARTITIONS = (MOUNT / "system.slice/cpuset.cpus.exclusive").exists()


ROOT_DIR = MOUNT / "numalet-test"


@pytest.fixture
def host() -> Iterator[KernelHost]:
    with prepared(CgroupFs(ROOT_DIR), ROOT_DIR) as host:
        yield host


@pytest.fixture
def tree(host: KernelHost) -> Wanted:
    return host.tree()


class TestKernel(BackendContract, ControllerContract):
    pass


if HAS_PARTITIONS:

    class TestPartitions(PartitionContract):
        pass

else:  # before Linux 6.7

    def test_a_kernel_without_remote_partitions_does_not_offer_them(host: KernelHost) -> None:
        open_up(host.backend)
        assert "cpuset.cpus.exclusive" not in host.backend.offer().files
        with pytest.raises(EnforcementError) as caught:
            host.backend.write(MAIN, "cpuset.cpus.exclusive", "2-3")
        assert caught.value.code == "ENOENT"


def shared_only(host: KernelHost) -> World:
    return World(topology=host.topology, pods={A: pod("a", app("web"))})


def with_exclusive(host: KernelHost) -> World:
    world = shared_only(host)
    world.pods[B] = pod("b", app("fast", pinned("2", "64Mi")))
    world.cpus = {B: {"fast": CpuSet.parse("2-3")}}
    return world


def enforce(host: KernelHost, world: World) -> Wanted:
    wanted = plan(world.facts(host.backend.offer()))
    apply(host.backend, diff(wanted, host.backend.observe()))
    return wanted


def allowed(pid: int) -> CpuSet:
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return CpuSet.parse(status["Cpus_allowed_list"].strip())


def test_a_running_process_leaves_the_slice_before_the_exclusive_cgroup_exists(host: KernelHost) -> None:
    enforce(host, shared_only(host))
    web = host.spawn()
    host.backend.add_process(WEB, web)
    exclusive = CpuSet.parse("2-3")
    assert not allowed(web).isdisjoint(exclusive)
    wanted = plan(with_exclusive(host).facts(host.backend.offer()))
    for op in diff(wanted, host.backend.observe()):
        apply(host.backend, [op])
        if host.backend.exists(CgroupDir("podb")):
            assert allowed(web).isdisjoint(exclusive)
    fast = host.spawn()
    host.backend.add_process(CgroupDir("podb/fast"), fast)
    assert allowed(fast) == exclusive
    assert deviations(wanted, host.backend.observe()) == ()


def test_processes_of_a_pod_nobody_knows_share_with_all_and_its_cgroup_goes_with_the_last(
    host: KernelHost,
) -> None:
    enforce(host, with_exclusive(host))
    fast, web = host.spawn(), host.spawn()
    host.backend.add_process(CgroupDir("podb/fast"), fast)
    host.backend.add_process(WEB, web)
    enforce(host, shared_only(host))
    assert host.backend.procs(CgroupDir("podb/fast")) == (fast,)
    assert allowed(fast) == allowed(web) == host.topology.online
    host.backend.kill(CgroupDir("podb"))
    assert host.processes[0].wait(60) == -9
    enforce(host, shared_only(host))
    assert not host.backend.exists(CgroupDir("podb"))
    assert host.backend.procs(WEB) == (web,)


def test_an_exclusive_container_is_never_throttled_while_its_neighbours_are(host: KernelHost) -> None:
    tenant = pod("b", app("main", pinned("1", "64Mi")), app("rest"), budget=pinned("1100m", "128Mi"))
    world = World(topology=host.topology, pods={B: tenant}, cpus={B: {"main": CpuSet.parse("3")}})
    enforce(host, world)
    main, rest = CgroupDir("podb/main"), CgroupDir("podb/shared.pool/rest")
    host.backend.add_process(main, host.spawn(sys.executable, "-c", BUSY))
    host.backend.add_process(rest, host.spawn(sys.executable, "-c", BUSY))
    deadline = time.monotonic() + 20
    while host.backend.stat(layout.parent_of(rest))["nr_throttled"] < 3 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert host.backend.stat(layout.parent_of(rest))["nr_throttled"] >= 3
    for directory in (main, CgroupDir("podb")):
        assert host.backend.stat(directory)["nr_throttled"] == 0


def test_memory_in_use_is_not_cut_off(host: KernelHost) -> None:
    open_up(host.backend)
    code = "import time; held = bytearray(32 << 20); held[::4096] = b'x' * len(held[::4096]); time.sleep(600)"
    script = f"import pathlib; pathlib.Path({str(MOUNT / 'numalet-test' / MAIN / 'cgroup.procs')!r}).write_text('0'); {code}"
    host.spawn(sys.executable, "-c", script)
    deadline = time.monotonic() + 30
    while host.backend.stat(MAIN)["memory.current"] < 32 << 20 and time.monotonic() < deadline:
        time.sleep(0.1)
    with pytest.raises(EnforcementError, match="would kill"):
        host.backend.write(MAIN, "memory.max", str(8 << 20))
    assert host.backend.read(MAIN, "memory.max") == "max"


def test_a_forking_process_tree_dies_as_a_whole(host: KernelHost) -> None:
    open_up(host.backend)
    tree = host.spawn("sh", "-c", "sleep 1; while :; do sleep 600 & sleep 0.01; done")
    host.backend.add_process(MAIN, tree)
    time.sleep(1.5)
    host.backend.kill(POD)
    assert host.backend.procs(MAIN) == ()


def test_taking_cpuset_away_and_back_is_healed(host: KernelHost) -> None:
    wanted = enforce(host, with_exclusive(host))
    for directory in (
        "besteffort/poda/shared.pool",
        "besteffort/poda",
        "besteffort",
        "burstable",
        "podb",
        "",
    ):
        (ROOT_DIR / directory / "cgroup.subtree_control").write_text("-cpuset")
    assert deviations(wanted, host.backend.observe())
    enforce(host, with_exclusive(host))
    assert deviations(wanted, host.backend.observe()) == ()


def test_the_hosts_own_cgroups_are_problems_as_they_should_be(host: KernelHost) -> None:
    assert mount_of(ROOT_DIR) == MOUNT
    assert [problem for problem in preflight(ROOT_DIR) if problem.blocking] == []
    own = Path("/proc/self/cgroup").read_text().strip().rpartition("::")[2]
    problems = [problem.text for problem in preflight(MOUNT / own.lstrip("/") / "numalet")]
    assert any("holds processes" in text for text in problems)
