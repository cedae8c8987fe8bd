"""What `numalet state show` prints of a stored file, as text for people and as JSON values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from agent.checkpoint.codec.gojson import RawFields
from agent.checkpoint.podrecord import MAJOR, PodRecord
from agent.checkpoint.reading import NOBODY, Checksum, CpuFile, MemoryFile, StoredFile
from agent.cli.common import gib, table
from agent.cli.statefiles import Stored, Unread
from agent.domain.idset import CpuSet
from agent.domain.pod import PodUid
from agent.domain.state import Blocks, CpuState, MemoryState
from agent.explain.sentences import blocks_json
from agent.explain.words import blocks_text, cpus_text

Json = dict[str, Any]
Names = Mapping[PodUid, str]

UNKNOWN_POD = "(container ids, V1)"
WHOLE = "(whole pod)"


def stored_text(stored: Stored) -> str:
    """All files of a path, a section each."""
    names = _names(stored)
    return "\n\n".join("\n".join(_lines(name, file, names)) for name, file in stored.files.items())


def stored_json(stored: Stored) -> list[Json]:
    """All files of a path."""
    names = _names(stored)
    return [{"file": name, **_file_json(file, names)} for name, file in stored.files.items()]


def _names(stored: Stored) -> Names:
    return {record.uid: f"{record.namespace}/{record.name}" for record in stored.records}


def _lines(name: str, file: StoredFile | Unread, names: Names) -> Iterable[str]:
    match file:
        case Unread(text):
            return f"{name}: cannot be read", f"Problem    {text}"
        case CpuFile():
            title = f"{name}: CPU manager state, V{file.version}"
            return *_head(title, file), *_cpu_lines(file.state, names)
        case MemoryFile():
            title = f"{name}: memory manager state, V{file.version}"
            return *_head(title, file), *_memory_lines(file.state, names)
        case PodRecord():
            return _record_lines(name, file)


def _head(title: str, file: CpuFile | MemoryFile) -> Iterator[str]:
    yield title
    yield f"Policy     {file.policy}"
    for checksum in file.checksums:
        yield f"Checksum   {_checksum_text(checksum)}"
    fields = ", ".join([*_field_names(file.extra.file, ""), *_field_names(file.extra.data, " (in its data)")])
    if fields:
        yield f"Unknown    {fields}: kept when it is written again"
    for problem in (file.refusal, *file.problems):
        if problem:
            yield f"Problem    {problem}"


def _checksum_text(checksum: Checksum) -> str:
    if checksum.stored == checksum.computed:
        return f"{checksum.stored} (ok)" if checksum.stored else "0 (none, which kubelets accept here)"
    return f"MISMATCH: {checksum.stored} is stored, the content has {checksum.computed}"


def _field_names(fields: RawFields, where: str) -> Iterator[str]:
    return (f"{name}{where}" for name, _ in fields)


def _cpu_lines(cpu: CpuState, names: Names) -> Iterator[str]:
    yield f"Default    {cpus_text(cpu.default)}"
    rows = [
        row
        for uid in sorted({*cpu.entries, *cpu.pod_entries})
        for row in _rows(_name(uid, names), cpu.entries.get(uid, {}), cpu.pod_entries.get(uid), _set_text)
    ]
    yield from _table(("pod", "container", "cpus"), rows)


def _memory_lines(memory: MemoryState, names: Names) -> Iterator[str]:
    nodes = [
        (node, kind, *map(gib, (t.total, t.system_reserved, t.allocatable, t.reserved, t.free)), held.cells)
        for node, held in sorted(memory.nodes.items())
        for kind, t in sorted(held.tables.items())
    ]
    sizes = ("total", "system", "allocatable", "held", "free")
    yield from _table(("numa node", "memory type", *sizes, "group"), nodes)
    rows = [
        row
        for uid in sorted({*memory.entries, *memory.pod_entries})
        for row in _rows(
            _name(uid, names), memory.entries.get(uid, {}), memory.pod_entries.get(uid), _blocks_text
        )
    ]
    yield from _table(("pod", "container", "memory"), rows)


def _name(uid: PodUid, names: Names) -> str:
    return UNKNOWN_POD if uid == NOBODY else names.get(uid, uid)


def _rows(name: str, containers: Mapping[str, Any], pod: Any, text: Any) -> Iterator[tuple[str, str, str]]:
    parts = {} if pod is None else {WHOLE: pod}
    for number, (container, held) in enumerate([*parts.items(), *sorted(containers.items())]):
        yield "" if number else name, container, text(held)


def _set_text(cpus: CpuSet) -> str:
    return str(cpus) or "-"


def _blocks_text(blocks: Blocks) -> str:
    return blocks_text(blocks) or "-"


def _table(headings: tuple[str, ...], rows: list[Any]) -> Iterator[str]:
    if rows:
        yield ""
        yield table(headings, rows)


def _record_lines(name: str, record: PodRecord) -> Iterator[str]:
    yield f"{name}: pod record, {MAJOR}.{record.minor}"
    yield f"Pod        {record.namespace}/{record.name}"
    yield f"Uid        {record.uid}"
    yield "Checksum   SHA-256 (ok)"
    yield f"Admitted   {record.admitted_at} from {record.source}, boot {record.boot_id}"
    if record.ended_at:
        yield f"Ended      {record.ended_at}: it holds nothing"
    if record.unknown:
        yield f"Unknown    {', '.join(sorted(record.unknown))}: kept when it is written again"
    containers = dict.fromkeys((*record.cpus, *record.blocks))
    rows = [
        (name, _set_text(record.cpus.get(name, CpuSet())), _blocks_text(record.blocks.get(name, ())))
        for name in containers
    ]
    if record.pod_cpus is not None or record.pod_blocks is not None:
        rows.insert(0, (WHOLE, _set_text(record.pod_cpus or CpuSet()), _blocks_text(record.pod_blocks or ())))
    yield from _table(("container", "cpus", "memory"), rows)


def _file_json(file: StoredFile | Unread, names: Names) -> Json:
    match file:
        case Unread(text):
            return {"kind": None, "problems": [text]}
        case CpuFile():
            return {**_checkpoint_json("cpu", file), "defaultCpuSet": str(file.state.default)} | {
                "pods": _pods_json(file.state.entries, file.state.pod_entries, names, "cpus", str)
            }
        case MemoryFile():
            return {**_checkpoint_json("memory", file), "numaNodes": _nodes_json(file.state)} | {
                "pods": _pods_json(file.state.entries, file.state.pod_entries, names, "memory", blocks_json)
            }
        case PodRecord():
            return _record_json(file)


def _checkpoint_json(kind: str, file: CpuFile | MemoryFile) -> Json:
    return {
        "kind": kind,
        "version": f"v{file.version}",
        "policy": file.policy,
        "checksums": [
            {
                "field": one.field,
                "stored": one.stored,
                "computed": one.computed,
                "ok": one.stored == one.computed,
            }
            for one in file.checksums
        ],
        "problems": [text for text in (file.refusal, *file.problems) if text],
        "unknownFields": {
            "file": [name for name, _ in file.extra.file],
            "data": [name for name, _ in file.extra.data],
        },
    }


def _pods_json(
    entries: Mapping[PodUid, Mapping[str, Any]],
    pods: Mapping[PodUid, Any],
    names: Names,
    key: str,
    shown: Any,
) -> list[Json]:
    return [
        {
            "uid": uid,
            "name": names.get(uid),
            key: shown(pods[uid]) if uid in pods else None,
            "containers": _containers_json(entries.get(uid, {}).items(), key, shown),
        }
        for uid in sorted({*entries, *pods})
    ]


def _containers_json(containers: Iterable[tuple[str, Any]], key: str, shown: Any) -> list[Json]:
    return [{"name": name, key: shown(held)} for name, held in sorted(containers)]


def _nodes_json(memory: MemoryState) -> list[Json]:
    return [
        {
            "id": node,
            "numberOfAssignments": held.assignments,
            "cells": list(held.cells),
            "memory": {
                kind: {
                    "total": t.total,
                    "systemReserved": t.system_reserved,
                    "allocatable": t.allocatable,
                    "reserved": t.reserved,
                    "free": t.free,
                }
                for kind, t in sorted(held.tables.items())
            },
        }
        for node, held in sorted(memory.nodes.items())
    ]


def _record_json(record: PodRecord) -> Json:
    return {
        "kind": "podRecord",
        "version": f"{MAJOR}.{record.minor}",
        "uid": record.uid,
        "name": f"{record.namespace}/{record.name}",
        "admittedAt": record.admitted_at,
        "source": record.source,
        "bootID": record.boot_id,
        "cpus": None if record.pod_cpus is None else str(record.pod_cpus),
        "memory": None if record.pod_blocks is None else blocks_json(record.pod_blocks),
        "containers": [
            {
                "name": name,
                "cpus": str(record.cpus.get(name, CpuSet())),
                "memory": blocks_json(record.blocks.get(name, ())),
            }
            for name in dict.fromkeys((*record.cpus, *record.blocks))
        ],
        "problems": [],
        "unknownFields": sorted(record.unknown),
    }
