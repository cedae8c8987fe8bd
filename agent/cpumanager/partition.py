"""KEP-5526: dividing a pod's CPUs among its containers, and the empty-shared-pool refusals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agent.cpumanager.packed import Taken
from agent.cpumanager.requests import guaranteed_cpus, pod_guaranteed_cpus
from agent.domain.idset import CpuSet
from agent.domain.pod import ContainerKind, Pod
from agent.domain.settings import Gates
from agent.domain.trace import Pick
from agent.errors import AdmissionError

Take = Callable[[CpuSet, int], Taken]


@dataclass(frozen=True, slots=True)
class Slice:
    """What one container gets of its pod's CPUs; ``picks`` is empty where it shares."""

    container: str
    cpus: CpuSet
    picks: tuple[Pick, ...] = ()


def partition(
    pod: Pod, gates: Gates, pod_cpus: CpuSet, held: Mapping[str, CpuSet], take: Take
) -> tuple[Slice, ...]:
    """Divide ``pod_cpus``, in spec order; what a container ``held`` already it keeps.

    Sidecars and exclusive app containers keep their slices for good. An ordinary init container may
    use all that sidecars before it have left. Who shares gets what is left in the end, except an
    init container: it sees what is left when it runs. Raises AdmissionError.
    """
    slices: dict[str, Slice] = {}
    pool = pod_cpus
    for container in pod.containers:
        n = guaranteed_cpus(pod, container, gates)
        init = container.kind is ContainerKind.INIT
        if container.name in held:
            own = Slice(container.name, held[container.name])
        elif n:
            taken = take(pool, n)
            own = Slice(container.name, taken.cpus, taken.picks)
        elif init:
            own = Slice(container.name, pool)
        else:
            continue
        slices[container.name] = own
        if n and not init:
            pool -= own.cpus
    return tuple(slices.get(c.name, Slice(c.name, pool)) for c in pod.containers)


def held_prefix(pod: Pod, held: Mapping[str, CpuSet]) -> bool:
    """Tell whether exactly the first containers of spec order hold CPUs, without a hole."""
    holding = [container.name in held for container in pod.containers]
    return holding == sorted(holding, reverse=True)


def check_shared_pool(pod: Pod, gates: Gates) -> None:
    """Raise AdmissionError (EmptyPodSharedPoolError) if a container that shares would get no CPU."""
    budget = pod_guaranteed_cpus(pod, gates)
    used = 0
    sharing = False
    for container in pod.containers:
        n = guaranteed_cpus(pod, container, gates)
        if container.kind is ContainerKind.INIT:
            _check_init(n, budget - used)
        elif n:
            used += n
        else:
            sharing = True
    if sharing and used >= budget:
        raise _refused(
            "sum of exclusive container cpu requests equals pod budget, leaving no cpus for shared containers"
        )


def _check_init(n: int, left: int) -> None:
    if n and n > left:
        raise _refused(f"largest exclusive init container requests {n} cpus, but only {left} available")
    if n == 0 and left <= 0:
        raise _refused("pod has shared init containers but no cpus available for them")


def _refused(why: str) -> AdmissionError:
    return AdmissionError(f"pod rejected, {why}", reason="EmptyPodSharedPoolError")
