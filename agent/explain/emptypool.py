"""The way out of an empty pod shared pool (KEP-5526): who takes what, and what would have to change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from agent.cpumanager.requests import guaranteed_cpus, pod_guaranteed_cpus
from agent.domain.pod import CPU, MEMORY, ContainerKind, Pod, ResourceName
from agent.domain.quantity import parse_quantity
from agent.domain.settings import CpuPolicy, MemoryPolicy, Settings
from agent.domain.trace import WHOLE_POD
from agent.errors import AdmissionError
from agent.explain.edits import Edit, shown, with_amounts
from agent.explain.english import listed
from agent.memorymanager.requests import container_requests, pod_requests

MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptyPool:
    """One resource of which a container would get nothing.

    ``takers`` hold exclusive slices, in spec order; ``short`` is who is left without; it needs
    ``own`` of its own beside them. ``unit`` is the least that makes sense to add.
    """

    resource: ResourceName
    budget: int
    takers: Mapping[str, int]
    short: tuple[str, ...]
    own: int
    unit: int

    @property
    def left(self) -> int:
        """What the takers leave of the budget."""
        return self.budget - sum(self.takers.values())

    @property
    def missing(self) -> int:
        """By how much the budget is too small."""
        return (self.own or self.unit) - self.left

    def situation(self) -> str:
        """``cpu: 4 requested; 3 + 1 go to exclusive slices (a, b); c needs at least 1``."""
        sizes = " + ".join(shown(self.resource, size) for size in self.takers.values())
        taken = f"{sizes} go to exclusive slices ({', '.join(self.takers)})"
        if len(self.takers) == 1:
            taken = f"{sizes} goes to the exclusive slice of {next(iter(self.takers))}"
        least = shown(self.resource, self.own or self.unit)
        amount = least if self.own else "some" if self.resource == MEMORY else f"at least {least}"
        needs = "needs" if len(self.short) == 1 else "need"
        return (
            f"{self.resource}: {shown(self.resource, self.budget)} requested;"
            f" {taken if self.takers else 'nothing is taken'}; {listed(self.short)} {needs} {amount}"
        )

    def reducible(self) -> str | None:
        """The largest taker that can give up what is missing."""
        able = [(size, name) for name, size in self.takers.items() if size > self.missing]
        return max(able, key=lambda taker: taker[0])[1] if able else None


def empty_pools(pod: Pod, settings: Settings) -> tuple[EmptyPool, ...]:
    """Every resource whose pod shared pool would be empty; cpu first, then memory types by name."""
    return tuple(
        pool
        for resource, budget, exclusive in _budgets(pod, settings)
        if (pool := _worst_shortage(pod, resource, budget, exclusive, _unit(resource, settings)))
    )


def _budgets(
    pod: Pod, settings: Settings
) -> Iterator[tuple[ResourceName, int, Mapping[str, Mapping[ResourceName, int]]]]:
    """Each resource of the pod's budget, and what containers with slices of their own take of it."""
    cpus = pod_guaranteed_cpus(pod, settings.gates)
    if settings.cpu_policy is CpuPolicy.STATIC and cpus:
        slices = {c.name: n for c in pod.containers if (n := guaranteed_cpus(pod, c, settings.gates))}
        yield CPU, cpus, {name: {CPU: n} for name, n in slices.items()}
    if settings.memory_policy is MemoryPolicy.STATIC:
        try:
            budget = pod_requests(pod)
            own = {c.name: requests for c in pod.containers if (requests := container_requests(pod, c))}
        except AdmissionError:
            return
        for resource, size in budget.items():
            yield resource, size, own


def _worst_shortage(
    pod: Pod,
    resource: ResourceName,
    budget: int,
    exclusive: Mapping[str, Mapping[ResourceName, int]],
    unit: int,
) -> EmptyPool | None:
    """Walk the containers as the managers do; an init container runs beside the sidecars before it."""
    takers: dict[str, int] = {}
    sharing: list[str] = []
    found: list[EmptyPool] = []

    def note(short: tuple[str, ...], own: int) -> None:
        pool = EmptyPool(
            resource=resource, budget=budget, takers=dict(takers), short=short, own=own, unit=unit
        )
        if short and pool.left < max(own, 1):
            found.append(pool)

    for container in pod.containers:
        own = exclusive.get(container.name)
        size = own.get(resource, 0) if own is not None else 0
        if container.kind is ContainerKind.INIT:
            if own is None or size:
                note((container.name,), size)
        elif own is None:
            sharing.append(container.name)
        elif size:
            takers[container.name] = size
    note(tuple(sharing), 0)
    return max(found, key=lambda pool: pool.missing, default=None)


def _unit(resource: ResourceName, settings: Settings) -> int:
    if resource == CPU:
        return 1
    if resource == MEMORY:
        return MIB
    return parse_quantity(resource.removeprefix("hugepages-")).value


def raised(pod: Pod, pools: tuple[EmptyPool, ...], multiple: int) -> Edit | None:
    """A budget that is just large enough; CPUs as a ``multiple`` (whole cores under full-pcpus-only)."""
    now = {pool.resource: pool.budget for pool in pools}
    wanted = {pool.resource: pool.budget + pool.missing for pool in pools}
    if CPU in wanted:
        wanted[CPU] += -wanted[CPU] % multiple
    return with_amounts(pod, WHOLE_POD, now, wanted)


def lowered(pod: Pod, pools: tuple[EmptyPool, ...]) -> Edit | None:
    """The largest exclusive container of each resource gives up what is missing."""
    parts = []
    for pool in pools:
        name = pool.reducible()
        if name is None:
            return None
        size = pool.takers[name]
        edit = with_amounts(pod, name, {pool.resource: size}, {pool.resource: size - pool.missing})
        if edit is None:
            return None
        pod = edit.pod
        parts.append(edit.text)
    return Edit(pod, listed(parts))
