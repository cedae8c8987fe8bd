"""What the owner shows of itself: one immutable value, read by every face."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from agent.admission import Managers
from agent.cgroup.layout import CgroupDir
from agent.cgroup.naming import PLAIN, CgroupNames
from agent.containermanager.changes import node_memory
from agent.domain.idset import CpuSet
from agent.domain.lifecycle import Lives
from agent.domain.outcome import Isolation
from agent.domain.pod import Pod, PodUid
from agent.domain.settings import CpuPolicy, Settings
from agent.domain.state import NodeState
from agent.domain.topology import NodeId, Topology
from agent.domain.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmittedPod:
    """A pod that holds its resources. ``source`` is ``file:NAME`` of its manifest, or ``api``.

    ``debug`` are the cgroups of `numalet debug` in it now, as ephemeral containers of the pod.
    """

    pod: Pod
    source: str
    admitted_at: str
    trace: Trace
    isolation: Mapping[str, Isolation]
    directories: Mapping[str, CgroupDir]
    """Each container's cgroup, below the cgroup root; those of ``debug``, too."""
    debug: tuple[str, ...] = ()

    @property
    def ephemeral(self) -> tuple[str, ...]:
        """The ephemeral containers of the manifest and of `numalet debug`."""
        return (*self.pod.ephemeral, *self.debug)

    @property
    def enforced(self) -> Pod:
        """The pod as the kernel is to have it."""
        return replace(self.pod, ephemeral=self.ephemeral) if self.debug else self.pod


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedPod:
    """A pod whose work is done: it holds nothing, and is known until it is deleted."""

    pod: Pod
    source: str
    admitted_at: str
    ended_at: str
    lives: Lives
    trace: Trace = ()


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

    ``lives`` are those of the containers of ``pods``. ``failures`` are sentences about what numalet cannot do
    now (it is not ready), ``problems`` what an operator should know, ``pending`` what of the configuration
    waits for a restart, ``notices`` what is by choice and not wrong; ``degraded`` says what each degraded pod
    lacks. ``strangers`` are cgroups with processes of pods nobody knows, and the CPUs they were found on.
    ``withdrawn`` is why the topology cannot be relied on now, empty where it can. ``recovered`` counts the
    state files that could not be used at start, ``memory_at_start`` is each NUMA node's memory by these files.
    ``drift_repairs`` counts by file what others had changed in our cgroups; ``cgroup``: one was removed.
    """

    topology: Topology
    settings: Settings
    managers: Managers
    state: NodeState
    cgroup_root: str
    cgroup_names: CgroupNames = PLAIN
    pods: Mapping[PodUid, AdmittedPod] = field(default_factory=dict)
    rejected: Mapping[PodUid, RejectedPod] = field(default_factory=dict)
    ended: Mapping[PodUid, EndedPod] = field(default_factory=dict)
    lives: Mapping[PodUid, Lives] = field(default_factory=dict)
    failures: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    host_isolation: str = "none"
    notices: tuple[str, ...] = ()
    degraded: Mapping[PodUid, tuple[str, ...]] = field(default_factory=dict)
    strangers: Mapping[CgroupDir, CpuSet] = field(default_factory=dict)
    withdrawn: str = ""
    recovered: Mapping[str, int] = field(default_factory=dict)
    memory_at_start: Mapping[NodeId, int] = field(default_factory=dict)
    drift_repairs: Mapping[str, int] = field(default_factory=dict)
    manifests: tuple[str, ...] = ()
    """Those of ``problems`` that are in the manifest directory."""
    controllers: frozenset[str] = frozenset()
    """The cgroup controllers that the kernel offers."""
    boot_id: str = ""
    bound: Mapping[tuple[PodUid, str], str] = field(default_factory=dict)
    """By uid and name, the cgroups of containers that are somebody else's, absolute."""
    binding_lacks: Mapping[tuple[PodUid, str], str] = field(default_factory=dict)
    """What keeps each of them from being as it is to be; empty where nothing does."""

    def cgroup(self, directory: CgroupDir) -> str:
        """The path of one of our cgroups."""
        return f"{self.cgroup_root}/{self.cgroup_names.path(directory)}"

    @property
    def troubles(self) -> tuple[str, ...]:
        """Everything that is wrong, as sentences."""
        degraded = (
            f"pod {self.pods[uid].pod.full_name} is degraded: {'; '.join(reasons)}"
            for uid, reasons in self.degraded.items()
        )
        return (*self.failures, *degraded, *self.problems)

    @property
    def memory_drift(self) -> Mapping[NodeId, int]:
        """The bytes each NUMA node has more than when the state was written that we started from."""
        before = self.memory_at_start
        now = node_memory(self.state.memory)
        return {node: size - before[node] for node, size in now.items() if node in before}

    @property
    def shared(self) -> CpuSet:
        """The online CPUs of the node shared pool: all of them where no policy hands any out."""
        if self.settings.cpu_policy is CpuPolicy.NONE:
            return self.topology.online
        return self.state.cpu.default & self.topology.online

    @property
    def exclusive(self) -> CpuSet:
        """The online CPUs that pods hold."""
        return self.state.cpu.held & self.topology.online

    def cpus(self, uid: PodUid, container: str) -> CpuSet:
        """The online CPUs a container may run on: the shared pool where it has none of its own left."""
        return self.managers.cpu.cpus_of(self.state.cpu, uid, container) & self.topology.online or self.shared
