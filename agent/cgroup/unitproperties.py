"""The unit property behind each cgroup file: what systemd writes there, at once and after a daemon-reload.

systemd.resource-control(5); times in microseconds per second of wall clock, sizes in bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from agent.cgroup.tree import CPU_MAX, CPU_WEIGHT, CPUS, MEMORY_MAX, MEMS, PIDS_MAX
from agent.cgroup.units import Unlimited, parse_cpu_max, parse_limit, parse_weight
from agent.domain.idset import CpuSet, NodeMask
from agent.systemdbus import properties as unit
from agent.systemdbus.properties import INFINITY, Properties

_SECOND: Final = 1_000_000


def properties_of(file: str, text: str) -> Properties:
    """The properties that make systemd write ``text``; none for a file that it never writes.

    Raises ValueError for a text that is no content of the file.
    """
    translate = _PROPERTIES.get(file)
    return translate(text) if translate else {}


def _quota(text: str) -> Properties:
    bandwidth = parse_cpu_max(text)
    if isinstance(bandwidth.quota, Unlimited):
        return {unit.CPU_QUOTA: INFINITY, unit.CPU_QUOTA_PERIOD: bandwidth.period}
    return {
        unit.CPU_QUOTA: bandwidth.quota * _SECOND // bandwidth.period,
        unit.CPU_QUOTA_PERIOD: bandwidth.period,
    }


def _limit(text: str) -> int:
    limit = parse_limit(text)
    return INFINITY if isinstance(limit, Unlimited) else limit


_PROPERTIES: Final[Mapping[str, Callable[[str], Properties]]] = {
    CPUS: lambda text: {unit.ALLOWED_CPUS: CpuSet.parse(text)},
    MEMS: lambda text: {unit.ALLOWED_MEMORY_NODES: NodeMask.parse(text)},
    CPU_MAX: _quota,
    CPU_WEIGHT: lambda text: {unit.CPU_WEIGHT: parse_weight(text)},
    # systemd takes no 0 there; the kernel makes the same of 1, which is less than a page.
    MEMORY_MAX: lambda text: {unit.MEMORY_MAX: _limit(text) or 1},
    PIDS_MAX: lambda text: {unit.TASKS_MAX: _limit(text)},
}
