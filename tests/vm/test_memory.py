"""Memory is where it was given: pages touched by a container's processes lie on its NUMA nodes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from agent.domain.idset import CpuSet, NodeMask
from tests.vm.node import MOUNT, Node, amounts, best_effort, container, pod, text_of, wait_until

pytestmark = [pytest.mark.vm, pytest.mark.matrix]

MIB: Final = 1 << 20
NODES: Final = Path("/sys/devices/system/node")
TOUCH: Final = (
    "import sys, time; held = b'x' * (int(sys.argv[1]) << 20); open(sys.argv[2], 'w'); time.sleep(600)"
)
ON_NODE: Final = re.compile(r" N(\d+)=(\d+)")


def cpu_nodes() -> dict[int, CpuSet]:
    """The NUMA nodes that have CPUs."""
    lists = {int(one.name[4:]): text_of(one / "cpulist") for one in NODES.glob("node[0-9]*")}
    return {number: CpuSet.parse(text) for number, text in sorted(lists.items()) if text}


def touching(node: Node, cgroup: Path, size: int, flag: Path) -> subprocess.Popen[bytes]:
    """A process that has written to ``size`` MiB since it joined a cgroup."""
    script = f'echo $$ >{cgroup}/cgroup.procs && exec "$@"'
    command = (sys.executable, "-SEc", TOUCH, str(size), str(flag))
    process = subprocess.Popen(["sh", "-c", script, "sh", *command])
    node.processes.append(process)
    wait_until(flag.exists, "it has its memory")
    return process


def anonymous_pages(pid: int) -> dict[int, int]:
    """The process's own pages by NUMA node, from numa_maps: what is mapped from files may lie anywhere."""
    pages: dict[int, int] = {}
    for line in Path(f"/proc/{pid}/numa_maps").read_text().splitlines():
        if " anon=" in line and " file=" not in line:
            for number, count in ON_NODE.findall(line):
                pages[int(number)] = pages.get(int(number), 0) + int(count)
    return pages


def test_pages_lie_on_the_nodes_of_the_pods_blocks(node: Node, tmp_path: Path) -> None:
    """Pods of half a node each, as many as there are nodes: they are on several, and so is their memory."""
    half = str(len(cpu_nodes()[1]) // 2)
    used = set()
    for number in range(len(cpu_nodes())):
        name = f"p{number}"
        held = node.admit(pod(name, container("main", amounts(half, "128Mi"))))
        cpus = CpuSet.parse(held["containers"][0]["cpus"])
        mems = NodeMask.parse(text_of(node.cgroup(name, "main") / "cpuset.mems"))
        assert list(mems) == [number for number, theirs in cpu_nodes().items() if theirs & cpus]
        pages = anonymous_pages(touching(node, node.cgroup(name, "main"), 48, tmp_path / name).pid)
        assert set(pages) == set(mems)
        assert sum(pages.values()) >= 48 * MIB // 4096
        used |= set(mems)
    assert len(used) > 1


def test_who_shares_may_use_the_memory_of_every_node(node: Node) -> None:
    node.admit(best_effort("idle"))
    every = NodeMask.parse(text_of(MOUNT / "cpuset.mems.effective"))
    assert NodeMask.parse(text_of(node.cgroup("idle", "main") / "cpuset.mems.effective")) == every
    assert len(every) == len(list(NODES.glob("node[0-9]*")))


def test_a_limit_that_others_lifted_is_not_put_back_below_what_is_in_use(node: Node, tmp_path: Path) -> None:
    """The kernel would kill for it. It waits, is told, and holds nobody up."""
    node.admit(pod("web", container("main", amounts("1", "32Mi"))))
    cgroup = node.cgroup("web", "main")
    process = node.spawn("web", "main", "sleep", "600")
    # The daemon cannot look meanwhile: it would put a limit right that is not yet exceeded.
    with node.paused():
        for directory in (cgroup, cgroup.parent):
            (directory / "memory.max").write_text("max")
        eater = touching(node, cgroup, 96, tmp_path / "touched")
    wait_until(lambda: len(put_off(node)) == 2, "it is told of both")
    assert "in use, so the kernel would kill processes" in put_off(node)[0]["text"]
    assert text_of(cgroup / "memory.max") == "max"
    node.admit(best_effort("another"))
    assert (eater.poll(), process.poll()) == (None, None)
    eater.kill()
    eater.wait()
    wait_until(lambda: text_of(cgroup / "memory.max") == str(32 * MIB), "the limit is back")
    assert (process.poll(), text_of(cgroup.parent / "memory.max")) == (None, str(32 * MIB))


def put_off(node: Node) -> list[dict[str, str]]:
    events = node.client.call("GET", "/v1/events")["events"]
    return [event for event in events if event["kind"] == "LimitPutOff"]
