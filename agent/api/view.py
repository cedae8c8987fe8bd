"""JSON views of a snapshot: what the control API answers and `numalet get -o json` prints.

Sets are in the kernel's list format, memory is in bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agent.api.remedy import remedy_of
from agent.cgroup.layout import pod_dir
from agent.containermanager.events import Event
from agent.containermanager.lifecycle import life_of
from agent.containermanager.snapshot import AdmittedPod, EndedPod, RejectedPod, Snapshot
from agent.domain.idset import NO_CPUS, CpuSet, NodeMask, union
from agent.domain.lifecycle import ContainerLife, ContainerState, Lives
from agent.domain.outcome import Isolation
from agent.domain.pod import Container, Pod, ResourceName
from agent.domain.qos import qos_class
from agent.domain.state import Block, Blocks
from agent.domain.topology import CpuId
from agent.drawing.picture import Holder, Kind, Memory, Picture, bare_memory

Json = dict[str, Any]
Known = AdmittedPod | EndedPod | RejectedPod


def pods_json(snapshot: Snapshot) -> Json:
    """All pods, admitted ones first, then those that ended, in the order they came."""
    return {"pods": [_pod(snapshot, known) for known in _known(snapshot)]}


def pod_json(snapshot: Snapshot, namespace: str, name: str) -> Json | None:
    """One pod, None where there is none of that name."""
    for known in _known(snapshot):
        if (known.pod.namespace, known.pod.name) == (namespace, name):
            return _pod(snapshot, known)
    return None


def _known(snapshot: Snapshot) -> tuple[Known, ...]:
    return (*snapshot.pods.values(), *snapshot.ended.values(), *snapshot.rejected.values())


def _pod(snapshot: Snapshot, known: Known) -> Json:
    match known:
        case AdmittedPod():
            return _admitted(snapshot, known)
        case EndedPod():
            return _ended(known)
        case RejectedPod():
            return _rejected(known)


def _head(pod: Pod, source: str) -> Json:
    return {
        "namespace": pod.namespace,
        "name": pod.name,
        "uid": pod.uid,
        "qosClass": qos_class(pod).value,
        "source": source,
    }


def _admitted(snapshot: Snapshot, admitted: AdmittedPod) -> Json:
    pod, cpu, memory = admitted.pod, snapshot.state.cpu, snapshot.state.memory
    own = cpu.pod_entries.get(pod.uid)
    lives = snapshot.lives.get(pod.uid, {})
    return {
        **_head(pod, admitted.source),
        "state": "Admitted",
        "degraded": list(snapshot.degraded.get(pod.uid, ())),
        "admittedAt": admitted.admitted_at,
        "cgroup": snapshot.cgroup(pod_dir(pod.uid, qos_class(pod))),
        "ready": ready_text(pod, lives),
        "cpus": str(own) if own is not None else None,
        "podSharedPool": str(pod_shared_pool(snapshot, admitted)) if own is not None else None,
        "memory": _blocks(memory.pod_entries.get(pod.uid, ())),
        "containers": [_container(snapshot, admitted, container) for container in pod.containers],
        "ephemeralContainers": [
            {"name": name, "cgroup": _cgroup(snapshot, admitted, name)} for name in admitted.ephemeral
        ],
    }


def ready_text(pod: Pod, lives: Lives) -> str:
    """``2/3``: how many run of the containers that run as long as the pod."""
    stay = [life_of(lives, c.name).state for c in pod.containers if c.kind.keeps_running]
    return f"{stay.count(ContainerState.RUNNING)}/{len(stay)}"


def _life(life: ContainerLife) -> Json:
    """``since`` is empty for a container that waits since the pod was admitted."""
    return {"state": life.state.value, "since": life.since, "restarts": life.restarts}


def pod_shared_pool(snapshot: Snapshot, admitted: AdmittedPod) -> CpuSet:
    """What is left of the pod's set beside the slices of its sidecars and app containers."""
    pool = snapshot.state.cpu.pod_entries.get(admitted.pod.uid, NO_CPUS)
    for container in admitted.pod.containers:
        if container.kind.keeps_running and admitted.isolation[container.name] is Isolation.CONTAINER:
            pool -= snapshot.state.cpu.of(admitted.pod.uid, container.name) or NO_CPUS
    return pool


def _container(snapshot: Snapshot, admitted: AdmittedPod, container: Container) -> Json:
    uid = admitted.pod.uid
    blocks = snapshot.state.memory.of(uid, container.name) or ()
    return {
        "name": container.name,
        "kind": container.kind.value,
        **_life(life_of(snapshot.lives.get(uid, {}), container.name)),
        "isolation": admitted.isolation[container.name].value,
        "cpus": str(snapshot.cpus(uid, container.name)),
        "memory": _blocks(blocks),
        "cgroup": _cgroup(snapshot, admitted, container.name),
        "binding": _binding(admitted, container.name),
    }


def _binding(admitted: AdmittedPod, name: str) -> str:
    """``unit NAME`` or ``cgroup PATH``; empty for a container whose cgroup is ours."""
    return str(admitted.pod.bindings.get(name, ""))


def _cgroup(snapshot: Snapshot, admitted: AdmittedPod, name: str) -> str:
    bound = snapshot.bound.get((admitted.pod.uid, name))
    return bound or snapshot.cgroup(admitted.directories[name])


def _blocks(blocks: Blocks) -> list[Json]:
    return [_block(block) for block in sorted(blocks, key=lambda block: block.type)]


def _block(block: Block) -> Json:
    return {"type": block.type, "size": block.size, "numaNodes": str(block.nodes)}


def _ended(ended: EndedPod) -> Json:
    """It holds nothing: its containers have neither CPUs nor a cgroup."""
    return {
        **_head(ended.pod, ended.source),
        "state": "Succeeded",
        "admittedAt": ended.admitted_at,
        "endedAt": ended.ended_at,
        "reason": "Completed",
        "message": "all its containers have run and exited; it holds nothing any more",
        "remedy": f"to run it again: numalet delete {ended.pod.full_name}, then apply it",
        "containers": [
            {"name": c.name, "kind": c.kind.value, **_life(life_of(ended.lives, c.name))}
            for c in ended.pod.containers
        ],
        "ephemeralContainers": [],
    }


def _rejected(rejected: RejectedPod) -> Json:
    return {
        **_head(rejected.pod, rejected.source),
        "state": "Rejected",
        "rejectedAt": rejected.rejected_at,
        "reason": rejected.reason,
        "message": rejected.message,
        "remedy": rejected.remedy,
        "containers": [],
        "ephemeralContainers": [],
    }


def cpus_json(snapshot: Snapshot) -> Json:
    """Each online CPU: where it is, who holds it, and of what kind it is in a picture."""
    holders = cpu_holders(snapshot)
    return {
        "cpus": [
            {
                "id": cpu.id,
                "core": cpu.core,
                "socket": cpu.socket,
                "numaNode": cpu.node,
                "reserved": cpu.id in snapshot.managers.cpu.reserved,
                "owner": _owner(holders[cpu.id]),
                "kind": holders[cpu.id].kind.value,
                "pod": holders[cpu.id].pod,
                "container": holders[cpu.id].container,
            }
            for cpu in snapshot.topology.cpus
        ]
    }


def _owner(holder: Holder) -> str:
    if not holder.pod:
        return Kind.NODE_SHARED.value
    return f"{holder.pod}/{holder.container}" if holder.container else f"{holder.pod} ({holder.kind.value})"


def cpu_holders(snapshot: Snapshot) -> dict[CpuId, Holder]:
    """Who holds each online CPU; later, more exact holders win."""
    return {
        **{cpu.id: _unheld(snapshot, cpu.id) for cpu in snapshot.topology.cpus},
        **{cpu: holder for cpu, holder in _held(snapshot) if cpu in snapshot.topology.online},
    }


def _unheld(snapshot: Snapshot, cpu: CpuId) -> Holder:
    if cpu in snapshot.managers.cpu.reserved:
        return Holder(Kind.RESERVED)
    return Holder(Kind.ISOLATED if cpu in snapshot.topology.isolated else Kind.NODE_SHARED)


def _held(snapshot: Snapshot) -> Iterator[tuple[CpuId, Holder]]:
    for admitted in snapshot.pods.values():
        pod = admitted.pod
        for cpu in snapshot.state.cpu.pod_entries.get(pod.uid, NO_CPUS):
            yield CpuId(cpu), Holder(Kind.POD_SHARED, pod.full_name)
        for container in pod.containers:
            if admitted.isolation[container.name] is Isolation.CONTAINER:
                for cpu in snapshot.state.cpu.of(pod.uid, container.name) or NO_CPUS:
                    yield CpuId(cpu), Holder(Kind.EXCLUSIVE, pod.full_name, container.name)


def picture(snapshot: Snapshot) -> Picture:
    """The machine as it is drawn: CPUs by holder, memory by type."""
    memory = {
        node: tuple(
            Memory(type=kind, total=table.total, reserved=table.system_reserved, held=table.reserved)
            for kind, table in held.tables.items()
            if table.total
        )
        for node, held in snapshot.state.memory.nodes.items()
    }
    bare = {node.id: bare_memory(node) for node in snapshot.topology.nodes}
    return Picture(topology=snapshot.topology, holders=cpu_holders(snapshot), memory={**bare, **memory})


def nodes_json(snapshot: Snapshot) -> Json:
    """Each NUMA node: CPUs by pool, memory by type; ``podShared`` are those of ``exclusive`` in pods' pools."""
    shared, exclusive = snapshot.shared, snapshot.exclusive
    pod_shared = union(pod_shared_pool(snapshot, admitted) for admitted in snapshot.pods.values())
    reserved = snapshot.managers.cpu.reserved
    return {
        "numaNodes": [
            {
                "id": node.id,
                "cpus": str(node.cpus),
                "shared": str(node.cpus & shared),
                "exclusive": str(node.cpus & exclusive),
                "podShared": str(node.cpus & exclusive & pod_shared),
                "reserved": str(node.cpus & reserved),
                "memory": _tables(snapshot, NodeMask.of([node.id])),
                "distances": list(node.distances),
            }
            for node in snapshot.topology.nodes
        ]
    }


def _tables(snapshot: Snapshot, nodes: NodeMask) -> dict[ResourceName, Json]:
    held = [memory for node, memory in snapshot.state.memory.nodes.items() if node in nodes]
    return {
        kind: {
            "total": table.total,
            "systemReserved": table.system_reserved,
            "allocatable": table.allocatable,
            "reserved": table.reserved,
            "free": table.free,
        }
        for memory in held
        for kind, table in memory.tables.items()
    }


def status_json(snapshot: Snapshot) -> Json:
    """How many, how full, what is wrong; ``remedies`` are those of ``problems``, empty where none is known."""
    return {
        "pods": len(snapshot.pods),
        "succeeded": len(snapshot.ended),
        "rejected": len(snapshot.rejected),
        "cpus": {
            "online": str(snapshot.topology.online),
            "shared": str(snapshot.shared),
            "exclusive": str(snapshot.exclusive),
        },
        "degraded": len(snapshot.degraded),
        "hostIsolation": snapshot.host_isolation,
        "notices": list(snapshot.notices),
        "problems": list(snapshot.troubles),
        "pendingRestart": list(snapshot.pending),
        "remedies": [remedy_of(snapshot, problem) for problem in snapshot.troubles],
        "node": {
            "numaNodes": len(snapshot.topology.nodes),
            "controllers": sorted(snapshot.controllers),
            "bootID": snapshot.boot_id,
        },
    }


def event_json(event: Event) -> Json:
    """One event; ``pod`` is empty where it concerns the node."""
    return {
        "sequence": event.sequence,
        "time": event.time,
        "kind": event.kind.value,
        "type": event.type,
        "pod": event.pod,
        "text": event.text,
    }
