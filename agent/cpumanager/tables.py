"""The machine as the CPU assignment sees it: masks of CPU bits, grouped and ordered once.

The bigger of socket and NUMA node is the outer unit, the other the inner one (equal: the node is
the outer). Whatever the kubelet computes from lists of CPUs is here one AND and one bit count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from agent.domain.idset import CpuSet
from agent.domain.settings import Fidelity
from agent.domain.topology import Topology

K = TypeVar("K", bound=int)
NEVER: Final = -1
"""No set has this many CPUs."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Unit:
    """A socket, NUMA node or uncore cache.

    It is taken whole when exactly ``whole`` of its ``cpus`` are free. ``inner`` are the smaller
    units that overlap it, ``cores`` its cores (of inner units and caches), ``whole_cores`` those of them
    that can be taken whole; all ascend by id.
    """

    cpus: int
    size: int
    whole: int
    inner: tuple[Unit, ...] = ()
    uncores: tuple[Unit, ...] = ()
    cores: tuple[int, ...] = ()
    whole_cores: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTables:
    """What `take` needs to know of a `Topology`; build it once per topology."""

    online: int
    numa_first: bool
    outer: tuple[Unit, ...]
    smallest_outer: int
    smallest_inner: int
    smallest_core: int
    threads_per_core: int
    node_count: int
    cpus_per_uncore: int

    def outer_order(self, free: int) -> list[Unit]:
        """The outer units with free CPUs, fewest first, then by id."""
        return by_free(self.outer, free)

    def inner_order(self, free: int) -> list[Unit]:
        """The inner units with free CPUs: by outer unit, then fewest free first, then by id."""
        return [
            inner for outer in by_free(self.outer, free) for inner in by_free(outer.inner, free, outer.cpus)
        ]

    def node_order(self, free: int) -> list[Unit]:
        """The NUMA nodes with free CPUs, in the order of their level."""
        return self.outer_order(free) if self.numa_first else self.inner_order(free)

    def socket_order(self, free: int) -> list[Unit]:
        """The sockets with free CPUs, in the order of their level."""
        return self.inner_order(free) if self.numa_first else self.outer_order(free)


def by_free(units: Iterable[Unit], free: int, within: int = NEVER) -> list[Unit]:
    """``units`` (ascending by id) with free CPUs ``within`` a mask, fewest free first, then by id."""
    able = [unit for unit in units if free & unit.cpus & within]
    if len(able) > 1:
        able.sort(key=lambda unit: (free & unit.cpus).bit_count())
    return able


def cpu_tables(topology: Topology, fidelity: Fidelity = Fidelity.SAFE) -> CpuTables:
    """Build the tables; a few milliseconds on a machine with 512 CPUs."""
    total = len(topology.cpus)
    nodes, sockets = _masks(topology.node_cpus), _masks(topology.sockets)
    per_socket = total // max(1, len(sockets))
    per_core = topology.threads_per_core
    cores = _masks(topology.cores)
    uncores = tuple(_uncore_unit(cpus, cores) for cpus in _masks(topology.uncores))
    whole_cores = [core for core in cores if _whole(core, per_core, fidelity) == per_core]
    numa_first = len(sockets) >= len(nodes)

    def node_unit(cpus: int, inner: tuple[Unit, ...]) -> Unit:
        """NUMA nodes count with their own size, only sockets and cores with the average."""
        return Unit(
            cpus=cpus,
            size=cpus.bit_count(),
            whole=cpus.bit_count(),
            inner=inner,
            uncores=_overlapping(uncores, cpus),
            cores=() if numa_first else _meeting(cores, cpus),
            whole_cores=() if numa_first else _meeting(whole_cores, cpus),
        )

    def socket_unit(cpus: int, inner: tuple[Unit, ...]) -> Unit:
        return Unit(
            cpus=cpus,
            size=cpus.bit_count(),
            whole=_whole(cpus, per_socket, fidelity),
            inner=inner,
            cores=_meeting(cores, cpus) if numa_first else (),
            whole_cores=_meeting(whole_cores, cpus) if numa_first else (),
        )

    if numa_first:
        inner = tuple(socket_unit(cpus, ()) for cpus in sockets)
        outer = tuple(node_unit(cpus, _overlapping(inner, cpus)) for cpus in nodes)
    else:
        inner = tuple(node_unit(cpus, ()) for cpus in nodes)
        outer = tuple(socket_unit(cpus, _overlapping(inner, cpus)) for cpus in sockets)
    return CpuTables(
        online=topology.online.bits,
        numa_first=numa_first,
        outer=outer,
        smallest_outer=min((unit.size for unit in outer), default=0),
        smallest_inner=min((unit.size for unit in inner), default=0),
        smallest_core=min(map(int.bit_count, cores), default=0),
        threads_per_core=per_core,
        node_count=len(nodes),
        cpus_per_uncore=total // max(1, len(uncores)),
    )


def _masks(groups: Mapping[K, CpuSet]) -> list[int]:
    return [groups[key].bits for key in sorted(groups)]


def _uncore_unit(cpus: int, cores: Sequence[int]) -> Unit:
    size = cpus.bit_count()
    return Unit(cpus=cpus, size=size, whole=size, cores=_meeting(cores, cpus))


def _whole(cpus: int, average: int, fidelity: Fidelity) -> int:
    """How many free CPUs make a socket or core count as wholly free."""
    if fidelity is Fidelity.SAFE and cpus.bit_count() != average:
        return NEVER
    return average


def _overlapping(units: Sequence[Unit], cpus: int) -> tuple[Unit, ...]:
    return tuple(unit for unit in units if unit.cpus & cpus)


def _meeting(masks: Sequence[int], cpus: int) -> tuple[int, ...]:
    return tuple(mask for mask in masks if mask & cpus)
