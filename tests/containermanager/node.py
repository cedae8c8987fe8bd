"""A node for tests: a real owner on a store and cgroups in memory, which outlive it as a disk and a kernel do."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from agent.admission import Managers, adapted
from agent.cgroup.backend import CgroupBackend
from agent.cgroup.diff import deviations
from agent.cgroup.fake import FakeCgroups
from agent.cgroup.plan import plan
from agent.checkpoint.codec import decode_cpu, decode_memory
from agent.checkpoint.store import CPU_FILE, MEMORY_FILE, MemoryStore, Store
from agent.config import Config
from agent.config.model import StateRecovery
from agent.containermanager import ContainerManager
from agent.containermanager.hostisolation import Host, LooseHost
from agent.containermanager.machine import Machine
from agent.containermanager.observing import Observer, Timed, untimed
from agent.domain.idset import CpuSet, NodeMask
from agent.domain.pod import Pod
from agent.domain.settings import CpuPolicy, Gates, TopologyScope
from agent.domain.state import invariants
from agent.domain.topology import CoreId, Cpu, CpuId, NodeId, NumaNode, SocketId, Topology, UncoreId
from agent.manifest import load_manifests
from tests.containermanager.boundhost import BoundHost

GIB = 1 << 30
NO_PROCESS = 1 << 22
"""PID_MAX_LIMIT: pids from here on name no process, so that a signal to one goes nowhere."""


def topology(cpus: int = 8, nodes: int = 2, *, offline: frozenset[int] = frozenset()) -> Topology:
    """A machine without SMT; CPUs and 4 GiB of memory a node are split evenly."""
    per = cpus // nodes
    online = tuple(
        Cpu(
            id=CpuId(i),
            core=CoreId(i),
            socket=SocketId(i // per),
            node=NodeId(i // per),
            uncore=UncoreId(i // per),
        )
        for i in range(cpus)
        if i not in offline
    )
    return Topology(
        cpus=online,
        nodes=tuple(
            NumaNode(id=NodeId(n), cpus=CpuSet.of(cpu.id for cpu in online if cpu.node == n), memory=4 * GIB)
            for n in range(nodes)
        ),
        offline=CpuSet.of(offline),
        possible=CpuSet.of(range(cpus)),
    )


def limits(cpu: str, memory: str) -> dict[str, Any]:
    both = {"cpu": cpu, "memory": memory}
    return {"requests": both, "limits": both}


def manifest(name: str, cpu: str = "2", memory: str = "1Gi", **metadata: str) -> dict[str, Any]:
    """A Guaranteed pod of one container."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "uid": f"uid-{name}", **metadata},
        "spec": {"containers": [{"name": "main", "resources": limits(cpu, memory)}]},
    }


def budgeted(name: str, cpu: str = "3", memory: str = "2Gi") -> dict[str, Any]:
    """A pod with pod-level resources: an exclusive container of 2 CPUs, and one in the pod shared pool."""
    document = manifest(name)
    document["spec"] |= {
        "resources": limits(cpu, memory),
        "containers": [{"name": "main", "resources": limits("2", "1Gi")}, {"name": "helper"}],
    }
    return document


def best_effort(name: str) -> dict[str, Any]:
    document = manifest(name)
    document["spec"] = {"containers": [{"name": "main"}]}
    return document


def parsed(document: dict[str, Any]) -> Pod:
    return load_manifests(json.dumps(document).encode(), "test.yaml", Gates())[0]


def pod(name: str, cpu: str = "2", memory: str = "1Gi", **metadata: str) -> Pod:
    return parsed(manifest(name, cpu, memory, **metadata))


class Node:
    """Disk, kernel and machine of one node; `owner` starts a daemon's owner on them."""

    def __init__(
        self,
        config: Config | None = None,
        machine: Topology | None = None,
        store: MemoryStore | None = None,
        cgroups: FakeCgroups | None = None,
    ) -> None:
        self.config = config or Config()
        self.topology = machine or _USUAL.topology
        usual = config is None and machine is None
        self.machine = _USUAL if usual else machine_of(self.config, self.topology)
        self.store = store or MemoryStore()
        self.cgroups = cgroups or fake_cgroups(self.topology)
        self.backend: CgroupBackend | None = None
        """By which a daemon gets at the cgroups, if not directly."""
        self.boot = "boot"
        self.outside = BoundHost(self.topology)
        self.host: Host = LooseHost()
        self._ticks = 0

    def now(self) -> str:
        self._ticks += 1
        return f"2026-01-01T00:{self._ticks // 60:02d}:{self._ticks % 60:02d}Z"

    def stopped_owner(
        self,
        *observers: Observer,
        recovery: StateRecovery = StateRecovery.REBUILD,
        store: Store | None = None,
        cgroup_root: str = "/sys/fs/cgroup/test",
        timed: Timed = untimed,
    ) -> ContainerManager:
        return ContainerManager(
            machine=self.machine,
            store=store or self.store,
            cgroups=self.backend or self.cgroups,
            cgroup_root=cgroup_root,
            boot_id=self.boot,
            host=self.host,
            binder=self.outside.binder(store or self.store, self.boot),
            binding_policy=self.config.bindings,
            now=self.now,
            recovery=recovery,
            observers=observers,
            timed=timed,
        )

    def owner(
        self, *observers: Observer, recovery: StateRecovery = StateRecovery.REBUILD
    ) -> ContainerManager:
        owner = self.stopped_owner(*observers, recovery=recovery)
        owner.start()
        return owner

    def rebooted(self, machine: Topology, config: Config | None = None) -> Node:
        """The same disk under another machine, as after a boot with CPUs gone."""
        again = Node(config or self.config, machine, self.store)
        again.boot = self.boot + "+"
        return again

    def configured(self, config: Config) -> Node:
        """The same disk and kernel under another configuration."""
        return Node(config, self.topology, self.store, self.cgroups)

    def plug(self, machine: Topology) -> Machine:
        """The kernel has taken CPUs, memory or nodes on- or offline; what a look at it then finds."""
        self.topology, self.machine = machine, machine_of(self.config, machine)
        self.cgroups.online = machine.online
        self.cgroups.nodes = NodeMask(machine.all_nodes.bits)
        return self.machine

    @property
    def managers(self) -> Managers:
        return self.machine.managers


def fake_cgroups(machine: Topology, kind: Callable[..., FakeCgroups] = FakeCgroups) -> FakeCgroups:
    fake = kind(machine.online, NodeMask(machine.all_nodes.bits), possible=machine.possible)
    fake._last_pid = NO_PROCESS
    return fake


def machine_of(config: Config, machine: Topology) -> Machine:
    return Machine.of(machine, config.settings(machine), config.reservation_arithmetic(machine))


_USUAL = machine_of(Config(), topology())


def container_scope() -> Config:
    return Config(topology_scope=TopologyScope.CONTAINER)


def admitted_names(owner: ContainerManager) -> list[str]:
    return sorted(entry.pod.name for entry in owner.snapshot().pods.values())


def unsound(node: Node, owner: ContainerManager, store: Store | None = None) -> list[str]:
    """A sentence for every way in which state, disk and kernel do not agree; none is right."""
    store = store or node.store
    shot = owner.snapshot()
    kept = CpuSet.of(range(64)) - node.topology.online
    wrong: list[str] = []
    if shot.settings.cpu_policy is CpuPolicy.STATIC:
        wrong += invariants(shot.state, node.topology.online, kept=kept)
    if adapted(shot.managers, shot.state) != shot.state:
        wrong.append("the machine has room for more of what pods hold")
    cpu, memory = store.read(CPU_FILE), store.read(MEMORY_FILE)
    if cpu is None or memory is None:
        return [*wrong, "a checkpoint is missing"]
    if decode_cpu(cpu, gates=Gates()).state != shot.state.cpu:
        wrong.append("cpu_manager_state is not the state")
    if decode_memory(memory, gates=Gates()).state != shot.state.memory:
        wrong.append("memory_manager_state is not the state")
    if set(store.records().pods) != {*shot.pods, *shot.ended}:
        wrong.append("the pod records are not the admitted and ended pods")
    if not shot.state.pods() <= set(shot.pods):
        wrong.append("somebody unknown holds resources")
    facts = owner._enforcer._facts(shot.state, {uid: entry.enforced for uid, entry in shot.pods.items()})
    return [*wrong, *deviations(plan(facts), node.cgroups.observe())]
