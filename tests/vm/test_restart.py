"""The daemon ends and starts again: pods do not notice. And there is one daemon at a time."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.vm.node import (
    Node,
    allowed,
    best_effort,
    free_port,
    held,
    mixed,
    numalet,
    pids_in,
    running,
)

pytestmark = pytest.mark.vm


def seen(node: Node) -> object:
    """All that must outlive the daemon: allocations, and processes with what they may use."""
    pods = node.pods()
    cgroups = [Path(c["cgroup"]) for pod in pods.values() for c in pod["containers"]]
    return {name: held(pod) for name, pod in pods.items()}, [
        (pid, str(allowed(pid))) for cgroup in cgroups for pid in pids_in(cgroup)
    ]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Two pods with a process in each container."""
    with running(tmp_path_factory.mktemp("node")) as node:
        for pod in (mixed("web"), best_effort("log")):
            for container in node.admit(pod)["containers"]:
                node.spawn(pod["metadata"]["name"], container["name"])
        yield node


@pytest.mark.matrix
def test_a_killed_daemon_takes_over_exactly_what_it_left(node: Node) -> None:
    before, files = seen(node), node.files()
    assert node.end(signal.SIGKILL) == -9
    assert node.client.path.exists(), "the dead daemon's socket is in the way"
    node.start_anew()
    assert seen(node) == before
    assert node.files() == files
    assert {v["verdict"] for v in node.apply(mixed("web"), best_effort("log"))} == {"unchanged"}
    assert node.files() == files
    assert seen(node) == before
    assert node.status()["problems"] == []
    assert node.page("/readyz") == (200, "ok\n")


def test_a_daemon_that_is_asked_to_end_leaves_its_pods_running(node: Node) -> None:
    before, files = seen(node), node.files()
    assert node.end(signal.SIGTERM) == 0
    assert not node.client.path.exists()
    assert all(process.poll() is None for process in node.processes)
    assert node.files() == files
    node.start_anew()
    assert seen(node) == before


@pytest.mark.parametrize(
    ("shared", "told"),
    [
        pytest.param("stateDir", "is in use by another numalet (pid {pid})", id="state directory"),
        pytest.param("cgroupRoot", "cgroup root {root} is in use by another numalet", id="cgroup root"),
    ],
)
def test_a_second_daemon_is_refused(node: Node, tmp_path: Path, shared: str, told: str) -> None:
    second = node.root.with_name(f"{node.root.stem}second{node.root.suffix}")
    own = {
        "cgroupRoot": str(second),
        "stateDir": str(tmp_path / "state"),
        "staticPodPath": str(tmp_path),
        "controlSocket": str(tmp_path / "control.sock"),
        "metricsBindAddress": f"127.0.0.1:{free_port()}",
    }
    before, files = seen(node), node.files()
    config = node.config_file(**own | {shared: node.config[shared]})
    done = numalet("run", "--config", config)
    assert node.daemon is not None
    assert told.format(pid=node.daemon.pid, root=node.root) in done.stderr
    assert "another" in done.stderr.splitlines()[-1], "the last line is the way out"
    assert done.returncode == 2
    assert seen(node) == before
    assert node.files() == files
    assert not second.exists()
