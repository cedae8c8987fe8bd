"""Which memory a container or a pod asks the Static policy for, in bytes per type (KEP-1769, KEP-5526).

All functions expect a pod the policy manages: with pod-level resources only while the gates are on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from agent.domain.pod import Container, ContainerKind, Pod, ResourceName, Resources
from agent.domain.qos import is_guaranteed_equivalent
from agent.domain.quantity import NANO
from agent.errors import AdmissionError

Requests = Mapping[ResourceName, int]
"""Bytes by memory type, types ascending."""


def container_requests(pod: Pod, container: Container) -> Requests:
    """What ``container`` wants for itself; empty where it shares (KEP-5526: not Guaranteed-equivalent).

    Raises AdmissionError for a fraction of a byte.
    """
    if pod.has_pod_level_resources and not is_guaranteed_equivalent(container):
        return {}
    return _requested(container.resources)


def pod_requests(pod: Pod) -> Requests:
    """What the pod wants as a whole: its pod-level budget, else what its containers need at once.

    A type that only init containers ask for is left out, as the kubelet does. Raises
    AdmissionError for a fraction of a byte.
    """
    if pod.has_pod_level_resources:
        return {name: size for name, size in _requested(pod.resources).items() if size > 0}
    return _aggregated(pod)


def _aggregated(pod: Pod) -> Requests:
    """The larger of the init phase's peak and the sum of what keeps running (KEP-753)."""
    apps: dict[ResourceName, int] = {}
    sidecars: dict[ResourceName, int] = {}
    init_peak: dict[ResourceName, int] = {}
    for kind, name, size in _asked(pod):
        match kind:
            case ContainerKind.APP:
                apps[name] = apps.get(name, 0) + size
            case ContainerKind.SIDECAR:
                sidecars[name] = sidecars.get(name, 0) + size
            case ContainerKind.INIT:
                init_peak[name] = max(init_peak.get(name, 0), sidecars.get(name, 0) + size)
    return {
        name: max(size + sidecars.get(name, 0), init_peak.get(name, 0)) for name, size in sorted(apps.items())
    }


def _asked(pod: Pod) -> Iterator[tuple[ContainerKind, ResourceName, int]]:
    for container in pod.containers:
        for name, size in container_requests(pod, container).items():
            yield container.kind, name, size


def _requested(resources: Resources) -> Requests:
    sizes = {}
    for name, quantity in resources.memory_requests.items():
        size, fraction = divmod(quantity.nano, NANO)
        if fraction:
            raise AdmissionError(
                "[memorymanager] failed to represent quantity as int64",
                hint=f"{name} {quantity} is not a whole number of bytes",
            )
        sizes[name] = size
    return sizes
