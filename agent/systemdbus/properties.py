"""Unit properties as values, and what they are on the bus.

Times are microseconds, sizes bytes; `INFINITY` stands for no limit, as in systemd. CPU and NUMA node
sets are byte arrays there, the lowest byte first: bit *b* of byte *a* is id 8 * *a* + *b*. An empty
set means that nothing is set.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

from agent.domain.idset import CpuSet, IdSet, NodeMask

S = TypeVar("S", bound=IdSet)

PropertyValue = CpuSet | NodeMask | int | str | bool | tuple[str, ...] | tuple[int, ...]
Properties = Mapping[str, PropertyValue]

ALLOWED_CPUS: Final = "AllowedCPUs"
ALLOWED_MEMORY_NODES: Final = "AllowedMemoryNodes"
EFFECTIVE_CPUS: Final = "EffectiveCPUs"
CPU_QUOTA: Final = "CPUQuotaPerSecUSec"
CPU_QUOTA_PERIOD: Final = "CPUQuotaPeriodUSec"
CPU_WEIGHT: Final = "CPUWeight"
MEMORY_MAX: Final = "MemoryMax"
TASKS_MAX: Final = "TasksMax"
MEMORY_ACCOUNTING: Final = "MemoryAccounting"
TASKS_ACCOUNTING: Final = "TasksAccounting"
DEFAULT_DEPENDENCIES: Final = "DefaultDependencies"
DESCRIPTION: Final = "Description"
CONTROL_GROUP: Final = "ControlGroup"
ACTIVE_STATE: Final = "ActiveState"
LOAD_STATE: Final = "LoadState"

ACTIVE: Final = "active"
"""The value of ActiveState of a unit that runs, or of a slice that may hold units."""

INFINITY: Final = (1 << 64) - 1

SIGNATURES: Final[Mapping[str, str]] = {
    ALLOWED_CPUS: "ay",
    ALLOWED_MEMORY_NODES: "ay",
    EFFECTIVE_CPUS: "ay",
    "EffectiveMemoryNodes": "ay",
    CPU_QUOTA: "t",
    CPU_QUOTA_PERIOD: "t",
    CPU_WEIGHT: "t",
    MEMORY_MAX: "t",
    TASKS_MAX: "t",
    MEMORY_ACCOUNTING: "b",
    TASKS_ACCOUNTING: "b",
    CONTROL_GROUP: "s",
    ACTIVE_STATE: "s",
    "SubState": "s",
    LOAD_STATE: "s",
    "Result": "s",
    "Id": "s",
    DESCRIPTION: "s",
    "Slice": "s",
    "CollectMode": "s",
    "Delegate": "b",
    "DelegateControllers": "as",
    DEFAULT_DEPENDENCIES: "b",
    "PIDs": "au",
    "MainPID": "u",
    "DropInPaths": "as",
    "FragmentPath": "s",
}
"""The properties that can be read or set here, with their D-Bus types."""

_NODES: Final = frozenset({ALLOWED_MEMORY_NODES, "EffectiveMemoryNodes"})


def to_bytes(ids: IdSet) -> bytes:
    """A set as systemd takes it; no byte for the empty set."""
    return ids.bits.to_bytes((ids.bits.bit_length() + 7) // 8, "little")


def cpus_from_bytes(raw: bytes) -> CpuSet:
    """The CPUs that systemd shows."""
    return CpuSet(int.from_bytes(raw, "little"))


def nodes_from_bytes(raw: bytes) -> NodeMask:
    """The NUMA nodes that systemd shows."""
    return NodeMask(int.from_bytes(raw, "little"))


def on_the_bus(name: str, value: PropertyValue) -> tuple[str, object]:
    """Signature and body of a property; ValueError for a name that is not in `SIGNATURES`."""
    if name not in SIGNATURES:
        raise ValueError(f"unit property {name!r} has no known type here")
    body = to_bytes(value) if isinstance(value, IdSet) else value
    return SIGNATURES[name], list(body) if isinstance(body, tuple) else body


def from_the_bus(name: str, body: object) -> PropertyValue:
    """The value of a property in `SIGNATURES`."""
    if isinstance(body, bytes | bytearray):
        raw = bytes(body)
        return nodes_from_bytes(raw) if name in _NODES else cpus_from_bytes(raw)
    if isinstance(body, list):
        return tuple(body)
    assert isinstance(body, int | str)  # noqa: S101 - the types left in SIGNATURES
    return body
