"""How values read in a sentence: NUMA nodes, amounts, hints folded to what a person can take in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from itertools import groupby
from math import comb
from operator import or_
from typing import Final

from agent.domain.hints import ANY_NODE_BITS, Hints
from agent.domain.idset import CpuSet, NodeMask
from agent.domain.pod import CPU, MEMORY, ResourceName
from agent.domain.quantity import Quantity
from agent.domain.state import Blocks
from agent.explain.english import listed, plural

LISTED_SETS: Final = 4
"""More sets of NUMA nodes than this are counted, not listed."""


def nodes_text(nodes: NodeMask) -> str:
    """``NUMA node 0``, ``NUMA nodes 0-1``."""
    return f"NUMA node{'' if len(nodes) == 1 else 's'} {nodes}"


def cpus_text(cpus: CpuSet) -> str:
    """``CPU 3``, ``CPUs 0-1``, ``no CPUs``."""
    return f"CPU{'' if len(cpus) == 1 else 's'} {cpus}" if cpus else "no CPUs"


def amount(resource: ResourceName, size: int) -> str:
    """``2 CPUs``, ``memory 1Gi``."""
    return plural(size, "CPU") if resource == CPU else f"{resource} {bytes_text(size)}"


def amounts(sizes: Mapping[ResourceName, int]) -> str:
    """``2 CPUs and memory 1Gi``; cpu first, then by name."""
    ordered = sorted(sizes, key=lambda resource: (resource != CPU, resource))
    return listed([amount(resource, sizes[resource]) for resource in ordered])


def bytes_text(size: int) -> str:
    """Exact where that is short (``1536Mi``), else rounded down to MiB with a tilde (``~15.6Gi``)."""
    exact = str(Quantity.bytes(size))
    if len(exact) <= 6:
        return exact
    if size < 1 << 30:
        return f"~{size >> 20}Mi"
    return f"~{(size * 10 >> 30) / 10:.1f}Gi"


def blocks_text(blocks: Blocks) -> str:
    """``memory 2Gi and hugepages-2Mi 64Mi on NUMA node 0``; memory first."""
    ordered = sorted(blocks, key=lambda block: (block.nodes.bits, block.type != MEMORY, block.type))
    return ", ".join(
        f"{listed([amount(block.type, block.size) for block in group])} on {nodes_text(NodeMask(nodes))}"
        for nodes, group in groupby(ordered, key=lambda block: block.nodes.bits)
    )


def hints_text(hints: Hints) -> str:
    """``prefers any one of NUMA nodes 0-7; could also use 247 wider sets of NUMA nodes``."""
    parts = [f"prefers {masks_text(hints.preferred)}" if hints.preferred else "prefers nothing that is free"]
    if hints.other:
        parts.append(f"could also use {masks_text(hints.other)}")
    if not hints.complete:
        parts.append("wider sets were not looked at")
    return "; ".join(parts)


def masks_text(masks: Iterable[int]) -> str:
    """Sets of NUMA nodes, folded: all sets of a size as ``any 2 of NUMA nodes 0-3``, many as a count."""
    ordered = sorted(masks, key=lambda mask: (mask.bit_count(), mask))
    if ANY_NODE_BITS in ordered:
        return "any NUMA node"
    sizes = [list(group) for _, group in groupby(ordered, key=int.bit_count)]
    if len(sizes) > 2:
        return f"{len(ordered)} sets of {ordered[0].bit_count()} to {ordered[-1].bit_count()} NUMA nodes"
    return " or ".join(map(_one_size, sizes))


def _one_size(masks: Sequence[int]) -> str:
    """Sets that all have the same number of nodes, ascending."""
    size, nodes = masks[0].bit_count(), NodeMask(reduce(or_, masks))
    if len(masks) == 1:
        return nodes_text(nodes) if size == 1 else f"{nodes_text(nodes)} together"
    if len(masks) == comb(len(nodes), size):
        return f"any {'one' if size == 1 else size} of {nodes_text(nodes)}"
    if len(masks) <= LISTED_SETS:
        return f"NUMA nodes {listed([str(NodeMask(mask)) for mask in masks], 'or')}"
    return f"{len(masks)} sets of {size} of {nodes_text(nodes)}"
