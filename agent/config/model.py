"""The typed configuration and what it means on a given machine.

Defaults work on any machine: static policies, `restricted` over whole pods, one core and the
eviction threshold reserved where the operator reserves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import Final

from agent.domain.idset import NO_CPUS, CpuSet
from agent.domain.pod import CPU, MEMORY, ResourceName, is_memory_type
from agent.domain.quantity import ZERO, Quantity
from agent.domain.settings import (
    CpuPolicy,
    Gates,
    MemoryPolicy,
    Settings,
    TopologyPolicy,
    TopologyScope,
)
from agent.domain.topology import NodeId, NumaNode, Topology, hugepages_resource

Amounts = Mapping[ResourceName, Quantity]
DEFAULT_EVICTION: Final = Quantity.bytes(100 << 20)
DEFAULT_SLICE: Final = "/sys/fs/cgroup/numalet.slice"
"""`cgroupRoot` where systemd makes the cgroups and nothing is said."""


class StateRecovery(Enum):
    """`stateRecovery`: what to do with stored state that cannot be used."""

    REBUILD = "rebuild"
    STRICT = "strict"


class HostIsolation(Enum):
    """`hostIsolation`: how host processes are kept off exclusive CPUs."""

    NONE = "none"
    SLICES = "slices"
    PARTITION = "partition"


class BindingPolicy(Enum):
    """`bindings`: whose pods may have containers that are units or cgroups of somebody else's."""

    NONE = "none"
    MANIFESTS = "manifests"
    ALL = "all"


class CgroupDriver(Enum):
    """`cgroupDriver`: who makes the pods' cgroups."""

    CGROUPFS = "cgroupfs"
    SYSTEMD = "systemd"


class LogLevel(Enum):
    """`logLevel`."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(Enum):
    """`logFormat`."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Percent:
    """A share of the machine's memory, as evictionHard may state it."""

    percent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The whole configuration; durations in seconds, paths absolute.

    ``pod_resources_socket`` None: in the state directory; empty: none.
    """

    cpu_policy: CpuPolicy = CpuPolicy.STATIC
    cpu_options: Mapping[str, str] = field(default_factory=dict)
    memory_policy: MemoryPolicy = MemoryPolicy.STATIC
    topology_policy: TopologyPolicy = TopologyPolicy.RESTRICTED
    topology_scope: TopologyScope = TopologyScope.POD
    topology_options: Mapping[str, str] = field(default_factory=dict)
    gates: Gates = field(default_factory=Gates)
    reserved_cpus: CpuSet | None = None
    kube_reserved: Amounts = field(default_factory=dict)
    system_reserved: Amounts = field(default_factory=dict)
    eviction_memory: Quantity | Percent = DEFAULT_EVICTION
    reserved_memory: Mapping[NodeId, Amounts] = field(default_factory=dict)
    reconcile_period: float = 10.0
    pod_pids_limit: int | None = None
    manifest_dir: str = "/etc/numalet/manifests"
    manifest_scan_period: float = 20.0
    cgroup_driver: CgroupDriver = CgroupDriver.CGROUPFS
    cgroup_root: str = "/sys/fs/cgroup/numalet"
    host_isolation: HostIsolation = HostIsolation.NONE
    irq_affinity: bool = False
    bindings: BindingPolicy = BindingPolicy.MANIFESTS
    state_dir: str = "/var/lib/numalet"
    control_socket: str = "/run/numalet/control.sock"
    control_group: str = ""
    pod_resources_socket: str | None = None
    pod_resources_mode: int = 0o660
    metrics_address: str = "127.0.0.1:9447"
    ui: bool = True
    state_recovery: StateRecovery = StateRecovery.REBUILD
    log_level: LogLevel = LogLevel.INFO
    log_format: LogFormat = LogFormat.TEXT

    @property
    def pod_resources_path(self) -> str:
        """Where the PodResources API is served; empty for nowhere."""
        if self.pod_resources_socket is None:
            return f"{self.state_dir}/pod-resources/kubelet.sock"
        return self.pod_resources_socket

    def settings(self, topology: Topology) -> Settings:
        """What the managers need, with everything the operator left open worked out.

        Reserved CPUs that are offline are left out: a machine that lost one is no reason to stay down.
        """
        reserved = {
            name: _sum(self.kube_reserved.get(name), self.system_reserved.get(name))
            for name in {CPU, MEMORY, *self.kube_reserved, *self.system_reserved}
        }
        reserved_cpus = (self.reserved_cpus or NO_CPUS) - topology.offline or None
        if reserved_cpus is not None:
            reserved[CPU] = Quantity.whole(len(reserved_cpus))
        elif reserved[CPU] == ZERO:
            reserved[CPU] = Quantity.whole(_one_core(topology))
        reserved[MEMORY] = _sum(reserved[MEMORY], self._eviction_bytes(topology))
        return Settings(
            cpu_policy=self.cpu_policy,
            cpu_options=self.cpu_options,
            reserved_cpus=reserved_cpus,
            node_reserved=reserved,
            memory_policy=self.memory_policy,
            reserved_memory=self.reserved_memory or _lowest_nodes(topology, reserved),
            topology_policy=self.topology_policy,
            topology_scope=self.topology_scope,
            topology_options=self.topology_options,
            gates=self.gates,
        )

    def _eviction_bytes(self, topology: Topology) -> Quantity:
        if isinstance(self.eviction_memory, Quantity):
            return self.eviction_memory
        capacity = sum(node.memory for node in topology.nodes)
        return Quantity.bytes(int(capacity * self.eviction_memory.percent / 100))

    def reservation_arithmetic(self, topology: Topology) -> str:
        """How the reserved memory of the node adds up, for the error that says it does not."""
        kube = self.kube_reserved.get(MEMORY, ZERO)
        system = self.system_reserved.get(MEMORY, ZERO)
        eviction = self._eviction_bytes(topology)
        total = _sum(_sum(kube, system), eviction)
        return f"kubeReserved {kube} + systemReserved {system} + evictionHard {eviction} = {total}"


def _one_core(topology: Topology) -> int:
    """The CPUs of the first core: no pod gets a thread beside the system's. Of a single core, one CPU."""
    first = CpuSet.of(islice(topology.online, 1))
    threads = len(topology.siblings(first))
    return threads if threads < len(topology.online) else 1


def _sum(one: Quantity | None, other: Quantity | None) -> Quantity:
    return (one or ZERO) + (other or ZERO)


def _lowest_nodes(topology: Topology, reserved: Amounts) -> Mapping[NodeId, Amounts]:
    """Put what is reserved on the lowest NUMA nodes that can hold it, half a node at the most."""
    left = {name: amount.value for name, amount in reserved.items() if is_memory_type(name)}
    placed: dict[NodeId, Amounts] = {}
    for node in topology.nodes:
        shares = {name: min(left[name], _capacity(node, name) // 2) for name in left}
        here = {name: Quantity.bytes(share) for name, share in shares.items() if share}
        if here:
            placed[node.id] = here
        left = {name: amount - shares[name] for name, amount in left.items()}
    return placed


def _capacity(node: NumaNode, name: ResourceName) -> int:
    """Bytes of a memory type on a NUMA node."""
    if name == MEMORY:
        return node.memory
    pages = {hugepages_resource(kib): count * kib << 10 for kib, count in node.hugepages.items()}
    return pages.get(name, 0)
