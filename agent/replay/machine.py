"""Machines as the conformance vectors write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.domain.idset import CpuSet
from agent.domain.topology import CoreId, Cpu, CpuId, NodeId, NumaNode, SocketId, Topology, UncoreId

NO_CACHE = -1


def topology_of(machine: Mapping[str, Any]) -> Topology:
    """Build a `Topology` from ``{"cpus": [[cpu, core, socket, numa, uncore]…], "nodes": […]}``.

    An uncore id of -1 means no cache information: the socket id then stands for it. Distances may
    be indexed by node id with zeros for ids that do not exist; they become one column per node.
    """
    cpus = tuple(
        Cpu(
            id=CpuId(cpu),
            core=CoreId(core),
            socket=SocketId(socket),
            node=NodeId(node),
            uncore=UncoreId(socket if uncore == NO_CACHE else uncore),
        )
        for cpu, core, socket, node, uncore in sorted(machine["cpus"])
    )
    ids = sorted(node["id"] for node in machine["nodes"])
    nodes = tuple(
        NumaNode(
            id=NodeId(node["id"]),
            cpus=CpuSet.of(cpu.id for cpu in cpus if cpu.node == node["id"]),
            memory=node.get("memory", 0),
            hugepages={int(kib): pages for kib, pages in node.get("hugepages", {}).items()},
            distances=_columns(node.get("distances", ()), ids),
        )
        for node in sorted(machine["nodes"], key=lambda node: node["id"])
    )
    return Topology(cpus=cpus, nodes=nodes)


def _columns(row: list[int] | tuple[int, ...], ids: list[int]) -> tuple[int, ...]:
    if len(row) in {0, len(ids)}:
        return tuple(row)
    return tuple(row[node] if node < len(row) else 0 for node in ids)
