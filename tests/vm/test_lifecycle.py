"""The life of containers with real processes: states, order, the end of a pod, a daemon that dies in between."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from agent.api.client import ControlError
from agent.cli.work import container_cgroup
from agent.domain.idset import CpuSet
from tests.vm.node import Node, allowed, amounts, container, manifest, mixed, pod, wait_until

pytestmark = [pytest.mark.vm, pytest.mark.matrix]

Json = dict[str, Any]


def states(node: Node, name: str) -> dict[str, tuple[str, int]]:
    return {c["name"]: (c["state"], c["restarts"]) for c in node.pods()[name]["containers"]}


def becomes(node: Node, name: str, **wanted: tuple[str, int]) -> None:
    wait_until(lambda: states(node, name) == wanted, f"{name} is {wanted}")


def finite(name: str) -> Json:
    """A sidecar, an init container with 3 CPUs that main reuses 2 of, in a pod that ends."""
    return pod(
        name,
        container("main", amounts("2", "64Mi")),
        initContainers=[
            container("side", amounts("1", "64Mi"), restartPolicy="Always"),
            container("setup", amounts("3", "64Mi")),
        ],
        restartPolicy="Never",
        terminationGracePeriodSeconds=1,
    )


def test_a_crashed_container_rejoins_what_it_had(node: Node) -> None:
    held = {c["name"]: CpuSet.parse(c["cpus"]) for c in node.admit(mixed("web"))["containers"]}
    becomes(node, "web", main=("waiting", 0), side=("waiting", 0))
    first = [node.spawn("web", "main"), node.spawn("web", "side")]
    becomes(node, "web", main=("running", 0), side=("running", 0))
    for process in first:
        process.kill()
        process.wait()
    becomes(node, "web", main=("exited", 0), side=("exited", 0))
    again = {name: node.spawn("web", name) for name in ("main", "side")}
    becomes(node, "web", main=("running", 1), side=("running", 1))
    assert {name: allowed(process.pid) for name, process in again.items()} == held
    assert node.pods()["web"]["ready"] == "2/2"


def test_work_that_ends_at_once_has_run(node: Node) -> None:
    node.admit(mixed("web"))
    procs = node.cgroup("web", "side") / "cgroup.procs"
    node.outside("sh", "-c", f"echo $$ >{procs}").wait()
    becomes(node, "web", main=("waiting", 0), side=("exited", 0))


def test_a_pod_runs_in_order_ends_with_its_work_and_frees_all_though_the_daemon_dies(node: Node) -> None:
    node.admit(finite("job"))
    with pytest.raises(
        ControlError, match="main starts when init container setup has finished, which has not run"
    ):
        container_cgroup(node.client, "job", "main")
    setup, side = node.spawn("job", "setup"), node.spawn("job", "side")
    becomes(node, "job", side=("running", 0), setup=("running", 0), main=("waiting", 0))
    with pytest.raises(ControlError, match="which still runs"):
        container_cgroup(node.client, "job", "main")
    assert node.end(signal.SIGKILL) == -signal.SIGKILL
    setup.kill()
    setup.wait()
    node.start()
    assert states(node, "job") == {"side": ("running", 0), "setup": ("exited", 0), "main": ("waiting", 0)}
    assert container_cgroup(node.client, "job", "main") == node.cgroup("job", "main")
    main = node.spawn("job", "main")
    becomes(node, "job", side=("running", 0), setup=("exited", 0), main=("running", 0))
    with pytest.raises(ControlError, match="setup has finished, and container main has its CPUs"):
        container_cgroup(node.client, "job", "setup")
    assert allowed(main.pid) <= CpuSet.parse(
        (node.cgroup("job", "setup") / "cpuset.cpus").read_text().strip()
    )
    main.kill()
    main.wait()
    wait_until(lambda: node.pods()["job"]["state"] == "Succeeded", "the pod has ended")
    assert side.wait(5) == -signal.SIGTERM
    assert (node.cgroups(), node.status()["cpus"]["exclusive"]) == ([], "")
    node.delete("job")
    assert "pods/uid-job.json" not in node.files()


def test_a_pod_of_a_file_that_ended_is_not_run_again(node: Node) -> None:
    file = node.manifests / "once.yaml"
    once = pod("once", container("main", amounts("2", "64Mi")), restartPolicy="OnFailure")
    file.write_text(manifest(once))
    wait_until(lambda: "once" in node.pods(), "the pod is admitted")
    process = node.spawn("once", "main")
    process.kill()
    process.wait()
    wait_until(lambda: node.pods()["once"]["state"] == "Succeeded", "the pod has ended")
    file.touch()
    once["spec"]["containers"].append(container("more"))
    (node.manifests / "later.yaml").write_text(manifest(pod("later", container("main"))))
    wait_until(lambda: "later" in node.pods(), "the directory was followed since")
    assert node.pods()["once"]["state"] == "Succeeded"
    file.write_text(manifest(once))
    wait_until(lambda: node.state_of("once") == "Admitted", "another pod of the name runs anew")
    file.unlink()
    wait_until(lambda: "once" not in node.pods(), "it goes with its file")
