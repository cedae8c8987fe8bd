"""What the PodResources API tells, worked out from one snapshot; pure, and free of gRPC.

Values are laid out as the messages of api.proto, by field name: a message is made from one as it is.
Containers come in spec order, CPUs ascending, blocks by type. Devices and dynamic resources stay
empty: numalet hands out none.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from agent.containermanager.snapshot import AdmittedPod, Snapshot
from agent.domain.idset import NO_CPUS, NodeMask
from agent.domain.outcome import Isolation
from agent.domain.pod import Container, ContainerKind
from agent.domain.state import Block, Blocks

Fields = dict[str, Any]


def active_pod(snapshot: Snapshot, namespace: str, name: str) -> AdmittedPod | None:
    """The admitted pod of that name; one is active until its last process is gone."""
    for admitted in snapshot.pods.values():
        if admitted.pod.name == name and admitted.pod.namespace == namespace:
            return admitted
    return None


def pod_resources(snapshot: Snapshot, admitted: AdmittedPod) -> Fields:
    """PodResources; CPUs and memory of the pod itself where it was allocated as one (KEP-5526)."""
    pod, cpu, memory = admitted.pod, snapshot.state.cpu, snapshot.state.memory
    return {
        "name": pod.name,
        "namespace": pod.namespace,
        # Standard init containers do not count: what they have, later containers have after them.
        "containers": [_container(snapshot, admitted, c) for c in pod.containers if c.kind.keeps_running],
        "cpu_ids": cpu.pod_entries.get(pod.uid, NO_CPUS),
        "memory": _memory(memory.pod_entries.get(pod.uid, ())),
    }


def allocatable(snapshot: Snapshot) -> Fields:
    """AllocatableResourcesResponse: what pods could be given altogether, taken or not.

    All CPUs but the reserved ones, and memory per NUMA node; nothing of a manager with policy none.
    """
    managers = snapshot.managers
    return {"cpu_ids": managers.cpu.allocatable, "memory": _memory(managers.memory.allocatable)}


def names_only(admitted: AdmittedPod) -> Fields:
    """PodResources of v1alpha1: names of the pod and of its app containers."""
    pod = admitted.pod
    apps = [{"name": c.name} for c in pod.containers if c.kind is ContainerKind.APP]
    return {"name": pod.name, "namespace": pod.namespace, "containers": apps}


def _container(snapshot: Snapshot, admitted: AdmittedPod, container: Container) -> Fields:
    """ContainerResources: what it holds for itself alone, not the pool it may run in.

    CPUs and memory go each by their own manager: a container with 500m shares CPUs, perhaps not memory.
    """
    pod, name, cpu, memory = admitted.pod, container.name, snapshot.state.cpu, snapshot.state.memory
    fields: Fields = {"name": name}
    if admitted.isolation[name] is Isolation.CONTAINER:
        fields["cpu_ids"] = cpu.of(pod.uid, name) or NO_CPUS
    if snapshot.managers.memory.isolation(memory, pod, container) is Isolation.CONTAINER:
        fields["memory"] = _memory(memory.of(pod.uid, name) or ())
    return fields


def _memory(blocks: Blocks) -> list[Fields]:
    ordered = sorted(blocks, key=_order) if len(blocks) > 1 else blocks
    return [
        {
            "memory_type": block.type,
            "size": block.size,
            "topology": _topology(block.nodes),
        }
        for block in ordered
    ]


@lru_cache(maxsize=4096)
def _topology(nodes: NodeMask) -> Fields:
    """NUMATopology. Pure: most blocks are on the same few sets of nodes."""
    return {"nodes": [{"ID": node} for node in nodes]}


def _order(block: Block) -> tuple[str, int, int]:
    return block.type, block.nodes.bits, block.size
