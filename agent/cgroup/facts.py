"""What the tree depends on, and where each container's cgroup is because of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from agent.cgroup import layout
from agent.cgroup.layout import CgroupDir
from agent.cgroup.tree import KernelOffer, Room
from agent.cgroup.units import DEFAULT_PERIOD, UNLIMITED, Micros, Unlimited
from agent.domain.idset import NO_CPUS, CpuSet, NodeMask
from agent.domain.outcome import Isolation
from agent.domain.pod import Container, ContainerKind, Pod, PodUid
from agent.domain.qos import qos_class
from agent.domain.settings import CpuPolicy, Settings
from agent.domain.state import Blocks, NodeState
from agent.domain.topology import Topology

Isolations = Mapping[tuple[PodUid, str], Isolation]
"""Isolation by pod and container name; a container that is missing has level host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupSettings:
    """KubeletConfiguration's cpuCFSQuota, cpuCFSQuotaPeriod, podPidsLimit and singleProcessOOMKill.

    ``partitions``: whether what pods hold is cut out of the rest of the machine by cpuset partitions.
    """

    cfs_quota: bool = True
    cfs_period: Micros = DEFAULT_PERIOD
    pod_pids: int | Unlimited = UNLIMITED
    single_process_oom_kill: bool = False
    partitions: bool = False


@dataclass(frozen=True, kw_only=True)
class Facts:
    """All that the tree depends on. Not slotted: the derived sets are computed once."""

    topology: Topology
    settings: Settings
    state: NodeState
    pods: Mapping[PodUid, Pod]
    cpu_isolation: Isolations
    memory_isolation: Isolations
    kernel: KernelOffer
    cgroup: CgroupSettings = field(default_factory=CgroupSettings)
    withheld: CpuSet = NO_CPUS
    """CPUs that no pod is given, not to share either (strict-cpu-reservation)."""

    @cached_property
    def shared_cpus(self) -> CpuSet:
        """The node shared pool: every online CPU where no CPU policy hands any out."""
        if self.settings.cpu_policy is CpuPolicy.NONE:
            return self.topology.online
        return self.state.cpu.default

    @property
    def knows_shared_cpus(self) -> bool:
        """Whether anybody has asked for `shared_cpus` yet: then what was planned depends on it."""
        return "shared_cpus" in vars(self)

    @cached_property
    def memory_room(self) -> Room:
        """`memory_nodes`: what every cgroup that others are in has room for."""
        text = str(self.memory_nodes)
        return Room(text, least=text)

    @property
    def memory_nodes(self) -> NodeMask:
        """NUMA nodes with memory; the kernel uses no others."""
        return self.topology.memory_nodes

    def has_exclusive_cpus(self, pod: Pod, container: Container) -> bool:
        """Tell whether the container holds CPUs that no other container may use."""
        return self.cpu_isolation.get((pod.uid, container.name)) is Isolation.CONTAINER

    def has_own_cpus(self, pod: Pod, container: Container) -> bool:
        """Tell whether it runs on CPUs that no other pod has and that are there."""
        entry = self.state.cpu.of(pod.uid, container.name)
        return entry is not None and not entry.isdisjoint(self.topology.online)

    def has_exclusive_memory(self, pod: Pod, container: Container) -> bool:
        """Tell whether the container's memory was cut out of its pod's."""
        return self.memory_isolation.get((pod.uid, container.name)) is Isolation.CONTAINER

    def stands_apart(self, pod: Pod, container: Container) -> bool:
        """See `stands_apart`."""
        return stands_apart(container, self.cpu_isolation.get((pod.uid, container.name), Isolation.HOST))

    def cpus_of(self, pod: Pod, container: Container) -> CpuSet:
        """The CPUs the container may use; none if the pod has a set but the container no part of it.

        Where all it holds is offline it runs in the node shared pool: with an empty set the kernel
        would let it run on other pods' CPUs.
        """
        entry = self.state.cpu.of(pod.uid, container.name)
        if entry is None:
            return NO_CPUS if pod.uid in self.state.cpu.pod_entries else self.shared_cpus
        online = entry & self.topology.online
        return online if online or not entry else self.shared_cpus

    def nodes_of(self, pod: Pod, container: Container) -> NodeMask:
        """The NUMA nodes of the container's memory, as far as they are there."""
        blocks = self.state.memory.of(pod.uid, container.name) or ()
        return self._present(blocks) or self.nodes_of_pool(pod)

    def nodes_of_pool(self, pod: Pod) -> NodeMask:
        """The NUMA nodes of memory that belongs to no container of the pod, as far as they are there."""
        return self._present(self.state.memory.pod_entries.get(pod.uid, ())) or self.memory_nodes

    def _present(self, blocks: Blocks) -> NodeMask:
        return NodeMask.of(node for block in blocks for node in block.nodes) & self.memory_nodes


def stands_apart(container: Container, level: Isolation) -> bool:
    """Tell whether the cgroup of a container with CPUs of this level is outside its pod's ``shared.pool``."""
    return container.kind is ContainerKind.INIT or level is Isolation.CONTAINER


def container_dir(pod: Pod, levels: Mapping[str, Isolation], name: str) -> CgroupDir:
    """The cgroup that the processes of container ``name`` belong in; ephemeral ones stand apart.

    ``levels`` says how far the pod's containers are kept apart on CPUs.
    """
    directory = layout.pod_dir(pod.uid, qos_class(pod))
    container = pod.container(name)
    if container is None or stands_apart(container, levels.get(name, Isolation.HOST)):
        return layout.container_dir(directory, name)
    return layout.pooled_dir(directory, name)
