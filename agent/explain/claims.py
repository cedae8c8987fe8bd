"""What each container claims: exclusive CPUs and memory of its own, or why it shares (KEP-5526)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.cpumanager.requests import (
    guaranteed_cpus,
    is_managed_as_pod,
    pod_guaranteed_cpus,
    why_pod_shares,
    why_shared,
)
from agent.domain.pod import Container, ContainerKind, Pod, ResourceName
from agent.domain.qos import QosClass, is_guaranteed_equivalent, qos_class
from agent.domain.settings import CpuPolicy, MemoryPolicy, Settings, TopologyPolicy, TopologyScope
from agent.domain.trace import Pool
from agent.errors import AdmissionError
from agent.memorymanager.requests import container_requests, pod_requests


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One container's claim: ``cpus`` and ``memory`` (bytes by type) of its own, else why not.

    ``cpu_pool`` and ``memory_pool`` say where it lives for what it does not own.
    """

    container: str
    kind: ContainerKind
    cpus: int = 0
    why_no_cpus: str = ""
    memory: Mapping[ResourceName, int] = field(default_factory=dict)
    why_no_memory: str = ""
    cpu_pool: Pool = Pool.NODE
    memory_pool: Pool = Pool.NODE


def claims(pod: Pod, settings: Settings) -> tuple[Claim, ...]:
    """One claim a container, in spec order."""
    return tuple(_claim(pod, container, settings) for container in pod.containers)


def is_allocated_as_pod(pod: Pod, settings: Settings) -> bool:
    """Tell whether the pod gets one allocation that its containers divide."""
    return (
        settings.topology_policy is not TopologyPolicy.NONE
        and settings.topology_scope is TopologyScope.POD
        and is_managed_as_pod(pod, settings.gates)
    )


def pod_budget(pod: Pod, settings: Settings) -> Mapping[ResourceName, int]:
    """The bytes by type the pod asks the Memory manager for as a whole; empty where it asks nothing."""
    if _why_no_memory(pod, settings):
        return {}
    try:
        return pod_requests(pod)
    except AdmissionError:
        return {}


def _claim(pod: Pod, container: Container, settings: Settings) -> Claim:
    as_pod = is_allocated_as_pod(pod, settings)
    cpus, why_no_cpus = _cpus(pod, container, settings)
    memory, why_no_memory = _memory(pod, container, settings)
    has_cpu_pool = settings.cpu_policy is CpuPolicy.STATIC and pod_guaranteed_cpus(pod, settings.gates) > 0
    return Claim(
        container=container.name,
        kind=container.kind,
        cpus=cpus,
        why_no_cpus=why_no_cpus,
        memory=memory,
        why_no_memory=why_no_memory,
        cpu_pool=Pool.POD if as_pod and has_cpu_pool else Pool.NODE,
        memory_pool=Pool.POD if as_pod and pod_budget(pod, settings) else Pool.NODE,
    )


def _cpus(pod: Pod, container: Container, settings: Settings) -> tuple[int, str]:
    gates = settings.gates
    if settings.cpu_policy is CpuPolicy.NONE:
        return 0, "cpuManagerPolicy is none"
    if is_allocated_as_pod(pod, settings) and not pod_guaranteed_cpus(pod, gates):
        return 0, why_pod_shares(pod, gates)
    n = guaranteed_cpus(pod, container, gates)
    return n, "" if n else why_shared(pod, container, gates)


def _memory(pod: Pod, container: Container, settings: Settings) -> tuple[Mapping[ResourceName, int], str]:
    why = _why_no_memory(pod, settings)
    if why:
        return {}, why
    if pod.has_pod_level_resources and not is_guaranteed_equivalent(container):
        return {}, "its requests of cpu and memory are not both set and equal to its limits"
    try:
        requested = container_requests(pod, container)
    except AdmissionError as error:
        return {}, error.hint
    return requested, "" if requested else "it requests no memory"


def _why_no_memory(pod: Pod, settings: Settings) -> str:
    """Why the Memory manager leaves the whole pod alone; empty where it does not."""
    if settings.memory_policy is MemoryPolicy.NONE:
        return "memoryManagerPolicy is None"
    if pod.has_pod_level_resources and not is_managed_as_pod(pod, settings.gates):
        return "pod-level resources are not managed: the feature gate PodLevelResourceManagers is off"
    qos = qos_class(pod)
    if qos is not QosClass.GUARANTEED:
        return f"the pod is {qos.value}, only memory of Guaranteed pods is assigned"
    return ""
