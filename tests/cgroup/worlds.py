"""Machines, pods and states for the tests of plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.cgroup.facts import CgroupSettings, Facts
from agent.cgroup.fake import FakeCgroups
from agent.cgroup.layout import CgroupDir
from agent.cgroup.plan import plan
from agent.cgroup.tree import KernelOffer, Room, Wanted
from agent.domain.idset import NO_CPUS, CpuSet, NodeMask
from agent.domain.outcome import Isolation
from agent.domain.pod import (
    CPU,
    MEMORY,
    NO_RESOURCES,
    Container,
    ContainerKind,
    Pod,
    PodUid,
    ResourceName,
    Resources,
)
from agent.domain.quantity import parse_quantity
from agent.domain.settings import CpuPolicy, MemoryPolicy, Settings
from agent.domain.state import Blocks, CpuState, MemoryState, NodeState
from agent.domain.topology import CoreId, Cpu, CpuId, NodeId, NumaNode, SocketId, Topology, UncoreId

GIB = 1 << 30


def machine(cpus: int = 16, nodes: int = 2) -> Topology:
    """A machine without SMT, CPUs and memory split evenly."""
    per = cpus // nodes
    return Topology(
        cpus=tuple(
            Cpu(
                id=CpuId(i),
                core=CoreId(i),
                socket=SocketId(i // per),
                node=NodeId(i // per),
                uncore=UncoreId(i // per),
            )
            for i in range(cpus)
        ),
        nodes=tuple(
            NumaNode(id=NodeId(n), cpus=CpuSet.of(range(n * per, (n + 1) * per)), memory=16 * GIB)
            for n in range(nodes)
        ),
    )


def amounts(**stated: str) -> Mapping[ResourceName, str]:
    return {ResourceName(name): text for name, text in stated.items()}


def resources(requests: Mapping[ResourceName, str], limits: Mapping[ResourceName, str]) -> Resources:
    return Resources(
        requests={name: parse_quantity(text) for name, text in requests.items()},
        limits={name: parse_quantity(text) for name, text in limits.items()},
    )


def pinned(cpu: str, memory: str, **more: str) -> Resources:
    """Requests equal to limits."""
    stated = {CPU: cpu, MEMORY: memory, **{ResourceName(n.replace("_", "-")): v for n, v in more.items()}}
    return resources(stated, stated)


def app(name: str, stated: Resources = NO_RESOURCES) -> Container:
    return Container(name=name, resources=stated)


def init(name: str, stated: Resources = NO_RESOURCES) -> Container:
    return Container(name=name, kind=ContainerKind.INIT, resources=stated)


def sidecar(name: str, stated: Resources = NO_RESOURCES) -> Container:
    return Container(name=name, kind=ContainerKind.SIDECAR, resources=stated)


def pod(
    uid: str, *containers: Container, budget: Resources = NO_RESOURCES, ephemeral: tuple[str, ...] = ()
) -> Pod:
    return Pod(
        name=uid,
        namespace="default",
        uid=PodUid(uid),
        containers=containers,
        resources=budget,
        ephemeral=ephemeral,
    )


@dataclass(kw_only=True)
class World:
    """Pods and what they hold; `wanted` plans them."""

    topology: Topology = field(default_factory=machine)
    pods: dict[PodUid, Pod] = field(default_factory=dict)
    cpus: dict[PodUid, dict[str, CpuSet]] = field(default_factory=dict)
    pod_cpus: dict[PodUid, CpuSet] = field(default_factory=dict)
    blocks: dict[PodUid, dict[str, Blocks]] = field(default_factory=dict)
    pod_blocks: dict[PodUid, Blocks] = field(default_factory=dict)
    shared: set[tuple[PodUid, str]] = field(default_factory=set)
    """Containers whose entry is their pod's shared pool."""
    settings: Settings = field(
        default_factory=lambda: Settings(cpu_policy=CpuPolicy.STATIC, memory_policy=MemoryPolicy.STATIC)
    )
    cgroup: CgroupSettings = field(default_factory=CgroupSettings)
    withheld: CpuSet = NO_CPUS

    @property
    def default(self) -> CpuSet:
        held = NO_CPUS
        for cpus in (
            *self.pod_cpus.values(),
            *(c for entries in self.cpus.values() for c in entries.values()),
        ):
            held |= cpus
        return self.topology.online - held

    def facts(self, kernel: KernelOffer | None = None) -> Facts:
        return Facts(
            topology=self.topology,
            settings=self.settings,
            state=NodeState(
                cpu=CpuState(default=self.default, entries=self.cpus, pod_entries=self.pod_cpus),
                memory=MemoryState(entries=self.blocks, pod_entries=self.pod_blocks),
            ),
            pods=self.pods,
            cpu_isolation=self._levels(self.cpus),
            memory_isolation=self._levels(self.blocks),
            kernel=kernel or prepared(self.topology).offer(),
            cgroup=self.cgroup,
            withheld=self.withheld,
        )

    def wanted(self) -> Wanted:
        return plan(self.facts())

    def _levels(self, entries: Mapping[PodUid, Mapping[str, object]]) -> dict[tuple[PodUid, str], Isolation]:
        return {
            (uid, name): Isolation.POD if (uid, name) in self.shared else Isolation.CONTAINER
            for uid, held in entries.items()
            for name in held
        }


def prepared(topology: Topology) -> FakeCgroups:
    """A fake host with that machine, ready for plans."""
    fake = FakeCgroups(topology.online, NodeMask(topology.all_nodes.bits), possible=topology.possible)
    fake.prepare()
    return fake


def texts(wanted: Wanted, directory: str) -> dict[str, str]:
    """The contents planned for one cgroup, huge pages left out, and cpusets that nobody has to set."""
    settings = wanted.dirs[CgroupDir(directory)].settings
    return {
        file: setting.text
        for file, setting in settings.items()
        if not (file.startswith("hugetlb") or isinstance(setting, Room))
    }
