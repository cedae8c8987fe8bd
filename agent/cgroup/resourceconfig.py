"""What a pod's and a container's requests and limits mean for its cgroup (KEP-2837).

A pod's own value replaces the sum over its containers, resource by resource. Init containers run
one after another, beside the sidecars started before them: a pod needs the largest such moment.
"""

from __future__ import annotations

from collections.abc import Callable

from agent.cgroup.units import UNLIMITED, ByteLimit, Bytes, MilliCpu, MilliLimit, Unlimited
from agent.domain.pod import CPU, MEMORY, Container, ContainerKind, Pod, ResourceName, Resources
from agent.domain.quantity import Quantity

_Side = Callable[[Resources, ResourceName], Quantity]
"""`Resources.request` or `Resources.limit`."""


def pod_cpu_request(pod: Pod) -> MilliCpu:
    """CPUs the pod asks for."""
    return MilliCpu(_total(pod, CPU, Resources.request).milli)


def pod_cpu_limit(pod: Pod) -> MilliLimit:
    """CPUs the pod may use; unlimited unless it, or else every container, states a limit."""
    limit = _stated_limit(pod, CPU)
    return UNLIMITED if isinstance(limit, Unlimited) else MilliCpu(limit.milli)


def pod_memory_limit(pod: Pod) -> ByteLimit:
    """Memory the pod may use; unlimited unless it, or else every container, states a limit."""
    limit = _stated_limit(pod, MEMORY)
    return UNLIMITED if isinstance(limit, Unlimited) else Bytes(limit.value)


def pod_hugepages(pod: Pod, name: ResourceName) -> Bytes:
    """Huge pages the pod asks for, in bytes."""
    return Bytes(_total(pod, name, Resources.request).value)


def cpu_request(pod: Pod, container: Container) -> MilliCpu:
    """CPUs the container asks for; where it does not say, as much as it (or else its pod) may use."""
    if CPU in container.resources.requests:
        return MilliCpu(container.resources.request(CPU).milli)
    own = container.resources.limit(CPU)
    return MilliCpu((own if own.nano else pod.resources.limit(CPU)).milli)


def cpu_limit(container: Container) -> MilliLimit:
    """The container's own CPU limit."""
    limit = container.resources.limit(CPU)
    return MilliCpu(limit.milli) if limit.nano else UNLIMITED


def memory_limit(container: Container) -> ByteLimit:
    """The container's own memory limit."""
    limit = container.resources.limit(MEMORY)
    return Bytes(limit.value) if limit.nano else UNLIMITED


def hugepages_limit(pod: Pod, container: Container, name: ResourceName) -> Bytes:
    """Huge pages the container may use, in bytes: its own limit, else its pod's, else none."""
    stated = container.resources if name in container.resources.limits else pod.resources
    return Bytes(stated.limit(name).value)


def _stated_limit(pod: Pod, name: ResourceName) -> Quantity | Unlimited:
    own = pod.resources.limit(name)
    if own.nano:
        return own
    everywhere = all(container.resources.limit(name).nano for container in pod.containers)
    limit = _total(pod, name, Resources.limit)
    return limit if limit.nano and everywhere else UNLIMITED


def _total(pod: Pod, name: ResourceName, side: _Side) -> Quantity:
    own = side(pod.resources, name)
    if own.nano:
        return own
    sidecars = apps = peak = 0
    for container in pod.containers:
        amount = side(container.resources, name).nano
        if container.kind is ContainerKind.INIT:
            peak = max(peak, sidecars + amount)
        elif container.kind is ContainerKind.SIDECAR:
            sidecars += amount
        else:
            apps += amount
    return Quantity(max(peak, sidecars + apps))
