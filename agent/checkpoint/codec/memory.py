"""`memory_manager_state`, versions 1 to 3.

V3 is V1 with its own checksum, so that any older kubelet reads it, and the content once more, pod
entries included, as a string with a checksum of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from fnv_hash_fast import fnv1a_32

from agent.checkpoint.codec.file import (
    NO_EXTRA,
    Decoded,
    Extra,
    Piece,
    has_data,
    open_data,
    piece,
    raw_fields,
    section,
    verify,
    with_data,
)
from agent.checkpoint.codec.godump import (
    memory_blocks,
    memory_dump,
    memory_entry,
    memory_node,
    memory_pod_entry,
)
from agent.checkpoint.codec.gojson import (
    NO_FIELDS,
    Fields,
    as_map,
    fold,
    folded,
    map_field,
    quote,
    read_struct,
    text_field,
    text_from,
    uint_field,
    wrong,
)
from agent.checkpoint.codec.memo import Memo
from agent.domain.idset import MAX_ID, NodeMask
from agent.domain.pod import PodUid, ResourceName
from agent.domain.settings import Gates
from agent.domain.state import Block, Blocks, MemoryState, MemoryTable, NodeMemory
from agent.domain.topology import NodeId
from agent.errors import StateError

LATEST: Final = 3

_DATA_FIELDS = folded("policyName", "machineState", "entries", "podEntries")
_FILE_FIELDS = {**_DATA_FIELDS, **folded("checksum", "data", "dataChecksum")}
_NODE_FIELDS = folded("numberOfAssignments", "memoryMap", "cells")
_TABLE_FIELDS = folded("total", "systemReserved", "allocatable", "reserved", "free")
_BLOCK_FIELDS = folded("numaAffinity", "type", "size")
_POD_FIELDS = folded("memoryBlocks")
_NODE_ID = re.compile(r"[+-]?\d{1,18}", re.ASCII)


def encode_memory(
    policy: str,
    state: MemoryState,
    *,
    version: int = LATEST,
    extra: Extra = NO_EXTRA,
    memo: Memo | None = None,
) -> bytes:
    """Write any version. V1 has no place for pod entries: they are left out.

    A ``memo`` kept from write to write makes the cost that of what changed.
    """
    memo = memo or Memo()
    nodes = ",".join(f'"{node}":{_node_json(state.nodes[node])}' for node in sorted(state.nodes, key=str))
    head = f'{{"policyName":{quote(policy)},"machineState":{{{nodes}}}'
    text, quoted, dumps = memo.joined("entries", state.entries, _entry, 3)
    body = [piece(head), *section("entries", Piece(text, quoted))]
    pods = section("podEntries", Piece(*memo.joined("podEntries", state.pod_entries, _pod_entry_json, 2)))
    dump = _state_dump(policy, state, [dumps] if dumps else [], with_pods=version == 2)
    checksum = fnv1a_32(b"".join(dump))
    if version == LATEST:
        rest = [*pods, piece(f"{raw_fields(extra.data)}}}")]
        return with_data(body, checksum, rest, extra.file)
    tail = f',"checksum":{checksum}{raw_fields(extra.file)}}}'
    whole = [*body, *pods] if version == 2 else body
    return b"".join((*(part.text for part in whole), tail.encode()))


def decode_memory(raw: bytes, *, gates: Gates) -> Decoded[MemoryState]:
    """Read any version as the kubelet does; with PodLevelResourceManagers off, pod entries are ignored.

    Raises StateError in the kubelet's words, CorruptCheckpointError for a wrong checksum.
    """
    file = read_struct(text_from(raw), _FILE_FIELDS)
    if has_data(file.known):
        _v1(file.known)  # types are checked here too, values are not used
        data = open_data(file.known, _DATA_FIELDS, "could not load v3 checkpoint: ", "memory manager")
        content, version, extra = _v2(data.known), 3, Extra(file=file.extra, data=data.extra)
        verified = True
    else:
        content, version = _read_legacy(file.known)
        extra, verified = Extra(file=file.extra), uint_field(file.known, "checksum") != 0
    state = _state(content, with_pods=gates.pod_level_resource_managers)
    return Decoded(policy=content.policy, state=state, version=version, extra=extra, verified=verified)


def _read_legacy(known: Fields) -> tuple[_Content, int]:
    stored = uint_field(known, "checksum")
    try:
        content = _v2(known)
        verify(stored, _dump(content))
    except StateError:
        content = _v1(known)
        if stored:
            verify(stored, _dump(content))
        return content, 1
    return content, 2


_RawBlock = tuple[list[int] | None, str, int]
_RawPod = Mapping[str, list[_RawBlock] | None] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _RawNode:
    assignments: int
    tables: Mapping[str, tuple[int, ...]] | None
    cells: list[int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Content:
    """The content in the file's own order, as it is hashed; None is a nil map or slice.

    ``pods`` is None for V1, which has none.
    """

    policy: str
    nodes: Mapping[int, _RawNode] | None
    entries: Mapping[str, _RawPod] | None
    pods: Mapping[str, list[_RawBlock] | None] | None


def _v1(known: Fields) -> _Content:
    nodes, entries = map_field(known, "machineState"), map_field(known, "entries")
    return _Content(
        policy=text_field(known, "policyName"),
        nodes=None if nodes is None else {_node_id(key): _raw_node(node) for key, node in nodes.items()},
        entries=None if entries is None else {uid: _raw_pod(pod) for uid, pod in entries.items()},
        pods=None,
    )


def _v2(known: Fields) -> _Content:
    pods = map_field(known, "podEntries") or NO_FIELDS
    return replace(_v1(known), pods={uid: _raw_pod_entry(pod) for uid, pod in pods.items()})


def _node_id(key: str) -> int:
    if not _NODE_ID.fullmatch(key):
        wrong("machineState", "NUMA node numbers as keys", key)
    return int(key)


def _raw_node(value: object) -> _RawNode:
    node = fold(as_map(value, "machineState"), _NODE_FIELDS)
    tables = map_field(node, "memoryMap")
    return _RawNode(
        assignments=uint_field(node, "numberOfAssignments"),
        tables=None if tables is None else {kind: _raw_table(table) for kind, table in tables.items()},
        cells=_ids(node.get("cells"), "cells"),
    )


def _raw_table(value: object) -> tuple[int, ...]:
    table = fold(as_map(value, "memoryMap"), _TABLE_FIELDS)
    return tuple(uint_field(table, name) for name in _TABLE_FIELDS.values())


def _raw_pod(value: object) -> _RawPod:
    if value is None:
        return None
    return {name: _raw_blocks(blocks, "entries") for name, blocks in as_map(value, "entries").items()}


def _raw_pod_entry(value: object) -> list[_RawBlock] | None:
    pod = fold(as_map(value or {}, "podEntries"), _POD_FIELDS)
    return _raw_blocks(pod.get("memoryBlocks"), "memoryBlocks")


def _raw_blocks(value: object, name: str) -> list[_RawBlock] | None:
    if value is None:
        return None
    if not isinstance(value, list):
        wrong(name, "an array", value)
    return [_raw_block(fold(as_map(block, name), _BLOCK_FIELDS)) for block in value]


def _raw_block(block: Fields) -> _RawBlock:
    return (
        _ids(block.get("numaAffinity"), "numaAffinity"),
        text_field(block, "type"),
        uint_field(block, "size"),
    )


def _ids(value: object, name: str) -> list[int] | None:
    if value is None:
        return None
    if not isinstance(value, list) or any(type(node) is not int or not 0 <= node <= MAX_ID for node in value):
        wrong(name, "an array of NUMA nodes", value)
    return value


def _state(content: _Content, *, with_pods: bool) -> MemoryState:
    pods = content.pods if with_pods and content.pods else {}
    return MemoryState(
        nodes={NodeId(node): _node(raw) for node, raw in (content.nodes or {}).items()},
        entries={
            PodUid(uid): {name: _blocks(blocks) for name, blocks in (pod or {}).items()}
            for uid, pod in (content.entries or {}).items()
        },
        pod_entries={PodUid(uid): _blocks(blocks) for uid, blocks in pods.items()},
    )


def _node(raw: _RawNode) -> NodeMemory:
    return NodeMemory(
        assignments=raw.assignments,
        cells=NodeMask.of(raw.cells or ()),
        tables={ResourceName(kind): _table(*numbers) for kind, numbers in (raw.tables or {}).items()},
    )


def _table(total: int, system_reserved: int, allocatable: int, reserved: int, free: int) -> MemoryTable:
    return MemoryTable(
        total=total,
        system_reserved=system_reserved,
        allocatable=allocatable,
        reserved=reserved,
        free=free,
    )


def _blocks(raw: list[_RawBlock] | None) -> Blocks:
    return tuple(Block(NodeMask.of(nodes or ()), ResourceName(kind), size) for nodes, kind, size in raw or ())


def _dump(content: _Content) -> list[bytes]:
    """What is hashed for a file that was read."""
    nodes, entries, pods = content.nodes, content.entries, content.pods
    return memory_dump(
        content.policy,
        None
        if nodes is None
        else [
            memory_node(node, nodes[node].assignments, nodes[node].tables, nodes[node].cells)
            for node in sorted(nodes)
        ],
        None if entries is None else [_raw_entry_dump(uid, entries[uid]) for uid in sorted(entries)],
        None if pods is None else [memory_pod_entry(uid, memory_blocks(pods[uid])) for uid in sorted(pods)],
    )


def _raw_entry_dump(uid: str, pod: _RawPod) -> bytes:
    return memory_entry(
        uid, None if pod is None else {name: memory_blocks(blocks) for name, blocks in pod.items()}
    )


def _state_dump(policy: str, state: MemoryState, entries: list[bytes], *, with_pods: bool) -> list[bytes]:
    """What is hashed for a file that is written."""
    return memory_dump(
        policy,
        [
            memory_node(
                node, held.assignments, {kind: _numbers(t) for kind, t in held.tables.items()}, held.cells
            )
            for node, held in sorted(state.nodes.items())
        ],
        entries,
        [_pod_entry_dump(uid, blocks) for uid, blocks in sorted(state.pod_entries.items())]
        if with_pods
        else None,
    )


def _numbers(table: MemoryTable) -> tuple[int, ...]:
    return table.total, table.system_reserved, table.allocatable, table.reserved, table.free


def _entry(uid: PodUid, pod: Mapping[str, Blocks]) -> tuple[bytes, bytes, bytes]:
    """A pod's item of the entries: in the file, within a string there, and as it is hashed."""
    containers = ",".join(f"{quote(name)}:{_blocks_json(pod[name])}" for name in sorted(pod))
    dump = memory_entry(uid, {name: _blocks_dump(blocks) for name, blocks in pod.items()})
    return *piece(f",{quote(uid)}:{{{containers}}}"), dump


def _pod_entry_dump(uid: PodUid, blocks: Blocks) -> bytes:
    # No blocks are left out of the JSON, so whoever reads it hashes a nil slice.
    return memory_pod_entry(uid, _blocks_dump(blocks) if blocks else memory_blocks(None))


def _blocks_dump(blocks: Blocks) -> str:
    return memory_blocks((block.nodes, block.type, block.size) for block in blocks)


def _node_json(node: NodeMemory) -> str:
    tables = ",".join(f"{quote(kind)}:{_table_json(node.tables[kind])}" for kind in sorted(node.tables))
    return f'{{"numberOfAssignments":{node.assignments},"memoryMap":{{{tables}}},"cells":{_ids_json(node.cells)}}}'


def _table_json(table: MemoryTable) -> str:
    fields = zip(_TABLE_FIELDS.values(), _numbers(table), strict=True)
    return "{" + ",".join(f'"{name}":{number}' for name, number in fields) + "}"


def _pod_entry_json(uid: PodUid, blocks: Blocks) -> Piece:
    entry = f'{{"memoryBlocks":{_blocks_json(blocks)}}}' if blocks else "{}"
    return piece(f",{quote(uid)}:{entry}")


def _blocks_json(blocks: Blocks) -> str:
    return "[" + ",".join(map(_block_json, blocks)) + "]"


def _block_json(block: Block) -> str:
    return f'{{"numaAffinity":{_ids_json(block.nodes)},"type":{quote(block.type)},"size":{block.size}}}'


def _ids_json(nodes: NodeMask) -> str:
    return f"[{','.join(map(str, nodes))}]"
