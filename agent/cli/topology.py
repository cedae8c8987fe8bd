"""`numalet topology`: the machine as text for people and as JSON for programs."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from agent.domain.idset import NO_CPUS, CpuSet
from agent.domain.topology import NO_NODE, CpuId, NumaNode, SocketId, Topology, hugepages_resource

_GIB = 1 << 30


def topology_json(topology: Topology) -> dict[str, Any]:
    """The machine as JSON values: CPU sets in the kernel's list format, memory in bytes."""
    return {
        "onlineCPUs": str(topology.online),
        "cores": _texts(topology.cores.values()),
        "sockets": _texts(topology.sockets.values()),
        "uncoreCaches": _texts(_caches(topology)),
        "numaNodes": [
            {
                "id": node.id,
                "cpus": str(node.cpus),
                "memory": node.memory,
                "hugepages": _hugepages(node),
                "distances": list(node.distances),
            }
            for node in topology.nodes
        ],
        "warnings": list(topology.warnings),
    }


def topology_text(topology: Topology) -> str:
    """The machine as a person reads it: a summary, a tree of sockets and NUMA nodes, distances.

    Sockets hold NUMA nodes; where a node spans sockets it is the other way round.
    """
    parts = (_summary(topology), _tree(topology), _distances(topology), _warnings(topology))
    blocks = ("\n".join(lines) for lines in parts)
    return "\n\n".join(filter(None, blocks)) + "\n"


def _texts(sets: Iterable[CpuSet]) -> list[str]:
    return [str(cpus) for cpus in sets]


def _caches(topology: Topology) -> list[CpuSet]:
    """The real uncore caches: a socket that stands for one is left out."""
    return [cpus for cpus in topology.uncores.values() if cpus.isdisjoint(topology.cacheless)]


def _hugepages(node: NumaNode) -> dict[str, int]:
    return {hugepages_resource(kib): pages for kib, pages in sorted(node.hugepages.items())}


def _summary(topology: Topology) -> Iterator[str]:
    counts = (
        _count(len(topology.cpus), "CPU"),
        _count(len(topology.cores), "core"),
        _count(len(topology.sockets), "socket"),
        _count(len(_caches(topology)), "uncore cache"),
        _count(len(topology.nodes), "NUMA node"),
        f"{_gib(sum(node.memory for node in topology.nodes))}",
    )
    yield ", ".join(counts)
    yield f"online    {topology.online}"
    for name, cpus in (("offline", topology.offline), ("isolated", topology.isolated)):
        if cpus:
            yield f"{name:9} {cpus}"


def _tree(topology: Topology) -> Iterator[str]:
    spans = any(len(_sockets(topology, node.cpus)) > 1 for node in topology.nodes)
    yield from _by_node(topology) if spans else _by_socket(topology)
    stray = topology.node_cpus.get(NO_NODE, NO_CPUS)
    if stray:
        yield f"no NUMA node  CPUs {stray}"
        yield from _cpus(topology, stray)
    yield from (_node(node) for node in topology.nodes if not node.cpus)


def _by_socket(topology: Topology) -> Iterator[str]:
    for socket, cpus in topology.sockets.items():
        yield f"socket {socket}  CPUs {cpus}"
        for node in topology.nodes:
            if node.cpus & cpus:
                yield f"  {_node(node)}"
                yield from _cpus(topology, node.cpus)


def _by_node(topology: Topology) -> Iterator[str]:
    for node in topology.nodes:
        if node.cpus:
            yield _node(node)
        for socket in _sockets(topology, node.cpus):
            here = topology.sockets[socket] & node.cpus
            yield f"  socket {socket}  CPUs {here}"
            yield from _cpus(topology, here)


def _sockets(topology: Topology, cpus: CpuSet) -> list[SocketId]:
    return sorted({topology.by_id[CpuId(cpu)].socket for cpu in cpus})


def _node(node: NumaNode) -> str:
    cpus = f"CPUs {node.cpus}" if node.cpus else "no CPUs"
    pages = (f"{count} {name}" for name, count in _hugepages(node).items() if count)
    return "  ".join((f"NUMA node {node.id}", cpus, _gib(node.memory), *pages))


def _cpus(topology: Topology, cpus: CpuSet) -> Iterator[str]:
    """The cores among ``cpus``, by type and number of threads, and their uncore caches."""
    kinds: dict[tuple[str, int], list[str]] = {}
    for core, threads in topology.cores.items():
        if threads & cpus:
            kind = (topology.by_id[CpuId(core)].core_type, len(threads))
            kinds.setdefault(kind, []).append(str(threads))
    for (core_type, threads_each), sets in kinds.items():
        name = f" ({core_type})" if core_type else ""
        yield _wrapped(f"{_count(len(sets), 'core')}{name} of {_count(threads_each, 'thread')}:", sets)
    caches = [str(shared) for shared in _caches(topology) if shared & cpus]
    if caches:
        yield _wrapped(f"{_count(len(caches), 'uncore cache')}:", caches)


def _wrapped(title: str, sets: Sequence[str]) -> str:
    return textwrap.fill(
        f"{title} {' '.join(sets)}",
        width=100,
        initial_indent=" " * 4,
        subsequent_indent=" " * 6,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _distances(topology: Topology) -> Iterator[str]:
    rows = [(str(node.id), *map(str, node.distances)) for node in topology.nodes if node.distances]
    if len(topology.nodes) < 2 or not rows:
        return
    head = ("distance", *(str(node.id) for node in topology.nodes))
    width = max(len(cell) for row in (head[1:], *rows) for cell in row)
    for first, *cells in (head, *rows):
        yield f"{first:>8}" + "".join(f" {cell:>{width}}" for cell in cells)


def _warnings(topology: Topology) -> Iterator[str]:
    return (f"warning: {warning}" for warning in topology.warnings)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _gib(size: int) -> str:
    return f"{size / _GIB:.1f} GiB" if size else "no memory"
