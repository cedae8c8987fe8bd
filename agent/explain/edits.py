"""Changing what a pod asks for, as its author could: a suggestion is only made after it was rehearsed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from agent.domain.pod import CPU, EMPTY, Container, ContainerKind, Pod, ResourceName, Resources
from agent.domain.quantity import NANO, Quantity
from agent.domain.trace import WHOLE_POD
from agent.explain.english import listed

Amounts = Mapping[ResourceName, int]
"""CPUs, or bytes by memory type."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A changed pod; ``text`` names the change: ``spec.resources cpu to 3``."""

    pod: Pod
    text: str


def with_amounts(pod: Pod, container: str, now: Amounts, wanted: Amounts) -> Edit | None:
    """The pod asking for ``wanted`` instead of ``now``; None where no simple change gives a sound spec.

    ``container`` may be `WHOLE_POD`: then `.spec.resources` changes, or in a pod without them the
    container that asks for most.
    """
    changed = {resource: size for resource, size in wanted.items() if size != now[resource]}
    if container == WHOLE_POD and pod.has_pod_level_resources:
        return _budget(pod, changed)
    parts: list[str] = []
    for resource, size in sorted(changed.items()):
        who = _largest(pod, resource) if container == WHOLE_POD else pod.container(container)
        if who is None:
            return None
        own = who.resources.request(resource).value + size - now[resource]
        if own <= 0:
            return None
        pod = _with_container(pod, who, _stating(who.resources, {resource: own}))
        parts.append(f"{resource} of {who.name} to {shown(resource, own)}")
    return Edit(pod, listed(parts)) if parts else None


def _budget(pod: Pod, changed: Amounts) -> Edit | None:
    if not changed or any(size < _asked_at_once(pod, resource) for resource, size in changed.items()):
        return None
    parts = [f"{resource} to {shown(resource, size)}" for resource, size in sorted(changed.items())]
    return Edit(
        replace(pod, resources=_stating(pod.resources, changed)),
        f"spec.resources {listed(parts)}",
    )


def shown(resource: ResourceName, size: int) -> str:
    """The amount as one would write it in a manifest."""
    return str(_quantity(resource, size))


def _quantity(resource: ResourceName, size: int) -> Quantity:
    return Quantity.whole(size) if resource == CPU else Quantity.bytes(size)


def _stating(resources: Resources, amounts: Amounts) -> Resources:
    stated = {resource: _quantity(resource, size) for resource, size in amounts.items()}
    return Resources(requests={**resources.requests, **stated}, limits={**resources.limits, **stated})


def _with_container(pod: Pod, old: Container, resources: Resources) -> Pod:
    new = replace(old, resources=resources)
    containers = tuple(new if c.name == old.name else c for c in pod.containers)
    return replace(pod, containers=containers, manifest=EMPTY)


def _largest(pod: Pod, resource: ResourceName) -> Container | None:
    return max(pod.containers, key=lambda c: c.resources.request(resource).nano, default=None)


def _asked_at_once(pod: Pod, resource: ResourceName) -> int:
    """What the containers request together, which `.spec.resources` may not undercut (KEP-2837)."""
    running = peak = 0
    for container in pod.containers:
        request = container.resources.request(resource).nano
        if container.kind is ContainerKind.INIT:
            peak = max(peak, running + request)
        else:
            running += request
    return -(-max(peak, running) // NANO)
