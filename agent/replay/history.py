"""Replaying an admission history: ``{"machine", "config", "steps"}`` -> the state after each step.

The replay follows the kubelet to the letter (`Fidelity.KUBELET`), restarts included: it goes on from
what the checkpoint files would hold and stops where the kubelet would refuse to start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from agent.admission import (
    Admitted,
    Managers,
    admit,
    cpus_of,
    isolation,
    new_managers,
    remove_container,
    remove_pod,
    restore,
    start_container,
)
from agent.domain.hints import Hint
from agent.domain.idset import CpuSet, NodeMask
from agent.domain.pod import Pod, ResourceName
from agent.domain.quantity import Quantity, parse_quantity
from agent.domain.settings import (
    CpuPolicy,
    Fidelity,
    Gates,
    MemoryPolicy,
    Settings,
    TopologyPolicy,
    TopologyScope,
)
from agent.domain.state import Blocks, CpuState, MemoryState, NodeState
from agent.domain.topology import NodeId, Topology
from agent.errors import ConfigError, StateError
from agent.manifest import pod_from_object
from agent.replay.machine import topology_of

Json = dict[str, Any]


def replay_history(case: Mapping[str, Any], fidelity: Fidelity = Fidelity.KUBELET) -> Json:
    """Answer one case in the schema's ``out`` form."""
    topology, settings = topology_of(case["machine"]), settings_of(case["config"], fidelity)
    try:
        managers = new_managers(settings, topology)
    except ConfigError as error:
        return {"error": f"{error.manager}: {error.message}", "reason": ""}
    state = restore(managers, NodeState())
    return {
        "init": {
            "allocatable": str(managers.cpu.allocatable),
            "reserved": str(managers.cpu.reserved),
            "reservedPhysical": str(managers.cpu.reserved_physical),
            **_shown(state),
        },
        "steps": list(_steps(case["steps"], managers, state, (settings, topology))),
    }


def settings_of(config: Mapping[str, Any], fidelity: Fidelity) -> Settings:
    """Read a vector's ``config``."""
    gates = config.get("gates", {})
    reserved_memory = {
        NodeId(entry["node"]): _quantities(entry["limits"]) for entry in config.get("reservedMemory", ())
    }
    reserved_cpus = config.get("reservedCPUs")
    return Settings(
        cpu_policy=CpuPolicy(config.get("cpuPolicy", "none")),
        cpu_options=config.get("cpuOptions", {}),
        reserved_cpus=CpuSet.parse(reserved_cpus) if reserved_cpus else None,
        node_reserved=_quantities(config.get("nodeReserved", {})),
        memory_policy=MemoryPolicy(config.get("memoryPolicy", "None")),
        reserved_memory=reserved_memory,
        topology_policy=TopologyPolicy(config.get("topologyPolicy", "none")),
        topology_scope=TopologyScope(config.get("topologyScope", "container")),
        topology_options=config.get("topologyOptions", {}),
        gates=Gates(
            pod_level_resources=gates.get("PodLevelResources", True),
            pod_level_resource_managers=gates.get("PodLevelResourceManagers", True),
            cpu_alpha_options=gates.get("CPUManagerPolicyAlphaOptions", True),
            cpu_beta_options=gates.get("CPUManagerPolicyBetaOptions", True),
        ),
        fidelity=fidelity,
    )


def _quantities(limits: Mapping[str, str]) -> dict[ResourceName, Quantity]:
    return {ResourceName(name): parse_quantity(text) for name, text in limits.items()}


def _steps(
    steps: list[Json], managers: Managers, state: NodeState, world: tuple[Settings, Topology]
) -> Iterator[Json]:
    pods: dict[str, Pod] = {}
    for step in steps:
        if step["op"] == "restart":
            settings, topology = world
            settings = settings_of(step["config"], settings.fidelity) if step.get("config") else settings
            topology = topology_of(step["machine"]) if step.get("machine") else topology
            try:
                managers, state = _restarted(settings, topology, world[0], state)
            except (ConfigError, StateError) as error:
                start = " start" if isinstance(error, StateError) else ""
                yield {"error": f"{error.manager}{start}: {error.message}"}
                return
            world = settings, topology
            yield _shown(state)
        else:
            if step["op"] == "admit":
                pod = pod_from_object(step["pod"])
                pods[pod.uid] = pod
            else:
                pod = pods[step["uid"]]
            state, out = _step(step, managers, state, pod)
            yield out | _shown(state)


def _step(step: Json, managers: Managers, state: NodeState, pod: Pod) -> tuple[NodeState, Json]:
    match step["op"]:
        case "admit":
            return _admitted(managers, state, pod)
        case "start":
            return start_container(managers, state, pod, step["container"]), {}
        case "removeContainer":
            return remove_container(managers, state, pod.uid, step["container"]), {}
        case "removePod":
            return remove_pod(managers, state, pod.uid), {}
        case other:
            raise ValueError(f"unknown step {other!r}")


def _admitted(managers: Managers, state: NodeState, pod: Pod) -> tuple[NodeState, Json]:
    decision = admit(managers, state, pod)
    if not isinstance(decision, Admitted):
        return decision.state, {"admit": False, "reason": decision.reason, "message": decision.message}
    names = [container.name for container in pod.containers]
    nodes = {name: list(managers.memory.nodes_of(decision.state.memory, pod.uid, name)) for name in names}
    out: Json = {
        "admit": True,
        "hints": {name: hint_json(hint) for name, hint in decision.hints.items()},
        "isolation": {n: level.value for n, level in isolation(managers, decision.state, pod).items()},
        "cpuAffinity": {n: str(cpus_of(managers, decision.state, pod.uid, n)) for n in names},
    }
    if any(nodes.values()):
        out["memNodes"] = {name: ids for name, ids in nodes.items() if ids}
    return decision.state, out


def _restarted(
    settings: Settings, topology: Topology, before: Settings, state: NodeState
) -> tuple[Managers, NodeState]:
    managers = new_managers(settings, topology)
    if not settings.gates.pod_level_resource_managers:
        state = NodeState(
            cpu=replace(state.cpu, pod_entries={}), memory=replace(state.memory, pod_entries={})
        )
    _check_policy("CPU", "cpu", settings.cpu_policy.value, before.cpu_policy.value)
    _check_policy("memory", "memory", settings.memory_policy.value, before.memory_policy.value)
    return managers, restore(managers, state)


def _check_policy(manager: str, name: str, configured: str, stored: str) -> None:
    if configured == stored:
        return
    prefix = "[memorymanager] " if name == "memory" else ""
    text = f'{prefix}configured policy "{configured}" differs from state checkpoint policy "{stored}"'
    raise StateError(refused_start(manager, text), manager=name)


def refused_start(manager: str, text: str) -> str:
    """The kubelet's last words where it cannot use its checkpoint; its folder stands as DIR."""
    return (
        f"could not restore state from checkpoint: {text}, please drain this node and delete the {manager}"
        f' manager checkpoint file "DIR/{manager.lower()}_manager_state" before restarting Kubelet'
    )


def hint_json(hint: Hint) -> Json:
    """A merged hint as the vectors write it."""
    mask = hint.affinity
    return {"m": list(mask) if isinstance(mask, NodeMask) else None, "p": hint.preferred}


def _shown(state: NodeState) -> Json:
    return {"cpu": cpu_json(state.cpu), "mem": memory_json(state.memory)}


def cpu_json(cpu: CpuState) -> Json:
    """CPU state as the vectors write it; empty maps are left out."""
    out: Json = {"default": str(cpu.default)}
    if cpu.entries:
        out["entries"] = {
            uid: {name: str(cpus) for name, cpus in entries.items()} for uid, entries in cpu.entries.items()
        }
    if cpu.pod_entries:
        out["podEntries"] = {uid: str(cpus) for uid, cpus in cpu.pod_entries.items()}
    return out


def memory_json(memory: MemoryState) -> Json:
    """Memory state as the vectors write it; empty maps are left out."""
    out: Json = {}
    if memory.nodes:
        out["nodes"] = {
            str(node): [
                held.assignments,
                list(held.cells),
                {
                    kind: [t.total, t.system_reserved, t.allocatable, t.reserved, t.free]
                    for kind, t in held.tables.items()
                },
            ]
            for node, held in memory.nodes.items()
        }
    if memory.entries:
        out["entries"] = {
            uid: {name: _blocks_json(blocks) for name, blocks in entries.items()}
            for uid, entries in memory.entries.items()
        }
    if memory.pod_entries:
        out["podEntries"] = {uid: _blocks_json(blocks) for uid, blocks in memory.pod_entries.items()}
    return out


def _blocks_json(blocks: Blocks) -> list[Json]:
    return [
        {"n": list(block.nodes), "t": block.type, "s": block.size}
        for block in sorted(blocks, key=lambda block: block.type)
    ]
