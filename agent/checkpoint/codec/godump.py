"""The text of a Go object that the kubelet hashes: spew's ``%#v`` with sorted keys.

A field reads ``Name:(type)value``, a map ``map[k:v k:v]``, a slice ``[a b]``, a pointer in a map
``<*>{…}``, a nil map or slice ``<nil>``; strings stand bare. Map items are given as pieces that
begin with a blank, so that a writer can keep those that did not change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from agent.domain.idset import CpuSet

NIL = "<nil>"
Items = Sequence[bytes]
"""The items of a map, each with a blank before it, in the order of their keys; a piece may be several."""

Texts = Mapping[str, str]
Numbers = Iterable[int]

_CHECKSUM = b" Checksum:(checksum.Checksum)0}"
_TABLE = "<*>{{TotalMemSize:(uint64){} SystemReserved:(uint64){} Allocatable:(uint64){} Reserved:(uint64){} Free:(uint64){}}}"


def cpu_dump(
    type_name: str, policy: str, default: str, entries: Items | None, pods: Items | None
) -> list[bytes]:
    """CPU V2 (``pods`` None) and V3; ``entries`` None is a nil map."""
    dump = [
        f"(*state.{type_name}){{PolicyName:(string){policy} DefaultCPUSet:(string){default}"
        " Entries:(map[string]map[string]string)".encode(),
        *_map(entries),
    ]
    if pods is not None:
        dump += [b" PodEntries:(state.PodCPUAssignments)", *_map(pods)]
    return [*dump, _CHECKSUM]


def cpu_v1_dump(type_name: str, policy: str, default: str, entries: Texts) -> list[bytes]:
    """CPU V1, whose entries go by container id."""
    return [
        f"(*state.{type_name}){{PolicyName:(string){policy} DefaultCPUSet:(string){default}"
        f" Entries:(map[string]string){_text_map(entries)}".encode(),
        _CHECKSUM,
    ]


def cpu_entry(uid: str, texts: Texts | None) -> bytes:
    """One pod's item of the entries."""
    return f" {uid}:{NIL if texts is None else _text_map(texts)}".encode()


def cpu_pod_entry(uid: str, cpus: CpuSet) -> bytes:
    """One item of the pod entries; a set is a Go map from CPU to nothing."""
    elements = " ".join(f"{cpu}:{{}}" for cpu in cpus)
    return f" {uid}:{{CPUSet:(cpuset.CPUSet){{elems:(map[int]struct {{}})map[{elements}]}}}}".encode()


def memory_dump(policy: str, nodes: Items | None, entries: Items | None, pods: Items | None) -> list[bytes]:
    """Memory V1 (``pods`` None) and V2."""
    dump = [
        f"(*state.MemoryManagerCheckpoint){{PolicyName:(string){policy} MachineState:(state.NUMANodeMap)".encode(),
        *_map(nodes),
        b" Entries:(state.ContainerMemoryAssignments)",
        *_map(entries),
    ]
    if pods is not None:
        dump += [b" PodEntries:(state.PodMemoryAssignments)", *_map(pods)]
    return [*dump, _CHECKSUM]


def memory_node(
    node: int, assignments: int, tables: Mapping[str, Sequence[int]] | None, cells: Numbers | None
) -> bytes:
    """One NUMA node's item; a table is its five numbers in the order of the file."""
    memory = NIL
    if tables is not None:
        memory = f"map[{' '.join(f'{kind}:{_TABLE.format(*tables[kind])}' for kind in sorted(tables))}]"
    return (
        f" {node}:<*>{{NumberOfAssignments:(int){assignments}"
        f" MemoryMap:(map[v1.ResourceName]*state.MemoryTable){memory} Cells:([]int){_ints(cells)}}}"
    ).encode()


def memory_entry(uid: str, containers: Mapping[str, str] | None) -> bytes:
    """One pod's item of the entries; the values are `memory_blocks`."""
    return cpu_entry(uid, containers)


def memory_pod_entry(uid: str, blocks: str) -> bytes:
    """One item of the pod entries, from `memory_blocks`."""
    return f" {uid}:{{MemoryBlocks:([]state.Block){blocks}}}".encode()


def memory_blocks(blocks: Iterable[tuple[Numbers | None, str, int]] | None) -> str:
    """Blocks as (NUMA nodes, type, bytes)."""
    if blocks is None:
        return NIL
    return f"[{' '.join(_block(*block) for block in blocks)}]"


def _block(nodes: Numbers | None, kind: str, size: int) -> str:
    return f"{{NUMAAffinity:([]int){_ints(nodes)} Type:(v1.ResourceName){kind} Size:(uint64){size}}}"


def _ints(numbers: Numbers | None) -> str:
    return NIL if numbers is None else f"[{' '.join(map(str, numbers))}]"


def _map(items: Items | None) -> list[bytes]:
    if items is None:
        return [NIL.encode()]
    return [b"map[" + items[0][1:], *items[1:], b"]"] if items else [b"map[]"]


def _text_map(texts: Texts) -> str:
    return f"map[{' '.join(f'{key}:{texts[key]}' for key in sorted(texts))}]"
