"""How many exclusive CPUs a container or a pod wants, and why none (KEP-3570, KEP-5526)."""

from __future__ import annotations

from agent.domain.pod import CPU, Container, ContainerKind, Pod
from agent.domain.qos import QosClass, is_guaranteed_equivalent, qos_class
from agent.domain.quantity import Quantity
from agent.domain.settings import Gates


def is_managed_as_pod(pod: Pod, gates: Gates) -> bool:
    """Tell whether the rules of pod-level resource managers hold for the pod (KEP-5526)."""
    return gates.pod_level_resources and gates.pod_level_resource_managers and pod.has_pod_level_resources


def guaranteed_cpus(pod: Pod, container: Container, gates: Gates) -> int:
    """How many exclusive CPUs the container gets; 0: it shares."""
    n = _whole(container.resources.request(CPU))
    return n if n and _may_be_exclusive(pod, container, gates) else 0


def pod_guaranteed_cpus(pod: Pod, gates: Gates) -> int:
    """How many exclusive CPUs the pod as a whole gets; 0: it shares.

    Without pod-level resources: the most that is held at one time, sidecars counted from the moment
    they start (KEP-753).
    """
    if is_managed_as_pod(pod, gates):
        return _whole(pod.resources.request(CPU)) if qos_class(pod) is QosClass.GUARANTEED else 0
    peak = running = 0
    for container in pod.containers:
        n = guaranteed_cpus(pod, container, gates)
        if container.kind is ContainerKind.INIT:
            peak = max(peak, running + n)
        else:
            running += n
    return max(peak, running)


def why_shared(pod: Pod, container: Container, gates: Gates) -> str:
    """Why `guaranteed_cpus` is 0, for people."""
    if pod.has_pod_level_resources and not is_managed_as_pod(pod, gates):
        return "pod-level resources are not managed: the feature gate PodLevelResourceManagers is off"
    qos = qos_class(pod)
    if qos is not QosClass.GUARANTEED:
        return f"the pod is {qos.value}, exclusive CPUs are for Guaranteed pods"
    if is_managed_as_pod(pod, gates) and not is_guaranteed_equivalent(container):
        return "its requests of cpu and memory are not both set and equal to its limits"
    request = container.resources.request(CPU)
    if not request.nano:
        return "it requests no CPU"
    return f"its CPU request {request} is not a whole number"


def why_pod_shares(pod: Pod, gates: Gates) -> str:
    """Why `pod_guaranteed_cpus` is 0 for a pod with pod-level resources, for people."""
    if not is_managed_as_pod(pod, gates):
        return "pod-level resources are not managed: the feature gate PodLevelResourceManagers is off"
    qos = qos_class(pod)
    if qos is not QosClass.GUARANTEED:
        return f"the pod is {qos.value}, exclusive CPUs are for Guaranteed pods"
    return f"its pod-level CPU request {pod.resources.request(CPU)} is not a whole number"


def _may_be_exclusive(pod: Pod, container: Container, gates: Gates) -> bool:
    if qos_class(pod) is not QosClass.GUARANTEED:
        return False
    if not pod.has_pod_level_resources:
        return True
    return is_managed_as_pod(pod, gates) and is_guaranteed_equivalent(container)


def _whole(quantity: Quantity) -> int:
    """The quantity if it is a whole number, else 0.

    The kubelet's test: both sides round up, so 1999.5m passes as 2.
    """
    value = quantity.value
    return value if value * 1000 == quantity.milli else 0
