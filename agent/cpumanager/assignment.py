"""takeByTopology: choose CPUs out of those available, by the rules the policy options select."""

from __future__ import annotations

from agent.cpumanager.distribute import Distributed, take_distributed
from agent.cpumanager.packed import Packed, Taken, take_packed
from agent.cpumanager.tables import CpuTables
from agent.domain.idset import CpuSet

Strategy = Packed | Distributed


def take(tables: CpuTables, available: CpuSet, n: int, strategy: Strategy) -> Taken:
    """Choose ``n`` of ``available``; raise AdmissionError, with the kubelet's text, if impossible."""
    if isinstance(strategy, Distributed):
        return take_distributed(tables, available, n, strategy)
    return take_packed(tables, available, n, strategy)
