"""The rules that compare values: requests with limits, containers with their pod's budget.

Texts are the API server's, so that a search for one finds its explanation (KEP-2837, and the
ordinary rules for resources).
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.domain.pod import (
    CPU,
    CPU_ISOLATION,
    HUGEPAGES_PREFIX,
    MEMORY,
    Container,
    ContainerKind,
    CpuIsolation,
    Pod,
    ResourceName,
    Resources,
    is_hugepages,
)
from agent.domain.quantity import NANO, Quantity, parse_quantity
from agent.domain.settings import Gates
from agent.manifest.defaults import aggregate, is_pod_level, limits_of, requests_of
from agent.manifest.names import bad_qualified_name
from agent.manifest.problem import Problem, Problems, child, shown

_EPHEMERAL_STORAGE = ResourceName("ephemeral-storage")
_NATIVE = (CPU, MEMORY, _EPHEMERAL_STORAGE)
_MILLI_IN_NANO = NANO // 1000


def validate(pod: Pod, gates: Gates, source: str = "pod", place: str = "$") -> tuple[Problem, ...]:
    """Every rule that a pod with its defaults breaks; ``place`` is the path of the pod in ``source``."""
    problems = Problems(source)
    spec = f"{place}.spec"
    for container, path in _with_paths(pod, spec):
        _check_container(container.resources, f"{path}.resources", problems)
    _check_pod_level(pod, gates, spec, problems)
    _check_isolation(pod, f"{place}.metadata.annotations", problems)
    return tuple(problems.found)


def _with_paths(pod: Pod, spec: str) -> Iterator[tuple[Container, str]]:
    counts = {"initContainers": 0, "containers": 0}
    for container in pod.containers:
        field = "containers" if container.kind is ContainerKind.APP else "initContainers"
        yield container, f"{spec}.{field}[{counts[field]}]"
        counts[field] += 1


def _check_container(resources: Resources, path: str, problems: Problems) -> None:
    for name, _, where in _stated(resources, path):
        if is_hugepages(name) or name in _NATIVE:
            continue
        if "/" not in name or bad_qualified_name(name):
            problems.add(
                where, f"Invalid value: {shown(name)}: must be a standard resource type or fully qualified"
            )
    _check_resources(resources, path, problems)


def _check_pod_level(pod: Pod, gates: Gates, spec: str, problems: Problems) -> None:
    path = f"{spec}.resources"
    if not pod.resources.requests and not pod.resources.limits:
        return
    if not gates.pod_level_resources:
        problems.add(path, "Forbidden: may not be set unless the PodLevelResources feature gate is enabled")
        return
    if _is_windows(pod):
        problems.add(path, "Forbidden: may not be set for a windows pod")
        return
    for name, _, where in _stated(pod.resources, path):
        if not is_pod_level(name):
            problems.add(
                where,
                f'Unsupported value: {shown(name)}: supported values: "{CPU}", "{HUGEPAGES_PREFIX}", "{MEMORY}"',
            )
    _check_resources(pod.resources, path, problems)
    _check_budget(pod, spec, problems)


def _check_isolation(pod: Pod, path: str, problems: Problems) -> None:
    stated = pod.annotations.get(CPU_ISOLATION)
    supported = [kind.value for kind in CpuIsolation]
    if stated is not None and stated not in supported:
        text = f"Unsupported value: {shown(stated)}: supported values: {', '.join(map(shown, supported))}"
        problems.add(child(path, CPU_ISOLATION), text)


def _is_windows(pod: Pod) -> bool:
    spec = pod.manifest.get("spec")
    system = spec.get("os") if isinstance(spec, dict) else None
    return isinstance(system, dict) and system.get("name") == "windows"


def _check_budget(pod: Pod, spec: str, problems: Problems) -> None:
    """The containers against the pod's budget. Limits may add up to more than the pod's, as with containers."""
    stated = pod.resources
    for name, needed in sorted(aggregate(pod, requests_of).items()):
        budget = stated.requests.get(name)
        if budget is not None and needed.nano > budget.nano:
            text = f"must be greater than or equal to aggregate container requests of {needed}"
            problems.add(child(f"{spec}.resources.requests", name), _invalid(budget, text))
    for name, needed in sorted(aggregate(pod, limits_of).items()):
        budget = stated.limits.get(name)
        if is_hugepages(name) and budget is not None and needed.nano > budget.nano:
            text = f"must be greater than or equal to aggregate container limits of {needed}"
            problems.add(child(f"{spec}.resources.limits", name), _invalid(budget, text))
    for container, path in _with_paths(pod, spec):
        if container.kind is not ContainerKind.APP:
            continue  # as upstream: an init container's limit is only capped by the pod's
        for name, limit in container.resources.limits.items():
            most = stated.limits.get(name)
            if most is not None and limit.nano > most.nano:
                text = f"must be less than or equal to pod limits of {most}"
                problems.add(child(f"{path}.resources.limits", name), _invalid(limit, text))


def _check_resources(resources: Resources, path: str, problems: Problems) -> None:
    for name, quantity, where in _stated(resources, path):
        _check_amount(name, quantity, where, problems)
    for name, request in resources.requests.items():
        _check_request(name, request, resources, path, problems)
    names = {*resources.requests, *resources.limits}
    if any(map(is_hugepages, names)) and not names & {CPU, MEMORY}:
        problems.add(path, "Forbidden: HugePages require cpu or memory")


def _check_amount(name: ResourceName, quantity: Quantity, where: str, problems: Problems) -> None:
    if quantity.nano < 0:
        problems.add(where, _invalid(quantity, "must be greater than or equal to 0"))
    elif name == CPU and quantity.nano % _MILLI_IN_NANO:
        problems.add(where, _invalid(quantity, "must not be finer than 1m"))
    elif is_hugepages(name) and not _whole_pages(name, quantity):
        problems.add(where, _invalid(quantity, f"{quantity} is not positive integer multiple of {name}"))
    elif "/" in name and quantity.nano % NANO:
        problems.add(where, _invalid(quantity, "must be an integer"))


def _check_request(
    name: ResourceName, request: Quantity, resources: Resources, path: str, problems: Problems
) -> None:
    where = child(f"{path}.requests", name)
    limit = resources.limits.get(name)
    overcommit = name in _NATIVE
    if limit is None:
        if not overcommit:
            text = "Required value: Limit must be set for non overcommitable resources"
            problems.add(child(f"{path}.limits", name), text)
    elif not overcommit and request.nano != limit.nano:
        problems.add(where, _invalid(request, f"must be equal to {name} limit of {limit}"))
    elif request.nano > limit.nano:
        problems.add(where, _invalid(request, f"must be less than or equal to {name} limit of {limit}"))


def _whole_pages(name: ResourceName, quantity: Quantity) -> bool:
    try:
        page = parse_quantity(name.removeprefix(HUGEPAGES_PREFIX))
    except ValueError:
        return False
    return page.nano > 0 and page.nano % NANO == 0 and quantity.nano % page.nano == 0


def _stated(resources: Resources, path: str) -> Iterator[tuple[ResourceName, Quantity, str]]:
    """Limits, then the requests that differ: a request may have come from its limit."""
    for name, limit in resources.limits.items():
        yield name, limit, child(f"{path}.limits", name)
    for name, request in resources.requests.items():
        if request != resources.limits.get(name):
            yield name, request, child(f"{path}.requests", name)


def _invalid(value: Quantity, text: str) -> str:
    return f"Invalid value: {shown(str(value))}: {text}"
