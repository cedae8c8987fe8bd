"""The machine as nested parts: packages, NUMA nodes, L3 groups, cores, CPUs.

Packages hold NUMA nodes; where a node spans packages it is the other way round. A part that is cut by
a larger one (an L3 cache that two NUMA nodes share) appears in each with the CPUs it has there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from agent.domain.idset import NO_CPUS, CpuSet
from agent.domain.pod import MEMORY
from agent.domain.topology import NO_NODE, Cpu, NodeId, Topology
from agent.drawing.picture import Memory, Picture, runs


class Level(Enum):
    """What a part is."""

    MACHINE = "machine"
    PACKAGE = "package"
    NODE = "NUMA node"
    CACHE = "L3"
    CORE = "core"
    CPU = "CPU"
    ABSENT = "offline CPUs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A box: its title, what is in it. A CPU and a run of offline CPUs have no children."""

    level: Level
    title: str
    cpus: CpuSet = NO_CPUS
    children: tuple[Part, ...] = ()
    memory: tuple[Memory, ...] = ()


_KEYS: Final[Mapping[Level, Callable[[Cpu], int]]] = {
    Level.PACKAGE: lambda cpu: cpu.socket,
    Level.NODE: lambda cpu: cpu.node,
    Level.CACHE: lambda cpu: cpu.uncore,
    Level.CORE: lambda cpu: cpu.core,
}
_TITLES: Final = {Level.PACKAGE: "Package {}", Level.NODE: "NUMA node {}", Level.CORE: "Core {}"}


def parts(picture: Picture) -> Part:
    """The whole machine as one part."""
    topology = picture.topology
    outer = (Level.NODE, Level.PACKAGE) if _spans(topology) else (Level.PACKAGE, Level.NODE)
    with_cpus = _divided(topology.cpus, (*outer, Level.CACHE, Level.CORE), picture)
    without = tuple(
        Part(level=Level.NODE, title=f"NUMA node {node.id}, no CPUs", memory=_memory(picture, node.id))
        for node in topology.nodes
        if node.id not in topology.node_cpus
    )
    cells = tuple(Part(level=Level.CPU, title=run, cpus=CpuSet.parse(run)) for run in runs(topology.offline))
    absent = (Part(level=Level.ABSENT, title="Offline", cpus=topology.offline, children=cells),)
    return Part(
        level=Level.MACHINE,
        title="Machine",
        cpus=topology.online,
        children=(*with_cpus, *without, *(absent if cells else ())),
    )


def _spans(topology: Topology) -> bool:
    """Whether a NUMA node has CPUs of several packages."""
    pairs = {(cpu.node, cpu.socket) for cpu in topology.cpus if cpu.node != NO_NODE}
    return len(pairs) > len({node for node, _ in pairs})


def _divided(cpus: Sequence[Cpu], levels: Sequence[Level], picture: Picture) -> tuple[Part, ...]:
    if not levels:
        return tuple(Part(level=Level.CPU, title=str(cpu.id), cpus=CpuSet.of([cpu.id])) for cpu in cpus)
    level, *deeper = levels
    if level is Level.CACHE and cpus[0].id in picture.topology.cacheless:
        return _divided(cpus, deeper, picture)
    groups: dict[int, list[Cpu]] = {}
    for cpu in cpus:
        groups.setdefault(_KEYS[level](cpu), []).append(cpu)
    if level is Level.CORE:
        return tuple(
            part for core in groups.values() for part in _core(_divided(core, deeper, picture), core[0])
        )
    return tuple(_part(level, group, deeper, picture) for _, group in sorted(groups.items()))


def _part(level: Level, cpus: Sequence[Cpu], deeper: Sequence[Level], picture: Picture) -> Part:
    held = CpuSet.of(cpu.id for cpu in cpus)
    part = Part(level=level, title=f"L3 {held}", cpus=held, children=_divided(cpus, deeper, picture))
    if level is Level.CACHE:
        return part
    number = _KEYS[level](cpus[0])
    title = _TITLES[level].format(number) if number != NO_NODE else "no NUMA node"
    memory = _memory(picture, NodeId(number)) if level is Level.NODE else ()
    return replace(part, title=title, memory=memory)


def _core(threads: tuple[Part, ...], first: Cpu) -> tuple[Part, ...]:
    """A core of one thread is its CPU."""
    if len(threads) == 1:
        return threads
    cpus = CpuSet.of(cpu for thread in threads for cpu in thread.cpus)
    title = _TITLES[Level.CORE].format(first.core) + (f" ({first.core_type})" if first.core_type else "")
    return (Part(level=Level.CORE, title=title, cpus=cpus, children=threads),)


def _memory(picture: Picture, node: NodeId) -> tuple[Memory, ...]:
    """Ordinary memory first, then huge pages."""
    return tuple(
        sorted(picture.memory.get(node, ()), key=lambda memory: (memory.type != MEMORY, memory.type))
    )
