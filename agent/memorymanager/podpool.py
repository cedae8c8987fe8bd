"""Dividing a pod's one memory allocation among its containers (KEP-5526, pod scope).

Every block spans the pod's nodes. Exclusive containers get what they request, an ordinary init
container that shares gets the budget less the exclusive sidecars before it, and all others share
what the exclusive sidecars and app containers leave. `check_shared_pool` refuses a pod whose
sharing containers would be left with nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from agent.domain.idset import NodeMask
from agent.domain.pod import Container, ContainerKind, Pod, ResourceName
from agent.domain.state import Block, Blocks
from agent.errors import AdmissionError
from agent.memorymanager.requests import Requests, container_requests

EMPTY_POD_SHARED_POOL = "EmptyPodSharedPoolError"


def check_shared_pool(pod: Pod, budget: Requests) -> None:
    """Raise AdmissionError (EmptyPodSharedPoolError) if some container would share an empty pool.

    Every type of the budget must leave something, also for a container that needs none of it.
    """
    exclusive = dict.fromkeys(budget, 0)
    for container in pod.containers:
        requests = container_requests(pod, container)
        if container.kind is ContainerKind.INIT:
            _check_init(container, requests, budget, exclusive)
        else:
            _add(exclusive, requests)
    sharing = [c.name for c in pod.containers if _shares_for_long(pod, c)]
    if not sharing:
        return
    for kind, total in budget.items():
        if exclusive[kind] >= total:
            raise AdmissionError(
                f"pod rejected, sum of exclusive container {kind} requests equals pod budget,"
                " leaving no memory for shared containers",
                reason=EMPTY_POD_SHARED_POOL,
                hint=f"exclusive containers take {exclusive[kind]} of {total} bytes;"
                f" sharing containers: {', '.join(sharing)}",
            )


def _check_init(
    container: Container, requests: Requests, budget: Requests, exclusive: Mapping[ResourceName, int]
) -> None:
    """An init container runs beside the exclusive sidecars before it, whose sum is ``exclusive``."""
    for kind, total in budget.items():
        available = total - exclusive[kind]
        if requests and requests.get(kind, 0) > available:
            raise AdmissionError(
                f"pod rejected, largest exclusive init container requests {requests[kind]} of {kind},"
                f" but only {available} available",
                reason=EMPTY_POD_SHARED_POOL,
                hint=f"init container {container.name} runs beside the sidecars before it",
            )
        if not requests and available <= 0:
            raise AdmissionError(
                f"pod rejected, pod has shared init containers but no {kind} available for them",
                reason=EMPTY_POD_SHARED_POOL,
                hint=f"init container {container.name} shares what the sidecars before it leave",
            )


def _shares_for_long(pod: Pod, container: Container) -> bool:
    return container.kind is not ContainerKind.INIT and not container_requests(pod, container)


def partition(pod: Pod, budget: Requests, nodes: NodeMask) -> Mapping[str, Blocks]:
    """The blocks of each container, in spec order; no block has size 0."""
    exclusive = dict.fromkeys(budget, 0)
    own: dict[str, Blocks] = {}
    for container in pod.containers:
        requests = container_requests(pod, container)
        if requests:
            own[container.name] = _blocks(nodes, requests)
        elif container.kind is ContainerKind.INIT:
            own[container.name] = _blocks(nodes, _left(budget, exclusive))
        if container.kind is not ContainerKind.INIT:
            _add(exclusive, requests)
    shared = _blocks(nodes, _left(budget, exclusive))
    return {container.name: own.get(container.name, shared) for container in pod.containers}


def _add(sums: dict[ResourceName, int], requests: Requests) -> None:
    for kind in sums:
        sums[kind] += requests.get(kind, 0)


def _left(budget: Requests, exclusive: Mapping[ResourceName, int]) -> Requests:
    return {kind: total - exclusive[kind] for kind, total in budget.items()}


def _blocks(nodes: NodeMask, sizes: Requests) -> Blocks:
    return tuple(Block(nodes, kind, size) for kind, size in sizes.items() if size > 0)
