"""A small machine, pods written briefly, and rehearsals of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml

from agent.admission import restore
from agent.cli.scratch import Scratch
from agent.config import Config
from agent.containermanager.machine import Machine
from agent.domain.pod import CPU, Pod
from agent.domain.quantity import Quantity
from agent.domain.state import NodeState
from agent.domain.topology import Topology
from agent.manifest import load_manifests
from agent.replay.machine import topology_of

GIB = 1 << 30


def numa(count: int = 2, *, hugepages: int = 0) -> Topology:
    """NUMA nodes, each a socket of 2 cores with 2 threads, 4 GiB and some 2 MiB pages."""
    cpus = [[cpu, cpu // 2 * 2, cpu // 4, cpu // 4, -1] for cpu in range(4 * count)]
    distances = [10, *[20] * (count - 1)]
    nodes = [
        {"id": node, "memory": 4 * GIB, "hugepages": {"2048": hugepages}, "distances": distances}
        for node in range(count)
    ]
    return topology_of({"cpus": cpus, "nodes": nodes})


def scratch(topology: Topology | None = None, **config: Any) -> Scratch:
    """An empty node under the default configuration, but with one CPU reserved, and some fields changed."""
    machine_topology = topology or numa()
    settings = Config(**{"system_reserved": {CPU: Quantity.whole(1)}, **config}).settings(machine_topology)
    machine = Machine.of(machine_topology, settings, "")
    return Scratch(machine, restore(machine.managers, NodeState()), "an empty node")


def resources(cpu: object, memory: str, **more: str) -> dict[str, dict[str, str]]:
    """Requests equal to limits; ``hugepages_2Mi="4Mi"`` is ``hugepages-2Mi``."""
    amounts = {"cpu": str(cpu), "memory": memory, **{k.replace("_", "-"): v for k, v in more.items()}}
    return {"requests": amounts, "limits": amounts}


def container(name: str, cpu: object = None, memory: str = "512Mi", **more: str) -> dict[str, Any]:
    """A container; without ``cpu`` it states nothing."""
    stated = {} if cpu is None else {"resources": resources(cpu, memory, **more)}
    return {"name": name, "image": "busybox", **stated}


def pod(
    name: str,
    containers: Iterable[dict[str, Any]],
    budget: dict[str, Any] | None = None,
    init: Iterable[dict[str, Any]] = (),
) -> Pod:
    """A pod through the manifest reader, so that it is one a user could write."""
    spec: dict[str, Any] = {"containers": list(containers), "initContainers": list(init)}
    if budget:
        spec["resources"] = budget
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    return load_manifests(yaml.safe_dump(document).encode(), f"{name}.yaml", Config().gates)[0]


def way_out(on: Scratch, one: Pod) -> str:
    """The remedy for a pod that must be refused."""
    refusal = on.rehearse(one, "test.yaml").refusal
    assert refusal is not None
    return refusal.remedy
