"""How values read in a sentence: NUMA nodes, amounts, hints folded to what a person can take in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, reduce
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


@lru_cache(maxsize=1024)
def bytes_text(size: int) -> str:
    """Exact where that is short (``1536Mi``), else rounded down to MiB with a tilde (``~15.6Gi``).

    Pure, and remembered: pods of a kind have the same sizes.
    """
    exact = str(Quantity.bytes(size))
    if len(exact) <= 6:
        return exact
    if size < 1 << 30:
        return f"~{size >> 20}Mi"
    return f"~{(size * 10 >> 30) / 10:.1f}Gi"


def blocks_text(blocks: Blocks) -> str:
    """``memory 2Gi and hugepages-2Mi 64Mi on NUMA node 0``; memory first."""
    held: dict[NodeMask, list[str]] = {}
    for block in sorted(blocks, key=lambda block: (block.nodes.bits, block.type != MEMORY, block.type)):
        held.setdefault(block.nodes, []).append(amount(block.type, block.size))
    return ", ".join([f"{listed(sizes)} on {nodes_text(nodes)}" for nodes, sizes in held.items()])


def hints_text(hints: Hints) -> str:
    """``prefers any one of NUMA nodes 0-7; could also use 247 wider sets of NUMA nodes``."""
    preferred = masks_text(hints.preferred) if hints.preferred else "nothing that is free"
    other = f"; could also use {masks_text(hints.other)}" if hints.other else ""
    more = "" if hints.complete else "; wider sets were not looked at"
    return f"prefers {preferred}{other}{more}"


def masks_text(masks: Iterable[int]) -> str:
    """Sets of NUMA nodes, folded: all sets of a size as ``any 2 of NUMA nodes 0-3``, many as a count."""
    by_size: dict[int, list[int]] = {}
    for mask in sorted(masks):
        if mask == ANY_NODE_BITS:
            return "any NUMA node"
        by_size.setdefault(mask.bit_count(), []).append(mask)
    if len(by_size) > 2:
        count = sum(map(len, by_size.values()))
        return f"{count} sets of {min(by_size)} to {max(by_size)} NUMA nodes"
    return " or ".join([_one_size(size, by_size[size]) for size in sorted(by_size)])


def _one_size(size: int, masks: Sequence[int]) -> str:
    """Sets of ``size`` nodes each, ascending."""
    if len(masks) == 1:
        only = nodes_text(NodeMask(masks[0]))
        return only if size == 1 else f"{only} together"
    nodes = NodeMask(reduce(or_, masks))
    if len(masks) == comb(len(nodes), size):
        return f"any {'one' if size == 1 else size} of {nodes_text(nodes)}"
    if len(masks) <= LISTED_SETS:
        return f"NUMA nodes {listed([str(NodeMask(mask)) for mask in masks], 'or')}"
    return f"{len(masks)} sets of {size} of {nodes_text(nodes)}"
