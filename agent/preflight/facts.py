"""What the checks look at, gathered once. What the kernel does not tell is empty."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.cgroup.backend import Problem
from agent.cgroup.partition import Claim
from agent.config.model import HostIsolation
from agent.domain.idset import NO_CPUS, CpuSet, NodeMask
from agent.domain.topology import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationFacts:
    """``problems`` is empty if it can be used; ``reserved`` are the CPUs that no pod gets alone."""

    source: str = "defaults"
    problems: tuple[str, ...] = ()
    reserved: CpuSet = NO_CPUS
    whole_cores: bool = False
    isolation: HostIsolation = HostIsolation.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupFacts:
    """``allowed`` has each cgroup above the root with the CPUs and NUMA nodes it lets through.

    ``files`` are those of a cgroup with every controller on; empty where there is none to look at.
    """

    root: str
    problems: tuple[Problem, ...] = ()
    controllers: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()
    allowed: Mapping[str, tuple[CpuSet, NodeMask]] = field(default_factory=dict)
    others: tuple[Claim, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFacts:
    """Settings of the kernel, as their files have them; CPU lists parsed, ``governors`` without repeats."""

    release: str = ""
    numa_balancing: str = ""
    isolated: CpuSet = NO_CPUS
    nohz_full: CpuSet = NO_CPUS
    rcu_nocbs: CpuSet = NO_CPUS
    governors: tuple[str, ...] = ()
    clock_source: str = ""
    swaps: tuple[str, ...] = ()
    huge_pages_free: Mapping[tuple[int, int], int] = field(default_factory=dict)
    """Free huge pages by NUMA node and size in KiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateDirFacts:
    """``existing`` is the state directory, or what exists of the path to it."""

    path: str
    existing: str
    file_system: str = ""
    writable: bool = True
    free: int = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """``processes`` has the pids of programs that may get in the way, by name; ``own_daemon`` is ours."""

    configuration: ConfigurationFacts
    topology: Topology
    cgroups: CgroupFacts
    kernel: KernelFacts
    state_dir: StateDirFacts
    user: int = 0
    missing_capabilities: tuple[str, ...] = ()
    processes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    own_daemon: int | None = None
    has_systemd: bool = True
    bus_problem: str = ""
