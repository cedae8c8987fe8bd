"""What an operator chose: policies, options, reserved CPUs and memory, feature gates.

Field names follow KubeletConfiguration (kubelet.config.k8s.io/v1beta1). Option maps are kept as
the text the operator wrote; each manager parses its own and refuses what it does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from agent.domain.idset import CpuSet
from agent.domain.pod import ResourceName
from agent.domain.quantity import Quantity
from agent.domain.topology import NodeId


class CpuPolicy(Enum):
    """`cpuManagerPolicy`."""

    NONE = "none"
    STATIC = "static"


class MemoryPolicy(Enum):
    """`memoryManagerPolicy`; the capital letters are the kubelet's."""

    NONE = "None"
    STATIC = "Static"


class TopologyPolicy(Enum):
    """`topologyManagerPolicy`."""

    NONE = "none"
    BEST_EFFORT = "best-effort"
    RESTRICTED = "restricted"
    SINGLE_NUMA_NODE = "single-numa-node"


class TopologyScope(Enum):
    """`topologyManagerScope`."""

    CONTAINER = "container"
    POD = "pod"


class Fidelity(Enum):
    """What to do where the kubelet's decision does harm.

    The kubelet takes the average for the size of every socket and core: a bigger one counts as free
    while some of its CPUs are taken, and two containers get the same "exclusive" CPU (kubernetes
    issue 140495). With strict-cpu-reservation it gives away the shared pool's last CPU (141196).
    With full-pcpus-only it refuses, after a restart, a container what this already holds. Undoing a
    refused pod, it may free memory on another NUMA node of a group than the pod had taken it from.
    Where more memory is reserved on a NUMA node than it has, it takes the node for one of 16 EiB.
    Where CPUs and memory agree on one node only, it places memory there even if the node serves a
    group, and then cannot tell after a restart whose node it is.
    """

    SAFE = "safe"
    """Nothing is given twice, the shared pool is never emptied, what is held stays."""
    KUBELET = "kubelet"
    """Exactly as the kubelet, to compare decisions with it; the state may break its invariants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gates:
    """Feature gates that change decisions.

    Both pod-level gates are on by default here although Kubernetes 1.37.0 ships
    PodLevelResourceManagers off: its reasons (three restart defects) are fixed here, and pod-level
    budgets are what numalet is for. PodLevelResourceManagers needs PodLevelResources.
    """

    pod_level_resources: bool = True
    pod_level_resource_managers: bool = True
    cpu_alpha_options: bool = True
    cpu_beta_options: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything a decision depends on besides machine, state and pod.

    ``reserved_cpus`` None: as many CPUs as ``node_reserved`` (kubeReserved + systemReserved +
    evictionHard, by resource) says, chosen by topology. ``reserved_memory`` is bytes per NUMA node
    and type.
    """

    cpu_policy: CpuPolicy = CpuPolicy.NONE
    cpu_options: Mapping[str, str] = field(default_factory=dict)
    reserved_cpus: CpuSet | None = None
    node_reserved: Mapping[ResourceName, Quantity] = field(default_factory=dict)
    memory_policy: MemoryPolicy = MemoryPolicy.NONE
    reserved_memory: Mapping[NodeId, Mapping[ResourceName, Quantity]] = field(default_factory=dict)
    topology_policy: TopologyPolicy = TopologyPolicy.NONE
    topology_scope: TopologyScope = TopologyScope.CONTAINER
    topology_options: Mapping[str, str] = field(default_factory=dict)
    gates: Gates = field(default_factory=Gates)
    fidelity: Fidelity = Fidelity.SAFE
