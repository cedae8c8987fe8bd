"""Pods as numalet sees them: names, containers in spec order, requests and limits.

Spec order is init containers (sidecars among them) first, then app containers; the managers walk
it in this order (KEP-5526).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, Final, NewType

from agent.domain.binding import Bindings
from agent.domain.quantity import ZERO, Quantity

PodUid = NewType("PodUid", str)
ResourceName = NewType("ResourceName", str)

CPU: Final = ResourceName("cpu")
MEMORY: Final = ResourceName("memory")
HUGEPAGES_PREFIX: Final = "hugepages-"

CPU_ISOLATION: Final = "numalet/cpu-isolation"
"""The annotation that says how a pod's slices are cut off from the host; see `CpuIsolation`."""

EMPTY: Final[Mapping[Any, Any]] = {}
"""The one shared empty mapping; never written to."""


def is_hugepages(name: ResourceName) -> bool:
    """Tell whether ``name`` is a huge page resource such as ``hugepages-2Mi``."""
    return name.startswith(HUGEPAGES_PREFIX)


def is_memory_type(name: ResourceName) -> bool:
    """Tell whether the Memory manager serves ``name``."""
    return name == MEMORY or is_hugepages(name)


class CpuIsolation(Enum):
    """What a slice is under ``hostIsolation: partition``, as cpuset.cpus.partition has it.

    ``isolated``: the scheduler does not move threads between its CPUs.
    """

    ROOT = "root"
    ISOLATED = "isolated"


class ContainerKind(Enum):
    """What a container is to the managers."""

    INIT = "init"
    """Runs to its end before the app containers start; its exclusive CPUs are reused."""
    SIDECAR = "sidecar"
    """An init container with ``restartPolicy: Always``: keeps running, keeps its CPUs."""
    APP = "app"

    @property
    def keeps_running(self) -> bool:
        """Whether it runs as long as its pod; only a standard init container does not."""
        return self is not ContainerKind.INIT


class RestartPolicy(Enum):
    """`.spec.restartPolicy`."""

    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Requests and limits by resource name; a name that is absent was not stated.

    Not slotted: what decisions ask for again and again is worked out once.
    """

    requests: Mapping[ResourceName, Quantity] = field(default_factory=dict)
    limits: Mapping[ResourceName, Quantity] = field(default_factory=dict)

    def request(self, name: ResourceName) -> Quantity:
        """The request for ``name``, zero if not stated."""
        return self.requests.get(name, ZERO)

    def limit(self, name: ResourceName) -> Quantity:
        """The limit for ``name``, zero if not stated."""
        return self.limits.get(name, ZERO)

    @cached_property
    def is_pinned(self) -> bool:
        """Whether cpu and memory are both non-zero, and each request equals its limit."""
        stated = ((self.request(name).nano, self.limit(name).nano) for name in (CPU, MEMORY))
        return all(request > 0 and request == limit for request, limit in stated)

    @cached_property
    def is_stated(self) -> bool:
        """Whether any request or limit of cpu or memory is above zero."""
        return any(stated(name).nano > 0 for stated in (self.request, self.limit) for name in (CPU, MEMORY))

    @cached_property
    def memory_requests(self) -> Mapping[ResourceName, Quantity]:
        """The requests of memory types, ascending by name."""
        return {name: quantity for name, quantity in sorted(self.requests.items()) if is_memory_type(name)}


NO_RESOURCES: Final = Resources()


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """One init, sidecar or app container."""

    name: str
    kind: ContainerKind = ContainerKind.APP
    resources: Resources = NO_RESOURCES


@dataclass(frozen=True, kw_only=True)
class Pod:
    """One pod. ``resources`` is `.spec.resources`; `NO_RESOURCES` where the pod states none.

    ``bindings`` are the containers that something else runs (see `Binding`); decisions do not depend on them.

    Not slotted, as `Resources` is not.

    ``manifest`` is the accepted Pod object as JSON-able values, kept so that nothing a user wrote
    is lost; the managers never read it.
    """

    name: str
    namespace: str
    uid: PodUid
    containers: tuple[Container, ...]
    resources: Resources = NO_RESOURCES
    ephemeral: tuple[str, ...] = ()
    restart_policy: RestartPolicy = RestartPolicy.ALWAYS
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    bindings: Bindings = field(default_factory=dict)
    manifest: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def full_name(self) -> str:
        """``namespace/name``, as people write it."""
        return f"{self.namespace}/{self.name}"

    @cached_property
    def has_pod_level_resources(self) -> bool:
        """KEP-2837 IsPodLevelResourcesSet: at least one supported resource in `.spec.resources`."""
        stated = (*self.resources.requests, *self.resources.limits)
        return any(name == CPU or is_memory_type(name) for name in stated)

    @property
    def cpu_isolation(self) -> CpuIsolation:
        """What its annotation `CPU_ISOLATION` says, which was validated."""
        return CpuIsolation(self.annotations.get(CPU_ISOLATION, CpuIsolation.ROOT.value))

    def container(self, name: str) -> Container | None:
        """The container called ``name``, if there is one."""
        return next((c for c in self.containers if c.name == name), None)
