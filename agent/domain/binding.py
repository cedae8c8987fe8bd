"""A container that something else runs: a systemd unit, or a cgroup that a container runtime has made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class BindingKind(Enum):
    """What ``name`` of a `Binding` names; the word in the annotation ``numalet/<kind>.<container>``."""

    UNIT = "unit"
    """A service or scope of systemd's: ``postgresql.service``."""
    CGROUP = "cgroup"
    """A cgroup's path below the cgroup mount, without a leading slash: ``containers/db``."""


@dataclass(frozen=True, slots=True)
class Binding:
    """What a container is. Its CPUs, memory nodes and limits are set there."""

    kind: BindingKind
    name: str

    def __str__(self) -> str:
        """For people: ``unit postgresql.service``."""
        return f"{self.kind.value} {self.name}"


Bindings = Mapping[str, Binding]
"""By container name."""
