"""Limits as the kernel has them, and as processes meet them."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from agent.domain.idset import CpuSet
from tests.vm.node import (
    MOUNT,
    Node,
    allowed,
    amounts,
    best_effort,
    container,
    exclusive,
    pod,
    process_status,
    running,
    text_of,
    wait_until,
)

pytestmark = [pytest.mark.vm, pytest.mark.matrix]

MIB = 1 << 20
ONLINE = Path("/sys/devices/system/cpu/online")
NODE1_CPUS = Path("/sys/devices/system/node/node1/cpulist")
NODE1_PAGES = Path("/sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages")
TOUCH_PAGES = """\
import mmap, sys
size = int(sys.argv[1]) << 21
try:
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000)
except OSError as error:
    sys.exit(error.errno)
for at in range(0, size, 1 << 21):
    pages[at] = 1
assert any("huge" in line and " N1=" in line for line in open("/proc/self/numa_maps"))
"""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Huge pages on NUMA node 1 alone; pods on one NUMA node each, with 48 processes at the most."""
    with ExitStack() as stack:
        NODE1_PAGES.write_text("16")
        stack.callback(lambda: NODE1_PAGES.write_text("0"))
        assert text_of(NODE1_PAGES) == "16"
        config = {"topologyManagerPolicy": "single-numa-node", "podPidsLimit": 48}
        yield stack.enter_context(running(tmp_path_factory.mktemp("node"), **config))


@pytest.fixture(autouse=True)
def _no_pod_stays(node: Node) -> Iterator[None]:
    yield
    for name in node.pods():
        node.delete(name)


def cgroup_files(directory: Path, *names: str) -> dict[str, str]:
    return {name: text_of(directory / name) for name in names}


def test_huge_pages_pull_a_pod_to_their_numa_node_and_bound_it(node: Node) -> None:
    huge = pod("huge", container("main", amounts("2", "64Mi", **{"hugepages-2Mi": "8Mi"})))
    held = node.admit(huge)["containers"][0]
    cgroup = Path(held["cgroup"])
    assert CpuSet.parse(held["cpus"]) <= CpuSet.parse(text_of(NODE1_CPUS))
    assert text_of(cgroup / "cpuset.mems") == "1"
    for directory in (cgroup, cgroup.parent):
        assert text_of(directory / "hugetlb.2MB.max") == str(8 * MIB)
        assert text_of(directory / "hugetlb.2MB.rsvd.max") == str(8 * MIB)
    assert process_status(node.spawn("huge", "main").pid)["Mems_allowed_list"] == "1"
    take = (sys.executable, "-SEc", TOUCH_PAGES)
    assert node.spawn("huge", "main", *take, "4").wait(60) == 0
    assert node.spawn("huge", "main", *take, "5").wait(60) == errno.ENOMEM


def test_a_pod_without_huge_pages_may_use_none(node: Node) -> None:
    cgroup = Path(node.admit(exclusive("plain"))["containers"][0]["cgroup"])
    assert text_of(cgroup / "hugetlb.2MB.max") == text_of(cgroup.parent / "hugetlb.2MB.max") == "0"


def test_a_container_that_takes_more_memory_than_its_limit_is_killed_as_a_whole(node: Node) -> None:
    hungry = container("main", amounts("1", "32Mi"))
    node.admit(pod("hungry", hungry, container("other", amounts("1", "64Mi"))))
    cgroup = node.cgroup("hungry", "main")
    assert cgroup_files(cgroup, "memory.max", "memory.oom.group") == {
        "memory.max": str(32 * MIB),
        "memory.oom.group": "1",
    }
    assert text_of(cgroup.parent / "memory.max") == str(96 * MIB)
    other, bystander = node.spawn("hungry", "other"), node.spawn("hungry", "main")
    eater = node.spawn("hungry", "main", "sh", "-c", "head -c 64M /dev/zero | tail | wc -c")
    assert (eater.wait(60), bystander.wait(60)) == (-9, -9)
    assert other.poll() is None


def test_a_pod_cannot_have_more_processes_than_its_limit(node: Node) -> None:
    node.admit(best_effort("bomb"))
    pod_cgroup = node.at("besteffort/poduid-bomb")
    assert text_of(pod_cgroup / "pids.max") == "48"
    bomb = "trap '' TERM; i=0; while [ $i -lt 60 ]; do sleep 600 & i=$((i+1)); done; wait"
    node.spawn("bomb", "main", "bash", "-c", bomb)
    # before Linux 6.11 it is told of the cgroup of who forked, not of the one whose limit it is
    events = [pod_cgroup / "pids.events", node.cgroup("bomb", "main") / "pids.events"]
    wait_until(lambda: any("max 0" not in text_of(file) for file in events), "a fork was refused")
    assert int(text_of(pod_cgroup / "pids.current")) <= 48


def test_shared_containers_have_quotas_and_exclusive_ones_none(node: Node) -> None:
    limited = container("half", {"requests": {"cpu": "250m"}, "limits": {"cpu": "500m"}})
    main = container("main", amounts("2", "64Mi"))
    node.admit(pod("web", main, limited, container("free"), resources=amounts("4", "512Mi")))
    inside = ("", "/main", "/shared.pool", "/shared.pool/half", "/shared.pool/free")
    assert {d: text_of(node.at(f"poduid-web{d}") / "cpu.max") for d in inside} == {
        "": "max 100000",
        "/main": "max 100000",
        "/shared.pool": "200000 100000",
        "/shared.pool/half": "50000 100000",
        "/shared.pool/free": "max 100000",
    }
    # runc's formula: 4096, 2048 and 256 shares; the last container states nothing in a pod of 4 CPUs
    stating = ("", "/main", "/shared.pool/half")
    assert {d: text_of(node.at(f"poduid-web{d}") / "cpu.weight") for d in stating} == {
        "": "303",
        "/main": "174",
        "/shared.pool/half": "35",
    }


def test_burstable_and_best_effort_pods_live_in_their_class_on_the_node_shared_pool(node: Node) -> None:
    burst = container("main", {"requests": {"cpu": "500m", "memory": "32Mi"}, "limits": {"memory": "64Mi"}})
    node.admit(pod("burst", burst))
    node.admit(best_effort("idle"))
    slice_ = CpuSet.parse(node.admit(exclusive("fast", "4"))["containers"][0]["cpus"])
    shared = CpuSet.parse(text_of(ONLINE)) - slice_
    burstable, idle = node.at("burstable/poduid-burst"), node.at("besteffort/poduid-idle")
    assert node.cgroup("burst", "main") == node.at("burstable/poduid-burst/shared.pool/main")
    assert node.cgroup("idle", "main") == node.at("besteffort/poduid-idle/shared.pool/main")
    for name in ("burst", "idle"):
        assert allowed(node.spawn(name, "main").pid) == shared
    assert text_of(node.cgroup("burst", "main") / "memory.max") == str(64 * MIB)
    assert text_of(burstable / "cpu.max") == "max 100000"
    assert text_of(node.at("burstable") / "cpu.weight") == text_of(burstable / "cpu.weight") == "59"
    assert text_of(node.at("besteffort") / "cpu.weight") == text_of(idle / "cpu.weight") == "1"


def test_an_init_container_runs_on_all_of_the_pod_but_the_slices_of_sidecars(node: Node) -> None:
    helper = container("helper", amounts("1", "64Mi"), restartPolicy="Always")
    held = node.admit(
        pod(
            "web",
            container("main"),
            initContainers=[helper, container("setup")],
            resources=amounts("4", "512Mi"),
        )
    )
    cpus = {c["name"]: CpuSet.parse(c["cpus"]) for c in held["containers"]}
    whole = CpuSet.parse(held["cpus"])
    setup = node.at("poduid-web/setup")
    assert node.cgroup("web", "setup") == setup
    assert cpus["setup"] == cpus["main"] == whole - cpus["helper"]
    assert text_of(setup / "cpuset.cpus.effective") == str(cpus["setup"])
    assert allowed(node.spawn("web", "setup").pid) == cpus["setup"]
    assert allowed(node.spawn("web", "helper").pid) == cpus["helper"]
    assert text_of(setup / "cpu.max") == "300000 100000"
    assert MOUNT in setup.parents
