"""CPU limits at full load: exclusive containers are never throttled, the others never get more than is left.

What was used is read from cpu.stat, beside the time that passed. A CPU may run over its quota, and then pays
for it in the periods that follow: by what it took from the pool at once (`sched_cfs_bandwidth_slice_us`, 5 ms)
and by a tick; an emulated one by as long as the host stops it, for the guest's time goes on. So at the end of a
window each process may be ahead by `OVERRUN`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.vm.node import (
    Json,
    Node,
    allowed,
    amounts,
    container,
    pids_in,
    pod,
    running,
    text_of,
    wait_until,
)

pytestmark = [pytest.mark.vm, pytest.mark.matrix]

WINDOW: Final = 5.0
"""Seconds: 50 periods of a quota."""
OVERRUN: Final = 0.2
"""Seconds; a busy host stops an emulated CPU for that long."""
SPINNER: Final = "while :; do :; done"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Container scope: what is not exclusive may run anywhere on the node, so quotas alone hold it back."""
    work = tmp_path_factory.mktemp("quota")
    with running(work, topologyManagerScope="container", topologyManagerPolicy="best-effort") as node:
        yield node


@pytest.fixture(scope="module")
def used(node: Node) -> Mapping[Path, float]:
    """How many CPUs' time the cgroups of three pods use, in the same window, with more work than they may do.

    ``slice``: 3 CPUs, 2 of them exclusive. ``burst``: 1.5, nothing exclusive. ``init``: 3, of which a sidecar has 2
    for itself while an init container runs.
    """
    main = container("main", amounts("2", "64Mi"))
    others = [container("one"), container("two"), limited("third", "300m"), limited("fourth", "3")]
    node.admit(pod("slice", main, *others, resources=amounts("3", "512Mi")))
    load(node, "slice", main=2, one=2, two=1, third=1, fourth=1)

    burst = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "1500m", "memory": "256Mi"}}
    node.admit(pod("burst", container("one"), container("two"), resources=burst))
    load(node, "burst", one=2, two=2)

    helper = container("helper", amounts("2", "64Mi"), restartPolicy="Always")
    first = [helper, container("setup")]
    node.admit(pod("init", container("main"), initContainers=first, resources=amounts("3", "512Mi")))
    load(node, "init", helper=2, setup=3)

    cgroups = [node.at("poduid-slice/shared.pool"), node.at("burstable/poduid-burst")]
    cgroups += [node.cgroup("slice", "main"), node.cgroup("slice", "third"), node.cgroup("init", "setup")]
    return cpus_used(*cgroups)


def load(node: Node, name: str, **processes: int) -> None:
    """Let so many processes spin in each container of a pod."""
    for one, count in processes.items():
        for _ in range(count):
            node.spawn(name, one, "sh", "-c", SPINNER)


def cpu_stat(cgroup: Path) -> dict[str, int]:
    lines = (cgroup / "cpu.stat").read_text().splitlines()
    return {key: int(value) for key, value in (line.split() for line in lines)}


def cpus_used(*cgroups: Path) -> Mapping[Path, float]:
    """How many CPUs' time each cgroup uses, over a window, from when all of them have begun to run."""
    wait_until(lambda: all(cpu_stat(one)["usage_usec"] > 100_000 for one in cgroups), "all of them run")
    began, before = time.monotonic(), [cpu_stat(one)["usage_usec"] for one in cgroups]
    time.sleep(WINDOW)
    after = [cpu_stat(one)["usage_usec"] for one in cgroups]
    passed = time.monotonic() - began
    return {
        one: (late - early) / 1e6 / passed for one, early, late in zip(cgroups, before, after, strict=True)
    }


def most(limit: float, processes: int) -> float:
    """How many CPUs so many processes may seem to use that share a limit."""
    return limit + processes * OVERRUN / WINDOW


def limited(name: str, cpu: str) -> Json:
    return container(name, {"requests": {"cpu": "100m"}, "limits": {"cpu": cpu}})


def test_the_pods_limit_holds_beside_an_exclusive_container_that_is_never_throttled(
    node: Node, used: Mapping[Path, float]
) -> None:
    """The others have 1 CPU together, however many they are and where they run."""
    main, pool, third = (
        node.cgroup("slice", "main"),
        node.at("poduid-slice/shared.pool"),
        node.cgroup("slice", "third"),
    )
    spinner = pids_in(third)[0]
    assert len(allowed(spinner)) > 1, "it is not its cpuset that holds it back"
    assert used[pool] <= most(1, 5)
    assert used[third] <= most(0.3, 1)
    assert cpu_stat(pool)["nr_throttled"] > 0, "they wanted more"
    assert cpu_stat(main)["nr_throttled"] == 0
    assert text_of(main / "cpu.max") == text_of(main.parent / "cpu.max") == "max 100000"
    assert len(allowed(pids_in(main)[0])) == 2
    assert used[main] > 1.5, "it has its two CPUs, whatever the others want"


def test_a_pod_without_exclusive_containers_keeps_to_its_limit(
    node: Node, used: Mapping[Path, float]
) -> None:
    cgroup = node.at("burstable/poduid-burst")
    assert used[cgroup] <= most(1.5, 4)
    assert cpu_stat(cgroup)["nr_throttled"] > 0, "they wanted more"


def test_an_init_container_keeps_to_what_the_sidecars_leave(node: Node, used: Mapping[Path, float]) -> None:
    """It has 1 CPU, and the sidecar is never throttled."""
    setup, sidecar = node.cgroup("init", "setup"), node.cgroup("init", "helper")
    assert used[setup] <= most(1, 3)
    assert cpu_stat(setup)["nr_throttled"] > 0, "it wanted more"
    assert cpu_stat(sidecar)["nr_throttled"] == 0
