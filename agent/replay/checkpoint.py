"""Replaying checkpoint files: a state -> its bytes, or bytes -> the state and its bytes today."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.checkpoint.codec import (
    decode_cpu,
    decode_memory,
    encode_cpu,
    encode_cpu_v1,
    encode_memory,
    require_policy,
)
from agent.domain.idset import CpuSet, NodeMask
from agent.domain.pod import PodUid, ResourceName
from agent.domain.settings import Gates
from agent.domain.state import Block, Blocks, CpuState, MemoryState, MemoryTable, NodeMemory
from agent.domain.topology import NodeId
from agent.errors import StateError
from agent.replay.history import cpu_json, refused_start

Json = dict[str, Any]


def replay_checkpoint(case: Mapping[str, Any]) -> Json:
    """Answer one case in the schema's ``out`` form."""
    if case["action"] == "write":
        return {"bytes": _written(case).decode()}
    try:
        return _restored(case)
    except StateError as error:
        return {"error": refused_start("CPU" if case["kind"] == "cpu" else "memory", error.message)}


def _written(case: Mapping[str, Any]) -> bytes:
    policy, version = case["policy"], case["version"]
    if case["kind"] == "memory":
        return encode_memory(policy, memory_state(case), version=version)
    if version == 1:
        entries = {container: CpuSet.parse(cpus) for container, cpus in case["entries"].items()}
        return encode_cpu_v1(policy, CpuSet.parse(case["default"]), entries)
    return encode_cpu(policy, cpu_state(case), version=version)


def _restored(case: Mapping[str, Any]) -> Json:
    raw = case["bytes"].encode()
    gates = Gates(
        pod_level_resources=case["gates"]["PodLevelResources"],
        pod_level_resource_managers=case["gates"]["PodLevelResourceManagers"],
    )
    if case["kind"] == "cpu":
        cpu = decode_cpu(raw, gates=gates)
        require_policy(cpu, case["policy"])
        return {"state": cpu_json(cpu.state), "rewritten": encode_cpu(cpu.policy, cpu.state).decode()}
    memory = decode_memory(raw, gates=gates)
    require_policy(memory, case["policy"], prefix="[memorymanager] ")
    return {
        "state": _memory_json(memory.state),
        "rewritten": encode_memory(memory.policy, memory.state).decode(),
    }


def cpu_state(case: Mapping[str, Any]) -> CpuState:
    """Read a CPU state; ``podEntries`` values are a list of CPUs or an object with ``cpuSet``."""
    return CpuState(
        default=CpuSet.parse(case["default"]),
        entries={
            PodUid(uid): {name: CpuSet.parse(cpus) for name, cpus in pod.items()}
            for uid, pod in case.get("entries", {}).items()
        },
        pod_entries={
            PodUid(uid): CpuSet.parse(pod if isinstance(pod, str) else pod["cpuSet"])
            for uid, pod in case.get("podEntries", {}).items()
        },
    )


def memory_state(case: Mapping[str, Any]) -> MemoryState:
    """Read a memory state; ``podEntries`` values are a list of blocks or one in ``memoryBlocks``."""
    return MemoryState(
        nodes={NodeId(int(node)): _node(held) for node, held in case.get("machineState", {}).items()},
        entries={
            PodUid(uid): {name: _blocks(blocks) for name, blocks in pod.items()}
            for uid, pod in case.get("entries", {}).items()
        },
        pod_entries={
            PodUid(uid): _blocks(pod if isinstance(pod, list) else pod["memoryBlocks"])
            for uid, pod in case.get("podEntries", {}).items()
        },
    )


def _node(held: Mapping[str, Any]) -> NodeMemory:
    return NodeMemory(
        assignments=held["numberOfAssignments"],
        cells=NodeMask.of(held["cells"]),
        tables={
            ResourceName(kind): MemoryTable(
                total=table["total"],
                system_reserved=table["systemReserved"],
                allocatable=table["allocatable"],
                reserved=table["reserved"],
                free=table["free"],
            )
            for kind, table in held["memoryMap"].items()
        },
    )


def _blocks(blocks: list[Any]) -> Blocks:
    return tuple(
        Block(NodeMask.of(block["numaAffinity"]), ResourceName(block["type"]), block["size"])
        for block in blocks
    )


def _memory_json(memory: MemoryState) -> Json:
    return {
        "machineState": {str(node): _node_json(held) for node, held in memory.nodes.items()},
        "entries": {
            uid: {name: _blocks_json(blocks) for name, blocks in pod.items()}
            for uid, pod in memory.entries.items()
        },
        "podEntries": {
            uid: {"memoryBlocks": _blocks_json(blocks)} for uid, blocks in memory.pod_entries.items()
        },
    }


def _node_json(held: NodeMemory) -> Json:
    return {
        "numberOfAssignments": held.assignments,
        "memoryMap": {
            kind: {
                "total": table.total,
                "systemReserved": table.system_reserved,
                "allocatable": table.allocatable,
                "reserved": table.reserved,
                "free": table.free,
            }
            for kind, table in held.tables.items()
        },
        "cells": list(held.cells),
    }


def _blocks_json(blocks: Blocks) -> list[Json]:
    return [{"numaAffinity": list(block.nodes), "type": block.type, "size": block.size} for block in blocks]
