"""What must hold of every state, beyond `agent.domain.state.invariants`: what needs the pods to tell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations

from agent.admission import Managers, cpus_of, isolation
from agent.domain.idset import NO_CPUS, CpuSet
from agent.domain.outcome import Isolation
from agent.domain.pod import CPU, Pod
from agent.domain.settings import CpuPolicy
from agent.domain.state import CpuState, NodeState, invariants, memory_invariants


def faults(managers: Managers, state: NodeState, pods: Iterable[Pod]) -> Iterator[str]:
    """A sentence for each fault of ``state``, in which only ``pods`` may hold anything."""
    if managers.settings.cpu_policy is CpuPolicy.NONE:
        yield from memory_invariants(state.memory)
        if state.cpu != CpuState():
            yield f"policy none keeps {state.cpu}"
        return
    pods = list(pods)
    online, reserved, shared = managers.machine.online, managers.cpu.reserved, state.cpu.default
    strict = managers.settings.cpu_options.get("strict-cpu-reservation") == "true"
    yield from invariants(state, online, reserved if strict else NO_CPUS)
    if not shared:
        yield "the shared pool is empty"
    if strict != shared.isdisjoint(reserved) or not (strict or reserved <= shared):
        yield f"reserved {reserved}, strict {strict}: the shared pool is {shared}"
    strangers = state.pods() - {pod.uid for pod in pods}
    if strangers:
        yield f"nobody knows {sorted(strangers)}"
    for pod in pods:
        yield from _pod_faults(managers, state, pod)


def _pod_faults(managers: Managers, state: NodeState, pod: Pod) -> Iterator[str]:
    exclusive: dict[str, CpuSet] = {}
    for name, level in isolation(managers, state, pod).items():
        cpus = cpus_of(managers, state, pod.uid, name)
        if not cpus:
            yield f"{pod.uid}/{name} has nowhere to run"
        if level is Isolation.CONTAINER:
            exclusive[name] = cpus
    for container in pod.containers:
        wanted = container.resources.request(CPU).value
        if container.name in exclusive and len(exclusive[container.name]) != wanted:
            yield f"{pod.uid}/{container.name} wants {wanted} CPUs, holds {exclusive[container.name]}"
    yield from overlaps(pod, exclusive)


def overlaps(pod: Pod, exclusive: Mapping[str, CpuSet]) -> Iterator[str]:
    """Containers that run at the same time and hold the same CPU; what ends is reused by those after it."""
    for one, other in combinations(pod.containers, 2):
        if one.kind.keeps_running and one.name in exclusive and other.name in exclusive:
            both = exclusive[one.name] & exclusive[other.name]
            if both:
                yield f"{pod.uid}: {one.name} and {other.name} both hold CPUs {both}"
