"""What is drawn: the machine, who holds each CPU, and how full each NUMA node's memory is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from agent.domain.idset import CpuSet
from agent.domain.pod import MEMORY, ResourceName
from agent.domain.topology import CpuId, NodeId, NumaNode, Topology, hugepages_resource


class Kind(Enum):
    """Whose a CPU is; the value is its name in the legend, the order that of the legend."""

    EXCLUSIVE = "exclusive slice"
    POD_SHARED = "pod shared pool"
    NODE_SHARED = "node shared pool"
    RESERVED = "reserved"
    ISOLATED = "isolated"
    ONLINE = "online"
    OFFLINE = "offline"


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a CPU: a pod (``namespace/name``), and one of its containers where it is that one's alone."""

    kind: Kind
    pod: str = ""
    container: str = ""

    def __str__(self) -> str:
        who = f"{self.pod}/{self.container}" if self.container else self.pod
        return f"{self.kind.value} of {who}" if who else self.kind.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes of one memory type on a NUMA node: kept for the system, and held by pods."""

    type: ResourceName
    total: int
    reserved: int = 0
    held: int = 0

    @property
    def words(self) -> str:
        """``memory 2.0 of 15.7 GiB``: what is held, if anything is, of how much."""
        if not self.held:
            return f"{self.type} {size(self.total)}"
        total, unit = size(self.total).split()
        held, held_unit = size(self.held).split()
        return f"{self.type} {held}{'' if unit == held_unit else f' {held_unit}'} of {total} {unit}"


@dataclass(frozen=True, kw_only=True)
class Picture:
    """Everything a drawing shows. Not slotted: what is derived is worked out once."""

    topology: Topology
    holders: Mapping[CpuId, Holder]
    memory: Mapping[NodeId, tuple[Memory, ...]] = field(default_factory=dict)

    @cached_property
    def letters(self) -> Mapping[str, str]:
        """A short mark for each pod that holds CPUs, in the order of their names: A ... Z, AA ..."""
        pods = sorted({holder.pod for holder in self.holders.values() if holder.pod})
        return {pod: _letters(number) for number, pod in enumerate(pods)}

    @cached_property
    def kinds(self) -> Mapping[Kind, CpuSet]:
        """The CPUs of each kind that there is."""
        found = {kind: self._of(kind) for kind in Kind}
        found[Kind.OFFLINE] |= self.topology.offline
        return {kind: cpus for kind, cpus in found.items() if cpus}

    def _of(self, kind: Kind) -> CpuSet:
        return CpuSet.of(cpu for cpu, holder in self.holders.items() if holder.kind is kind)

    def pod_cpus(self, pod: str) -> CpuSet:
        """The CPUs a pod holds."""
        return CpuSet.of(cpu for cpu, holder in self.holders.items() if holder.pod == pod)

    def mark(self, cpu: CpuId) -> str:
        """The second channel beside the colour: the pod's letter, a small one for its shared pool."""
        holder = self.holders[cpu]
        letters = self.letters.get(holder.pod, "")
        return letters.lower() if holder.kind is Kind.POD_SHARED else letters


def bare_picture(topology: Topology) -> Picture:
    """The machine alone, as long as nobody hands out its CPUs."""
    return Picture(
        topology=topology,
        holders={
            cpu.id: Holder(Kind.ISOLATED if cpu.id in topology.isolated else Kind.ONLINE)
            for cpu in topology.cpus
        },
        memory={node.id: bare_memory(node) for node in topology.nodes},
    )


def bare_memory(node: NumaNode) -> tuple[Memory, ...]:
    """The memory types a NUMA node has, nothing held."""
    types = [(MEMORY, node.memory)]
    types += [(hugepages_resource(kib), pages * kib << 10) for kib, pages in sorted(node.hugepages.items())]
    return tuple(Memory(type=kind, total=total) for kind, total in types if total)


def summary(picture: Picture) -> str:
    """``64 CPUs, 32 cores, 4 packages, 8 NUMA nodes, 123.8 GiB``."""
    topology = picture.topology
    memory = sum(kind.total for kinds in picture.memory.values() for kind in kinds if kind.type == MEMORY)
    counts = (
        _count(len(topology.cpus), "CPU"),
        _count(len(topology.cores), "core"),
        _count(len(topology.sockets), "package"),
        _count(len(topology.nodes), "NUMA node"),
    )
    return ", ".join((*counts, size(memory)) if memory else counts)


def size(amount: int) -> str:
    """Bytes for people: ``2.0 GiB``, ``512 MiB``."""
    if amount >= 1 << 40:
        return f"{amount / (1 << 40):.1f} TiB"
    return f"{amount / (1 << 30):.1f} GiB" if amount >= 1 << 30 else f"{amount / (1 << 20):.0f} MiB"


def fitted(text: str, width: float, character: float) -> str:
    """``text``, cut to what fits into ``width`` where a character takes ``character``."""
    room = max(0, int(width / character))
    if len(text) <= room:
        return text
    return text[: room - 1].rstrip() + "…" if room > 1 else ""


def runs(cpus: CpuSet) -> Iterable[str]:
    """``4``, ``8-11``: each run of ids."""
    return str(cpus).split(",") if cpus else ()


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _letters(number: int) -> str:
    text = ""
    number += 1
    while number:
        number, digit = divmod(number - 1, 26)
        text = chr(ord("A") + digit) + text
    return text
