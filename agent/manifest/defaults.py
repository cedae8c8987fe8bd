"""Defaults of requests and limits, container level first, then pod level (KEP-2837).

A pod's aggregate counts a sidecar for the pod's whole life and an ordinary init container only
while it runs, beside the sidecars started before it (KEP-753).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from agent.domain.pod import (
    CPU,
    Container,
    ContainerKind,
    Pod,
    ResourceName,
    Resources,
    is_hugepages,
    is_memory_type,
)
from agent.domain.quantity import Quantity
from agent.domain.settings import Gates

Amounts = Mapping[ResourceName, Quantity]


def with_defaults(pod: Pod, gates: Gates) -> Pod:
    """The pod with every request and limit that follows from stated ones; its manifest stays as written.

    A container request missing beside a limit becomes the limit. At pod level, where anything is
    stated there: a limit becomes the containers' aggregate if all of them have one (any of them,
    for huge pages), then a request becomes the containers' aggregate if any has one, else the limit.
    """
    containers = tuple(map(_container_with_requests, pod.containers))
    if containers != pod.containers:
        pod = replace(pod, containers=containers)
    if not gates.pod_level_resources or not pod.has_pod_level_resources:
        return pod
    limits = {**_default_limits(pod), **pod.resources.limits}
    pod = replace(pod, resources=replace(pod.resources, limits=limits))
    requests = {**_default_requests(pod), **pod.resources.requests}
    return replace(pod, resources=replace(pod.resources, requests=requests))


def is_pod_level(name: ResourceName) -> bool:
    """Tell whether `.spec.resources` may state ``name``."""
    return name == CPU or is_memory_type(name)


def requests_of(container: Container) -> Amounts:
    """The container's requests, for `aggregate`."""
    return container.resources.requests


def limits_of(container: Container) -> Amounts:
    """The container's limits, for `aggregate`."""
    return container.resources.limits


def aggregate(pod: Pod, stated: Callable[[Container], Amounts]) -> dict[ResourceName, Quantity]:
    """The most that all containers together ask for at any moment, per resource (KEP-753)."""
    lasting: dict[ResourceName, Quantity] = {}
    peak: dict[ResourceName, Quantity] = {}
    for container in pod.containers:
        for name, amount in stated(container).items():
            total = lasting[name] + amount if name in lasting else amount
            if container.kind is not ContainerKind.INIT:
                lasting[name] = total
            elif name not in peak or total.nano > peak[name].nano:
                peak[name] = total
    for name, amount in peak.items():
        if name not in lasting or amount.nano > lasting[name].nano:
            lasting[name] = amount
    return lasting


def _container_with_requests(container: Container) -> Container:
    stated = container.resources
    if stated.limits.keys() <= stated.requests.keys():
        return container
    return replace(
        container, resources=Resources(requests={**stated.limits, **stated.requests}, limits=stated.limits)
    )


def _default_limits(pod: Pod) -> Amounts:
    return {
        name: amount
        for name, amount in aggregate(pod, limits_of).items()
        if is_pod_level(name) and _limit_follows(pod, name)
    }


def _limit_follows(pod: Pod, name: ResourceName) -> bool:
    if is_hugepages(name):
        return name not in pod.resources.requests
    return all(name in container.resources.limits for container in pod.containers)


def _default_requests(pod: Pod) -> Amounts:
    from_containers = {
        name: amount
        for name, amount in aggregate(pod, requests_of).items()
        if is_pod_level(name) and not is_hugepages(name)
    }
    from_limits = {name: amount for name, amount in pod.resources.limits.items() if is_pod_level(name)}
    return {**from_limits, **from_containers}
