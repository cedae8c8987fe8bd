"""Random machines, configurations and pods, from one `random.Random`."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any, Final

from agent.config import Config
from agent.domain.idset import CpuSet
from agent.domain.settings import CpuPolicy, Gates, MemoryPolicy, TopologyPolicy, TopologyScope
from agent.domain.topology import CoreId, Cpu, CpuId, NodeId, NumaNode, SocketId, Topology, UncoreId

GIB: Final = 1 << 30
MIB: Final = 1 << 20
OPTIONS: Final[tuple[dict[str, str], ...]] = (
    {},
    {},
    {"full-pcpus-only": "true"},
    {"distribute-cpus-across-numa": "true"},
    {"distribute-cpus-across-cores": "true"},
    {"prefer-align-cpus-by-uncorecache": "true"},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A machine with all its CPUs; `with_offline` is the same machine without some."""

    nodes: int
    cores: int
    threads: int
    sockets: int
    adjacent: bool
    memory: int

    @property
    def cpus(self) -> int:
        """How many CPUs there are."""
        return self.nodes * self.cores * self.threads

    def with_offline(self, offline: CpuSet) -> Topology:
        """The machine as discovery finds it; a core is called by its lowest online CPU."""
        cores: dict[int, list[int]] = {}
        for cpu in range(self.cpus):
            if cpu not in offline:
                cores.setdefault(self._core(cpu), []).append(cpu)
        cpus = tuple(
            self._cpu(cpu, core, min(siblings)) for core, siblings in cores.items() for cpu in siblings
        )
        return Topology(
            cpus=tuple(sorted(cpus, key=lambda cpu: cpu.id)),
            nodes=tuple(
                NumaNode(
                    id=NodeId(node),
                    cpus=CpuSet.of(cpu.id for cpu in cpus if cpu.node == node),
                    memory=self.memory,
                )
                for node in range(self.nodes)
            ),
            offline=offline,
            possible=CpuSet.of(range(self.cpus)),
        )

    def _core(self, cpu: int) -> int:
        return cpu // self.threads if self.adjacent else cpu % (self.nodes * self.cores)

    def _cpu(self, cpu: int, core: int, first: int) -> Cpu:
        node = core // self.cores
        return Cpu(
            id=CpuId(cpu),
            core=CoreId(first),
            socket=SocketId(node * self.sockets // self.nodes),
            node=NodeId(node),
            uncore=UncoreId(core // 2),
        )


def shape(choice: random.Random) -> Shape:
    """6 to 48 CPUs, few of them mostly."""
    nodes = choice.choice([1, 2, 2, 2, 4])
    return Shape(
        nodes=nodes,
        cores=choice.choice([3, 4, 4, 6]),
        threads=choice.choice([1, 1, 2]) if nodes > 1 else 2,
        sockets=choice.choice([1, nodes]),
        adjacent=choice.random() < 0.5,
        memory=choice.randint(2, 6) * GIB,
    )


def config(choice: random.Random) -> Config:
    """One that any of these machines accepts; CPU 0 is reserved."""
    options = dict(choice.choice(OPTIONS))
    if choice.random() < 0.3:
        options["strict-cpu-reservation"] = "true"
    return changed(choice, Config(reserved_cpus=CpuSet.of([0]), cpu_options=options))


def changed(choice: random.Random, now: Config) -> Config:
    """Other policies, scope, options and gates. What is reserved, and how strictly, stays."""
    strict = {name: text for name, text in now.cpu_options.items() if name == "strict-cpu-reservation"}
    cpu = choice.choices([CpuPolicy.STATIC, CpuPolicy.NONE], [9, 1])[0]
    return replace(
        now,
        cpu_policy=cpu,
        cpu_options={**choice.choice(OPTIONS), **strict} if cpu is CpuPolicy.STATIC else strict,
        memory_policy=choice.choices([MemoryPolicy.STATIC, MemoryPolicy.NONE], [4, 1])[0],
        topology_policy=choice.choice(list(TopologyPolicy)),
        topology_scope=choice.choice(list(TopologyScope)),
        gates=Gates(
            pod_level_resource_managers=choice.random() < 0.8,
            cpu_alpha_options=True,
            cpu_beta_options=True,
        ),
    )


def pod(choice: random.Random, name: str) -> dict[str, Any]:
    """A manifest: any QoS class, with and without a budget, an init container or a sidecar."""
    containers = [_container(choice, f"c{number}") for number in range(choice.choice([1, 1, 2, 3]))]
    spec: dict[str, Any] = {"containers": containers}
    if choice.random() < 0.3:
        init = _container(choice, "init")
        if choice.random() < 0.5:
            init["restartPolicy"] = "Always"
        spec["initContainers"] = [init]
    if choice.random() < 0.5:
        everything = [*containers, *spec.get("initContainers", ())]
        cpu = sum(int(c["resources"].get("limits", {}).get("cpu", 0)) for c in everything)
        memory = sum(_mib(c["resources"].get("limits", {}).get("memory", "0Mi")) for c in everything)
        spec["resources"] = _limits(cpu + choice.randint(1, 2), memory + choice.choice([64, 512]))
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": spec,
    }


def _container(choice: random.Random, name: str) -> dict[str, Any]:
    if choice.random() < 0.25:
        return {"name": name, "resources": {}}
    return {"name": name, "resources": _limits(choice.randint(1, 3), choice.choice([64, 256, 1024]))}


def _limits(cpu: int, mebibytes: int) -> dict[str, Any]:
    amounts = {"cpu": str(cpu), "memory": f"{mebibytes}Mi"}
    return {"requests": amounts, "limits": amounts}


def _mib(text: str) -> int:
    return int(text.removesuffix("Mi"))
