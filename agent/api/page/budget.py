"""A pod's budget in parts: exclusive slices, pod shared pool, and the rest, which it has with all others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from agent.api.view import pod_shared_pool
from agent.cgroup.resourceconfig import pod_cpu_request, pod_memory_limit
from agent.cgroup.units import Unlimited
from agent.containermanager.snapshot import AdmittedPod, Snapshot
from agent.domain.outcome import Isolation
from agent.domain.pod import MEMORY
from agent.drawing.picture import Kind, size
from agent.explain.claims import claims


@dataclass(frozen=True, slots=True)
class Share:
    """``amount`` (CPUs or bytes) of a budget, shown as ``words``; an exclusive one is a container's."""

    kind: Kind
    amount: float
    words: str


def cpu_budget(snapshot: Snapshot, admitted: AdmittedPod) -> tuple[Share, ...]:
    """What the pod's CPU request consists of; empty where it asks for none."""
    held = [*_slices(snapshot, admitted)]
    if admitted.pod.uid in snapshot.state.cpu.pod_entries:
        pool = pod_shared_pool(snapshot, admitted)
        held += [Share(Kind.POD_SHARED, len(pool), f"pod shared pool {pool}")] if pool else []
    rest = pod_cpu_request(admitted.pod) / 1000 - sum(share.amount for share in held)
    return (*held, *([Share(Kind.NODE_SHARED, rest, f"node shared pool {rest:g}")] if rest > 0 else []))


def _slices(snapshot: Snapshot, admitted: AdmittedPod) -> Iterator[Share]:
    for container in admitted.pod.containers:
        if container.kind.keeps_running and admitted.isolation[container.name] is Isolation.CONTAINER:
            cpus = snapshot.state.cpu.of(admitted.pod.uid, container.name)
            if cpus:
                yield Share(Kind.EXCLUSIVE, len(cpus), f"{container.name} {cpus}")


def memory_budget(snapshot: Snapshot, admitted: AdmittedPod) -> tuple[Share, ...]:
    """What the pod's memory consists of; empty where it neither holds nor is limited to any."""
    pod = admitted.pod
    own = [
        Share(Kind.EXCLUSIVE, claim.memory[MEMORY], f"{claim.container} {size(claim.memory[MEMORY])}")
        for claim in claims(pod, snapshot.settings)
        if claim.memory.get(MEMORY) and claim.kind.keeps_running and snapshot.state.memory.nodes
    ]
    blocks = snapshot.state.memory.pod_entries.get(pod.uid, ())
    pool = sum(block.size for block in blocks if block.type == MEMORY) - sum(share.amount for share in own)
    held = [*own, *([Share(Kind.POD_SHARED, pool, f"pod shared {size(int(pool))}")] if pool > 0 else [])]
    limit = pod_memory_limit(pod)
    rest = 0 if isinstance(limit, Unlimited) else limit - sum(share.amount for share in held)
    return (*held, *([Share(Kind.NODE_SHARED, rest, f"up to {size(int(rest))}")] if rest > 0 else []))
