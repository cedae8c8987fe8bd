"""What a configuration comes to on a machine: what was left open is worked out, and why so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from agent.config.model import Config
from agent.config.table import dump
from agent.domain.idset import NO_CPUS, CpuSet
from agent.domain.pod import CPU
from agent.domain.settings import CpuPolicy, MemoryPolicy
from agent.domain.topology import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Effective:
    """``document`` is a complete configuration file, ``why`` says by key what was computed."""

    document: Mapping[str, Any]
    why: Mapping[str, str]


def effective(config: Config, topology: Topology, reserved: CpuSet) -> Effective:
    """``reserved`` are the CPUs that the CPU manager reserves."""
    why: dict[str, str] = {}
    if config.pod_resources_socket is None:
        why["podResourcesSocket"] = "in stateDir"
    settings = config.settings(topology)
    stated = config.reserved_cpus or NO_CPUS
    if config.cpu_policy is CpuPolicy.STATIC and stated != reserved:
        why["reservedSystemCPUs"] = _why_cpus(config, stated - reserved)
    if config.memory_policy is MemoryPolicy.STATIC and not config.reserved_memory:
        arithmetic = config.reservation_arithmetic(topology)
        why["reservedMemory"] = f"{arithmetic}, on the lowest NUMA nodes, at most half of each"
    shown = replace(
        config,
        pod_resources_socket=config.pod_resources_path,
        reserved_cpus=reserved if config.cpu_policy is CpuPolicy.STATIC else config.reserved_cpus,
        reserved_memory=settings.reserved_memory
        if config.memory_policy is MemoryPolicy.STATIC
        else config.reserved_memory,
    )
    return Effective(document=dump(shown), why=why)


def _why_cpus(config: Config, left_out: CpuSet) -> str:
    if config.reserved_cpus is not None:
        return f"{left_out} is offline"
    stated = [
        f"{key} cpu {amounts[CPU]}"
        for key, amounts in (
            ("kubeReserved", config.kube_reserved),
            ("systemReserved", config.system_reserved),
        )
        if CPU in amounts
    ]
    if any(amounts[CPU].nano for amounts in (config.kube_reserved, config.system_reserved) if CPU in amounts):
        return f"{' + '.join(stated)}, rounded up, chosen by topology"
    return "no cpu is reserved, so one whole core is: no pod shares a core with the system"
