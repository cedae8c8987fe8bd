"""Comparing the kernel with the state, which every admission, removal and reconcile does."""

from __future__ import annotations

from collections.abc import Callable

from agent.admission import isolation
from agent.cgroup.backend import apply
from agent.cgroup.diff import diff
from agent.cgroup.facts import Facts
from agent.cgroup.fake import FakeCgroups
from agent.cgroup.plan import plan
from scripts.bench.machines import thousand_cpus
from scripts.bench.registry import benchmark

PODS = 250


@benchmark(aim=15)
def unchanged_250_pods() -> Callable[[], object]:
    """Plan of 250 pods and its difference to a tree that is already as planned."""
    node = thousand_cpus(PODS)
    managers, state = node.managers, node.state
    topology = managers.machine
    kernel = FakeCgroups(topology.online, topology.all_nodes)
    kernel.prepare()
    facts = Facts(
        topology=topology,
        settings=managers.settings,
        state=state,
        pods=node.pods,
        cpu_isolation={
            (uid, name): level
            for uid, pod in node.pods.items()
            for name, level in isolation(managers, state, pod).items()
        },
        memory_isolation={
            (uid, container.name): managers.memory.isolation(state.memory, pod, container)
            for uid, pod in node.pods.items()
            for container in pod.containers
        },
        kernel=kernel.offer(),
    )
    apply(kernel, diff(plan(facts), kernel.observe()))
    observed = kernel.observe()
    if diff(plan(facts), observed):
        raise ValueError("the tree is not as planned")
    return lambda: diff(plan(facts), observed)
