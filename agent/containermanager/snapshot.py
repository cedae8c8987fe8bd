"""What the owner shows of itself: one immutable value, read by every face."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.admission import Managers
from agent.cgroup.layout import CgroupDir
from agent.domain.idset import CpuSet, union
from agent.domain.outcome import Isolation
from agent.domain.pod import Pod, PodUid
from agent.domain.settings import CpuPolicy, Settings
from agent.domain.state import NodeState
from agent.domain.topology import Topology
from agent.domain.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmittedPod:
    """A pod that holds its resources. ``source`` is ``file:NAME`` of its manifest, or ``api``."""

    pod: Pod
    source: str
    admitted_at: str
    trace: Trace
    isolation: Mapping[str, Isolation]
    directories: Mapping[str, CgroupDir]
    """Each container's cgroup, below the cgroup root."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedPod:
    """A pod that was refused; ``reason`` and ``message`` are the kubelet's words."""

    pod: Pod
    source: str
    rejected_at: str
    reason: str
    message: str
    remedy: str
    trace: Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything at one moment.

    ``failures`` are sentences about what numalet cannot do now (it is not ready), ``problems``
    what an operator should know.
    """

    topology: Topology
    settings: Settings
    managers: Managers
    state: NodeState
    cgroup_root: str
    pods: Mapping[PodUid, AdmittedPod] = field(default_factory=dict)
    rejected: Mapping[PodUid, RejectedPod] = field(default_factory=dict)
    failures: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def shared(self) -> CpuSet:
        """The online CPUs of the node shared pool: all of them where no policy hands any out."""
        if self.settings.cpu_policy is CpuPolicy.NONE:
            return self.topology.online
        return self.state.cpu.default & self.topology.online

    @property
    def exclusive(self) -> CpuSet:
        """The online CPUs that pods hold."""
        cpu = self.state.cpu
        held = (*cpu.pod_entries.values(), *(c for pod in cpu.entries.values() for c in pod.values()))
        return union(held) & self.topology.online

    def cpus(self, uid: PodUid, container: str) -> CpuSet:
        """The CPUs a container may run on."""
        return self.managers.cpu.cpus_of(self.state.cpu, uid, container) or self.shared
