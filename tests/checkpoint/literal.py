"""Kubelets as readers of checkpoints, written out literally: nothing here knows agent's codec.

A reader takes a file's bytes and gives its content, or raises `Refused`; `starts_with` are the checks
that follow at start. A dump is the text that a kubelet hashes.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]

LEGACY = "CPUManagerCheckpoint"


class Refused(Exception):  # noqa: N818 - what a kubelet does, not what went wrong here
    """The kubelet exits."""


def fnv(text: str) -> int:
    state = 0x811C9DC5
    for byte in text.encode():
        state = (state ^ byte) * 0x01000193 % (1 << 32)
    return state


def ids(text: str) -> list[int]:
    """The numbers of a list such as ``0-2,5``."""
    found: list[int] = []
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def compact(value: object) -> str:
    """JSON as Go writes it, for texts without ``<``, ``>`` and ``&``."""
    return json.dumps(value, separators=(",", ":"))


def texts(items: Mapping[str, str]) -> str:
    return f"map[{' '.join(f'{key}:{items[key]}' for key in sorted(items))}]"


def cpu_v1_dump(name: str, file: Json) -> str:
    return (
        f"(*state.{name}){{PolicyName:(string){file['policyName']} DefaultCPUSet:(string){file['defaultCpuSet']}"
        f" Entries:(map[string]string){texts(file.get('entries', {}))} Checksum:(checksum.Checksum)0}}"
    )


def cpu_dump(name: str, file: Json, *, pods: bool) -> str:
    sets = {
        uid: "{CPUSet:(cpuset.CPUSet){elems:(map[int]struct {})"
        f"map[{' '.join(f'{cpu}:{{}}' for cpu in ids(pod.get('cpuSet', '')))}]}}}}"
        for uid, pod in file.get("podEntries", {}).items()
    }
    return (
        f"(*state.{name}){{PolicyName:(string){file['policyName']} DefaultCPUSet:(string){file['defaultCpuSet']}"
        " Entries:(map[string]map[string]string)"
        + texts({uid: texts(pod) for uid, pod in file.get("entries", {}).items()})
        + (f" PodEntries:(state.PodCPUAssignments){texts(sets)}" if pods else "")
        + " Checksum:(checksum.Checksum)0}"
    )


def _numbers(values: list[int]) -> str:
    return f"[{' '.join(map(str, values))}]"


def _blocks(blocks: list[Json]) -> str:
    each = (
        f"{{NUMAAffinity:([]int){_numbers(block['numaAffinity'])} Type:(v1.ResourceName){block['type']}"
        f" Size:(uint64){block['size']}}}"
        for block in blocks
    )
    return f"[{' '.join(each)}]"


def _node(node: Json) -> str:
    tables = {
        kind: f"<*>{{TotalMemSize:(uint64){t['total']} SystemReserved:(uint64){t['systemReserved']}"
        f" Allocatable:(uint64){t['allocatable']} Reserved:(uint64){t['reserved']} Free:(uint64){t['free']}}}"
        for kind, t in node["memoryMap"].items()
    }
    return (
        f"<*>{{NumberOfAssignments:(int){node['numberOfAssignments']}"
        f" MemoryMap:(map[v1.ResourceName]*state.MemoryTable){texts(tables)} Cells:([]int){_numbers(node['cells'])}}}"
    )


def memory_dump(file: Json, *, pods: bool) -> str:
    entries = {
        uid: texts({name: _blocks(blocks) for name, blocks in pod.items()})
        for uid, pod in file.get("entries", {}).items()
    }
    own = {
        uid: f"{{MemoryBlocks:([]state.Block){_blocks(pod['memoryBlocks'])}}}"
        for uid, pod in file.get("podEntries", {}).items()
    }
    nodes = {node: _node(held) for node, held in file["machineState"].items()}
    return (
        f"(*state.MemoryManagerCheckpoint){{PolicyName:(string){file['policyName']}"
        f" MachineState:(state.NUMANodeMap){texts(nodes)} Entries:(state.ContainerMemoryAssignments){texts(entries)}"
        + (f" PodEntries:(state.PodMemoryAssignments){texts(own)}" if pods else "")
        + " Checksum:(checksum.Checksum)0}"
    )


def read_cpu(raw: bytes, release: str, *, gate: bool = False) -> Json:
    """What a kubelet of ``release`` makes of a `cpu_manager_state`."""
    file: Json = json.loads(raw)
    if release == "1.17":
        _require(file, "checksum", zero=True, dumps=[cpu_v1_dump("CPUManagerCheckpointV1", file)])
        return file
    if release == "1.37" and (file.get("data") or file.get("dataChecksum")):
        return _data(file, gate=gate)
    if release == "1.37" or (release == "1.36" and gate):
        real, legacy = (cpu_dump(name, file, pods=True) for name in (f"{LEGACY}V3", LEGACY))
        if file["checksum"] in (fnv(real), fnv(legacy)):
            return file if gate else _without_pods(file)
    names = [f"{LEGACY}V2", LEGACY] if release == "1.37" and not gate else [LEGACY]
    _require(file, "checksum", zero=True, dumps=[cpu_dump(name, file, pods=False) for name in names])
    return _without_pods(file)


def read_memory(raw: bytes, release: str, *, gate: bool = False) -> Json:
    """What a kubelet of ``release`` makes of a `memory_manager_state`."""
    file: Json = json.loads(raw)
    if release == "1.37" and (file.get("data") or file.get("dataChecksum")):
        return _data(file, gate=gate)
    reads_v2 = release == "1.37" or (release == "1.36" and gate)
    if reads_v2 and file["checksum"] == fnv(memory_dump(file, pods=True)):
        return file if gate else _without_pods(file)
    _require(file, "checksum", zero=True, dumps=[memory_dump(file, pods=False)])
    return _without_pods(file)


def _data(file: Json, *, gate: bool) -> Json:
    _require(file, "dataChecksum", zero=False, dumps=[f"(string){file['data']}"])
    content: Json = json.loads(file["data"])
    return content if gate else _without_pods(content)


def _without_pods(file: Json) -> Json:
    return {name: value for name, value in file.items() if name != "podEntries"}


def _require(file: Json, field: str, *, zero: bool, dumps: list[str]) -> None:
    if not (zero and file[field] == 0) and file[field] not in map(fnv, dumps):
        raise Refused(f"checkpoint is corrupted: {field} {file[field]}")


def cpus_start_with(content: Json, cpus: set[int], reserved: set[int]) -> None:
    """The static policy's checks of a state, without strict reservation."""
    default = set(ids(content["defaultCpuSet"]))
    held = [ids(cpus) for pod in content.get("entries", {}).values() for cpus in pod.values()]
    held += [ids(pod["cpuSet"]) for pod in content.get("podEntries", {}).values()]
    if not reserved <= default:
        raise Refused("not all reserved cpus are present in defaultCpuSet")
    for pod in content.get("entries", {}).values():
        for one in pod.values():
            if default & set(ids(one)):
                raise Refused(f"cpuset {one} overlaps with default cpuset")
    if default.union(*held) != cpus:
        raise Refused("current set of available CPUs doesn't match with CPUs in state")


def memory_starts_with(content: Json, machine: Json) -> None:
    """The Static policy's checks of a state; ``machine`` is a machineState without assignments."""
    expected = copy.deepcopy(machine)
    for uid, pod in sorted(content.get("entries", {}).items()):
        own = content.get("podEntries", {}).get(uid)
        for blocks in [own["memoryBlocks"]] if own else [pod[name] for name in sorted(pod)]:
            for block in blocks:
                _book(expected, block)
    if content["machineState"] != expected:
        raise Refused("the expected machine state is different from the real one")


def _book(nodes: Json, block: Json) -> None:
    size = block["size"]
    for node in block["numaAffinity"]:
        held = nodes[str(node)]
        table = held["memoryMap"][block["type"]]
        taken = min(size, table["free"])
        size -= taken
        table["reserved"] += taken
        table["free"] -= taken
        held["numberOfAssignments"] += 1
        held["cells"] = block["numaAffinity"]
