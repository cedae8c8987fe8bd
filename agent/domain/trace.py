"""The trace of one decision: what was considered, in order, as values.

`explain`, the log, the metrics and the error text all print from these steps; nothing else
explains. A step whose ``container`` is `WHOLE_POD` speaks of the pod's one allocation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from functools import cached_property
from typing import Final

from agent.domain.hints import Hint, Wishes
from agent.domain.idset import CpuSet
from agent.domain.pod import ResourceName
from agent.domain.qos import QosClass
from agent.domain.state import Blocks

WHOLE_POD: Final = ""
"""No container can have this name."""


class Pool(Enum):
    """Whose resources something comes from: label ``source`` of the metrics."""

    NODE = "node"
    POD = "pod"


class Rule(StrEnum):
    """Which rule of the CPU assignment picked some CPUs (reference: takeByTopology), in words."""

    WHOLE_SOCKET = "a whole free socket"
    WHOLE_NODE = "a whole free NUMA node"
    WHOLE_UNCORE = "a whole free uncore cache"
    PARTIAL_UNCORE = "within one uncore cache"
    WHOLE_CORE = "whole free cores"
    SINGLE_CPU = "single CPUs, fullest sockets and cores first"
    SPREAD_CPU = "single CPUs, spread over cores"
    DISTRIBUTED = "an even share of each NUMA node"


@dataclass(frozen=True, slots=True)
class Pick:
    """``cpus`` were picked by ``rule``."""

    rule: Rule
    cpus: CpuSet


@dataclass(frozen=True, slots=True)
class Classified:
    """The pod's QoS class."""

    qos: QosClass
    why: str


@dataclass(frozen=True, slots=True)
class Offered:
    """One manager's hints for a container or the pod."""

    container: str
    manager: str
    wishes: Wishes


@dataclass(frozen=True, eq=False)
class Merged:
    """The merged hint, and whether the topology policy takes it.

    Not slotted: ``merging`` is done when ``hint`` is first looked at. Nothing but an explanation
    looks at a hint that was refused, and on 16 NUMA nodes it takes a tenth of a second to find.
    """

    container: str
    admitted: bool
    merging: Callable[[], Hint] = field(repr=False)

    @cached_property
    def hint(self) -> Hint:
        """Where to allocate."""
        return self.merging()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Merged) and self._told() == other._told()

    def __hash__(self) -> int:
        return hash(self._told())

    def _told(self) -> tuple[str, Hint, bool]:
        return self.container, self.hint, self.admitted


@dataclass(frozen=True, slots=True)
class CpusGranted:
    """Exclusive CPUs were cut out of ``source``. For `WHOLE_POD` they become the pod's set."""

    container: str
    cpus: CpuSet
    picks: tuple[Pick, ...]
    source: Pool


@dataclass(frozen=True, slots=True)
class MemoryGranted:
    """Memory blocks were taken from ``source``."""

    container: str
    blocks: Blocks
    source: Pool


@dataclass(frozen=True, slots=True)
class Shared:
    """The container gets nothing of its own of ``resource``; it lives in ``pool``'s shared part."""

    container: str
    resource: ResourceName
    pool: Pool
    why: str


@dataclass(frozen=True, slots=True)
class Kept:
    """The container or pod already holds ``resource``; nothing changes."""

    container: str
    resource: ResourceName


@dataclass(frozen=True, slots=True)
class Refused:
    """The decision ends here. ``manager`` is the resource that refused, or "topology"."""

    container: str
    manager: str
    reason: str
    message: str
    remedy: str = ""


Step = Classified | Offered | Merged | CpusGranted | MemoryGranted | Shared | Kept | Refused
Trace = tuple[Step, ...]
