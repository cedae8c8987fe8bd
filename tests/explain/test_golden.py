"""Whole decisions as people read them: each must stay word for word what is under golden/.

``python -m tests.explain.test_golden`` writes the files anew; read the difference before you keep it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from agent.cli.rehearsal import explained_text
from agent.cli.scratch import Scratch
from agent.domain.pod import Pod
from agent.domain.settings import CpuPolicy, Gates, MemoryPolicy, TopologyPolicy, TopologyScope
from agent.explain.sentences import explain
from tests.explain.build import container, pod, resources, scratch
from tests.sysfs.machines import discovered

GOLDEN: Final = Path(__file__).with_name("golden")


def opteron(**config: Any) -> Scratch:
    """A recorded machine: 64 CPUs, 8 NUMA nodes."""
    return scratch(discovered("64amd64-4p2n4ca2co"), **config)


POD_SCOPE: Final = pod(
    "pod-scope-mixed",
    [container("main-app", 2, "1Gi"), container("metrics-sidecar"), container("logging-sidecar")],
    resources(4, "2Gi"),
)
CONTAINER_SCOPE: Final = pod(
    "container-scope-mixed",
    [container("worker-1"), container("worker-2")],
    resources(4, "4Gi"),
    init=[{**container("infrastructure-sidecar", 2, "1Gi"), "restartPolicy": "Always"}],
)
EMPTY_POOL: Final = pod(
    "empty-shared-pool",
    [container("first-exclusive", 3, "2Gi"), container("second-exclusive", 1, "1Gi"), container("third")],
    resources(4, "4Gi"),
)


def story(one: Pod, node: Scratch) -> str:
    """What `explain` tells about one pod."""
    return explained_text(node.machine, node.rehearse(one, f"{one.name}.yaml"))


def node_full() -> str:
    node = scratch()
    for name in ("first", "second"):
        node.rehearse(pod(name, [container("a", 2)]), f"{name}.yaml")
    return story(pod("third", [container("a", 3)]), node)


def smt() -> str:
    node = scratch(cpu_options={"full-pcpus-only": "true"})
    odd = pod("odd", [container("a", 1), container("b")], resources(3, "1Gi"))
    return story(odd, node)


def held() -> str:
    node = scratch()
    one = pod("app", [container("a", 2), container("b")], resources(3, "1Gi"))
    node.rehearse(one, "app.yaml")
    return story(one, node)


def no_memory_anywhere() -> str:
    node = scratch()
    for name in ("first", "second"):
        node.rehearse(pod(name, [container("a", 1, "3Gi")]), f"{name}.yaml")
    return story(pod("third", [container("a", 1, "2Gi")]), node)


CASES: Final[dict[str, Callable[[], str]]] = {
    "pod-scope-mixed": lambda: story(POD_SCOPE, opteron()),
    "container-scope-mixed": lambda: story(CONTAINER_SCOPE, opteron(topology_scope=TopologyScope.CONTAINER)),
    "empty-pool-restricted": lambda: story(EMPTY_POOL, opteron()),
    "empty-pool-best-effort": lambda: story(EMPTY_POOL, opteron(topology_policy=TopologyPolicy.BEST_EFFORT)),
    "topology-policy-none": lambda: story(POD_SCOPE, opteron(topology_policy=TopologyPolicy.NONE)),
    "gate-off": lambda: story(POD_SCOPE, opteron(gates=Gates(pod_level_resource_managers=False))),
    "managers-none": lambda: story(
        POD_SCOPE, opteron(cpu_policy=CpuPolicy.NONE, memory_policy=MemoryPolicy.NONE)
    ),
    "node-full": node_full,
    "smt": smt,
    "held": held,
    "no-memory-anywhere": no_memory_anywhere,
}


@pytest.mark.parametrize("name", CASES)
def test_a_decision_reads_as_it_always_did(name: str) -> None:
    assert CASES[name]() + "\n" == (GOLDEN / f"{name}.txt").read_text()


@pytest.mark.parametrize("name", CASES)
def test_no_line_is_wider_than_a_terminal(name: str) -> None:
    assert max(map(len, CASES[name]().splitlines())) <= 100


def test_the_log_tells_the_same_decision_in_one_sentence_a_step() -> None:
    node = scratch()
    mixed = pod("app", [container("a", 2), container("b")], resources(3, "1Gi"))
    assert explain(node.rehearse(mixed, "app.yaml").decision.trace) == [
        "QoS class Guaranteed: every cpu and memory request in .spec.resources equals its limit",
        "the pod: cpu hints: prefers any one of NUMA nodes 0-1; could also use NUMA nodes 0-1 together",
        "the pod: memory hints: prefers any one of NUMA nodes 0-1; could also use NUMA nodes 0-1 together",
        "the pod: merge: NUMA node 0, preferred by all: the policy takes it",
        (
            "the pod: cpu: CPUs 1-3 of the node shared pool"
            " (2-3: whole free cores; 1: single CPUs, fullest sockets and cores first)"
        ),
        "a: cpu: exclusive slice, CPUs 2-3 of the pod's CPUs (2-3: whole free cores)",
        "b: cpu: pod shared pool: its requests of cpu and memory are not both set and equal to its limits",
        "the pod: memory: 1Gi on NUMA node 0",
        "a: memory: 512Mi on NUMA node 0 of the pod's memory",
        "b: memory: pod shared pool: its cpu and memory requests do not both equal its limits",
    ]


if __name__ == "__main__":
    for case, told in CASES.items():
        (GOLDEN / f"{case}.txt").write_text(told() + "\n")
