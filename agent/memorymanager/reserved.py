"""Start-up checks of `reservedMemory` (KEP-1769): it exists, adds up, and is not zero."""

from __future__ import annotations

from agent.domain.pod import MEMORY, ResourceName, is_memory_type
from agent.domain.quantity import ZERO, Quantity
from agent.domain.settings import Settings
from agent.domain.topology import NodeId, Topology
from agent.errors import ConfigError

SystemReserved = dict[NodeId, dict[ResourceName, int]]
"""Bytes kept from pods, by NUMA node and type."""


def system_reserved(settings: Settings, topology: Topology) -> SystemReserved:
    """Check `reservedMemory` against machine and Node Allocatable; raises ConfigError."""
    _check_nodes_exist(settings, topology)
    totals = _totals(settings)
    _check_node_allocatable(settings, totals)
    if totals.get(MEMORY, ZERO).value <= 0:
        raise ConfigError(
            "[memorymanager] you should specify the system reserved memory",
            hint="memoryManagerPolicy Static needs reservedMemory with type memory on at least one NUMA node",
        )
    return {
        node: {kind: quantity.value for kind, quantity in limits.items()}
        for node, limits in settings.reserved_memory.items()
    }


def _check_nodes_exist(settings: Settings, topology: Topology) -> None:
    for node in sorted(settings.reserved_memory):
        if node not in topology.all_nodes:
            raise ConfigError(
                "the reserved memory configuration references a NUMA node"
                f" {node} that does not exist on this machine",
                hint=f"this machine has NUMA nodes {topology.all_nodes}",
            )


def _totals(settings: Settings) -> dict[ResourceName, Quantity]:
    totals: dict[ResourceName, Quantity] = {}
    for limits in settings.reserved_memory.values():
        for kind, quantity in limits.items():
            totals[kind] = _added(totals.get(kind, ZERO), quantity)
    return totals


def _added(total: Quantity, more: Quantity) -> Quantity:
    """Add as apimachinery does: a zero takes over the other's format."""
    return Quantity(total.nano + more.nano, total.format if total.nano else more.format)


def _check_node_allocatable(settings: Settings, totals: dict[ResourceName, Quantity]) -> None:
    """Per type the sum over the nodes must be what Node Allocatable keeps back.

    A type Node Allocatable does not name defaults to that sum.
    """
    for kind, wanted in sorted(settings.node_reserved.items()):
        total = totals.get(kind, ZERO)
        if is_memory_type(kind) and total.nano != wanted.nano:
            raise ConfigError(
                f'the total amount "{total}" of type "{kind}" is not equal to'
                f' the value "{wanted}" determined by Node Allocatable feature',
                hint=f"reservedMemory: {_arithmetic(settings, kind)};"
                f" kubeReserved + systemReserved + evictionHard = {wanted}",
            )


def _arithmetic(settings: Settings, kind: ResourceName) -> str:
    parts = [
        f"{limits[kind]} on node {node}"
        for node, limits in sorted(settings.reserved_memory.items())
        if kind in limits
    ]
    return " + ".join(parts) or "nothing"
