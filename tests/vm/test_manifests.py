"""The manifest directory, followed by a daemon on the real kernel."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from agent.domain.idset import CpuSet
from tests.vm.node import (
    Node,
    allowed,
    best_effort,
    container,
    exclusive,
    held,
    is_alive,
    manifest,
    mixed,
    pids_in,
    pod,
    process_status,
    wait_until,
)

pytestmark = pytest.mark.vm


def drop(node: Node, name: str, text: str) -> Path:
    """Put a file into the directory as `mv` would."""
    (node.work / name).write_text(text)
    return (node.work / name).rename(node.manifests / name)


def is_admitted(node: Node, name: str) -> bool:
    return node.pods().get(name, {}).get("state") == "Admitted"


def cpus_of(node: Node, name: str) -> int:
    """How many CPUs the pod's first container has; 0 where there is no such pod."""
    containers = node.pods().get(name, {}).get("containers")
    return len(CpuSet.parse(containers[0]["cpus"])) if containers else 0


def test_a_dropped_manifest_is_admitted_and_confines_every_process(node: Node) -> None:
    drop(node, "web.yaml", manifest(mixed("web")))
    wait_until(lambda: is_admitted(node, "web"), "the pod is admitted")
    web = node.pods()["web"]
    main, side = (CpuSet.parse(c["cpus"]) for c in web["containers"])
    assert len(main) == len(side) == 2
    assert main.isdisjoint(side)
    assert main | side == CpuSet.parse(web["cpus"])
    forking = ("sh", "-c", "sleep 600 & sleep 600 & wait")
    for name, cpus in (("main", main), ("side", side)):
        node.spawn("web", name, *forking)
        cgroup = node.cgroup("web", name)
        wait_until(lambda cgroup=cgroup: len(pids_in(cgroup)) == 3, "all processes run")  # type: ignore[misc]
        for pid in pids_in(cgroup):
            assert allowed(pid) == cpus
            assert process_status(pid)["Mems_allowed_list"] == web["memory"][0]["numaNodes"]


def test_an_edited_manifest_is_admitted_anew(node: Node) -> None:
    file = drop(node, "web.yaml", manifest(exclusive("web", "2")))
    wait_until(lambda: cpus_of(node, "web") == 2, "the pod is admitted")
    before = node.spawn("web", "main")
    file.write_text(manifest(exclusive("web", "4")))
    wait_until(lambda: cpus_of(node, "web") == 4, "the pod is admitted again")
    assert before.wait(5) == -15
    after = node.spawn("web", "main")
    assert allowed(after.pid) == CpuSet.parse(node.pods()["web"]["containers"][0]["cpus"])


def test_a_manifest_made_malformed_leaves_its_pods_alone(node: Node) -> None:
    file = drop(node, "web.yaml", manifest(mixed("web")))
    wait_until(lambda: is_admitted(node, "web"), "the pod is admitted")
    given, process = held(node.pods()["web"]), node.spawn("web", "main")
    for text in ("{", "", "kind: Pod\nspec: {}\n"):
        file.write_text(text)
        wait_until(lambda: any("web.yaml" in p for p in node.status()["problems"]), "the problem is told")
        assert held(node.pods()["web"]) == given
        assert process.poll() is None
        file.write_text(manifest(mixed("web")))
        wait_until(lambda: not node.status()["problems"], "the problem is over")
    assert held(node.pods()["web"]) == given
    assert process.poll() is None


def test_a_removed_manifest_takes_its_pods_and_their_processes_along(node: Node) -> None:
    file = drop(node, "two.yaml", manifest(exclusive("one"), best_effort("two")))
    wait_until(lambda: is_admitted(node, "two"), "the pods are admitted")
    processes = [node.spawn("one", "main"), node.spawn("two", "main")]
    file.unlink()
    wait_until(lambda: not node.pods(), "the pods are gone")
    assert not any(is_alive(process.pid) for process in processes)
    assert node.cgroups() == []
    assert node.status()["cpus"]["exclusive"] == ""


def test_running_processes_have_left_a_new_slice_before_it_exists(node: Node) -> None:
    node.admit(best_effort("crowd"))
    busy = "for i in 1 2 3; do (while :; do :; done) & done; wait"
    node.spawn("crowd", "main", "sh", "-c", busy)
    cgroup = node.cgroup("crowd", "main")
    wait_until(lambda: len(pids_in(cgroup)) == 4, "all processes run")
    pids = pids_in(cgroup)
    assert all(len(allowed(pid)) == 16 for pid in pids)

    at_birth: list[CpuSet] = []

    def watch() -> None:
        slice_ = node.at("poduid-fast/main")
        wait_until(slice_.exists, "the slice's cgroup exists")
        at_birth.extend(allowed(pid) for pid in pids)

    watcher = threading.Thread(target=watch)
    watcher.start()
    (verdict,) = node.apply(pod("fast", container("main", {"limits": {"cpu": "4", "memory": "64Mi"}})))
    when_answered = [allowed(pid) for pid in pids]
    watcher.join()
    assert verdict["verdict"] == "admitted"
    fast = CpuSet.parse(node.pods()["fast"]["containers"][0]["cpus"])
    assert len(fast) == 4
    assert all(cpus.isdisjoint(fast) for cpus in (*when_answered, *at_birth))
    assert allowed(node.spawn("fast", "main").pid) == fast
    node.delete("fast")
    assert all(len(allowed(pid)) == 16 for pid in pids)
