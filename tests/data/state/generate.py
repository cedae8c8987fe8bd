"""Writes the recorded state directories: `PYTHONPATH=. python tests/data/state/generate.py`."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from agent.sysfs.reader import RecordedSysfs
from agent.sysfs.recorded import save_recording
from tests.checkpoint.literal import LEGACY, compact, cpu_dump, cpu_v1_dump, fnv, memory_dump
from tests.sysfs.synthetic import files_of, machine

Json = dict[str, Any]

FOLDER = Path(__file__).parent
GIB, MIB = 1 << 30, 1 << 20
WEB = "5d0f1c0e-8a55-4d1b-9c3e-0a1b2c3d4e5f"
DB = "0123456789abcdef0123456789abcdef"
TRADING = "7b1f7f6e-1f0a-4d57-a7c5-3a5f0b8e2c11"
TIGHT = "c2a4e1d8-6b3d-4f0c-8b0e-9d2f1a7c5e33"


def table(total: int, system: int, usable: int, reserved: int = 0) -> Json:
    allocatable = usable - system
    sizes = {"total": total, "systemReserved": system, "allocatable": allocatable}
    return {**sizes, "reserved": reserved, "free": allocatable - reserved}


def nodes(*held: tuple[int, int]) -> Json:
    """The machine's two NUMA nodes, each with a number of assignments and bytes that are held."""
    return {
        str(node): {
            "numberOfAssignments": count,
            "memoryMap": {
                "hugepages-2Mi": table(16 * MIB, 0, 16 * MIB),
                "memory": table(4 * GIB, 0 if node else 100 * MIB, 4 * GIB - 16 * MIB, size),
            },
            "cells": [node],
        }
        for node, (count, size) in enumerate(held)
    }


def memory(node: int, mib: int) -> list[Json]:
    return [{"numaAffinity": [node], "type": "memory", "size": mib * MIB}]


ORDINARY_CPUS: Json = {DB: {"main": "3-4"}, WEB: {"main": "1-2"}}
ORDINARY: tuple[Json, Json] = (
    {"policyName": "static", "defaultCpuSet": "0,5-11", "entries": ORDINARY_CPUS},
    {
        "policyName": "Static",
        "machineState": nodes((2, GIB + GIB // 2), (0, 0)),
        "entries": {DB: {"main": memory(0, 512)}, WEB: {"main": memory(0, 1024)}},
    },
)
POD_LEVEL: tuple[Json, Json] = (
    {
        "policyName": "static",
        "defaultCpuSet": "0,5,10-11",
        "entries": {
            WEB: {"main": "1-2"},
            TRADING: {"engine": "6-7", "logger": "8-9", "metrics": "8-9", "setup": "6"},
            TIGHT: {"solver": "3"},
        },
        "podEntries": {TRADING: {"cpuSet": "6-9"}, TIGHT: {"cpuSet": "3-4"}},
    },
    {
        "policyName": "Static",
        "machineState": nodes((2, 2 * GIB), (1, 2 * GIB)),
        "entries": {
            WEB: {"main": memory(0, 1024)},
            TRADING: {
                "engine": memory(1, 1024),
                "logger": memory(1, 1024),
                "metrics": memory(1, 1024),
                "setup": memory(1, 256),
            },
            TIGHT: {"solver": memory(0, 512)},
        },
        "podEntries": {TRADING: {"memoryBlocks": memory(1, 2048)}, TIGHT: {"memoryBlocks": memory(0, 1024)}},
    },
)


def with_data(content: Json, inline: Json, **unknown: object) -> str:
    data = compact({**content, **unknown})
    return compact({**inline, "data": data, "dataChecksum": fnv(f"(string){data}")})


def cpu_file(content: Json, version: int, **unknown: object) -> str:
    if version == 4:
        return with_data(content, {**content, "checksum": 0}, **unknown)
    return compact({**content, "checksum": fnv(cpu_dump(LEGACY, content, pods=version == 3))})


def cpu_v1_file() -> str:
    content = {**ORDINARY[0], "entries": {"c-db-main": "3-4", "c-web-main": "1-2"}}
    return compact({**content, "checksum": fnv(cpu_v1_dump("CPUManagerCheckpointV1", content))})


def memory_file(content: Json, version: int) -> str:
    if version == 2:
        return compact({**content, "checksum": fnv(memory_dump(content, pods=True))})
    plain = {name: value for name, value in content.items() if name != "podEntries"}
    inline = {**plain, "checksum": fnv(memory_dump(plain, pods=False))}
    return with_data(content, inline) if version == 3 else compact(inline)


def resources(cpu: str, size: str) -> Json:
    both = {"cpu": cpu, "memory": size}
    return {"resources": {"requests": both, "limits": both}}


def pod(name: str, uid: str, containers: Json, budget: Json | None = None, init: Json | None = None) -> Json:
    """A pod as the API server prints it."""
    every = {**(init or {}), **containers}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "prod", "uid": uid},
        "spec": {
            "initContainers": [{"name": key, **stated} for key, stated in (init or {}).items()],
            "containers": [{"name": key, **stated} for key, stated in containers.items()],
            **(budget or {}),
        },
        "status": {
            "phase": "Running",
            "containerStatuses": [
                {"name": key, "containerID": f"containerd://c-{name}-{key}"} for key in every
            ],
        },
    }


def mirrored(static: Json) -> Json:
    """The mirror of a static pod: the server gave it another uid."""
    metadata = static["metadata"]
    annotations = {f"kubernetes.io/config.{key}": metadata["uid"] for key in ("hash", "mirror")}
    return {
        **static,
        "metadata": {**metadata, "uid": "f00dfeed-0000-4000-8000-0", "annotations": annotations},
    }


PODS: dict[str, Json] = {
    WEB: pod("web", WEB, {"main": resources("2", "1Gi")}),
    DB: pod("db", DB, {"main": resources("2", "512Mi")}),
    TRADING: pod(
        "trading",
        TRADING,
        {"engine": resources("2", "1Gi"), "logger": {}, "metrics": {}},
        budget=resources("4", "2Gi"),
        init={"setup": resources("1", "256Mi")},
    ),
    TIGHT: pod("tight", TIGHT, {"solver": resources("1", "512Mi")}, budget=resources("2", "1Gi")),
}


def record(uid: str, version: str, **unknown: object) -> str:
    """One of numalet's own pod records, of a pod of `POD_LEVEL`."""
    cpu, held = POD_LEVEL
    own_cpus = cpu["podEntries"].get(uid)
    own_memory = held["podEntries"].get(uid)
    shown = {name: [shorter(b) for b in blocks] for name, blocks in held["entries"][uid].items()}
    document = {
        "version": version,
        "uid": uid,
        "namespace": "prod",
        "name": PODS[uid]["metadata"]["name"],
        "manifest": {name: value for name, value in PODS[uid].items() if name != "status"},
        "cpu": {"containers": cpu["entries"][uid]} | ({"pod": own_cpus["cpuSet"]} if own_cpus else {}),
        "memory": {"containers": shown}
        | ({"pod": [shorter(b) for b in own_memory["memoryBlocks"]]} if own_memory else {}),
        "gates": dict.fromkeys(
            (
                "PodLevelResources",
                "PodLevelResourceManagers",
                "CPUManagerPolicyAlphaOptions",
                "CPUManagerPolicyBetaOptions",
            ),
            True,
        ),
        "bootID": "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
        "admittedAt": "2026-01-02T03:04:05.000000Z",
        "source": "file:pods.yaml",
        **unknown,
    }
    digest = hashlib.sha256(canonical(document)).hexdigest()
    return canonical({**document, "sha256": digest}).decode() + "\n"


def shorter(block: Json) -> Json:
    return {"nodes": block["numaAffinity"], "type": block["type"], "size": block["size"]}


def canonical(document: Json) -> bytes:
    return json.dumps(document, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()


def directory(name: str, cpu: str, held: str | None) -> dict[str, str]:
    files = {f"{name}/cpu_manager_state": cpu}
    return files | ({f"{name}/memory_manager_state": held} if held else {})


def files() -> dict[str, str]:
    """Every file but the machine, by its path in this folder."""
    (cpu, held), (pod_cpu, pod_held) = ORDINARY, POD_LEVEL
    items = [PODS[WEB], mirrored(PODS[DB]), PODS[TRADING], PODS[TIGHT]]
    newer = cpu_file(pod_cpu, 4, allocations={"x": [1]})
    return {
        **directory("kubelet-1.17", cpu_v1_file(), None),
        **directory("kubelet-1.20", cpu_file(cpu, 2), None),
        **directory("kubelet-1.35", cpu_file(cpu, 2), memory_file(held, 1)),
        **directory("kubelet-1.36-gate-off", cpu_file(cpu, 2), memory_file(held, 1)),
        **directory("kubelet-1.36-gate-on", cpu_file(pod_cpu, 3), memory_file(pod_held, 2)),
        **directory("kubelet-1.37-gate-off", cpu_file(cpu, 4), memory_file(held, 3)),
        **directory("kubelet-1.37-gate-on", cpu_file(pod_cpu, 4), memory_file(pod_held, 3)),
        **directory("numalet-1.0", cpu_file(pod_cpu, 4), memory_file(pod_held, 3)),
        **{f"numalet-1.0/pods/{uid}.json": record(uid, "1.0") for uid in (WEB, TRADING, TIGHT)},
        **directory("numalet-1.7", newer, memory_file(pod_held, 3)),
        **{f"numalet-1.7/pods/{uid}.json": record(uid, "1.7", novelty=[1]) for uid in (WEB, TRADING, TIGHT)},
        "pods.json": json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=1) + "\n",
    }


def write() -> None:
    topology = machine(sockets=2, nodes=1, cores=6, threads=1)
    save_recording(RecordedSysfs("twelve", files_of(topology)), FOLDER / "machine.json.xz")
    for name, text in files().items():
        path = FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


if __name__ == "__main__":
    write()
