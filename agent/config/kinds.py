"""Kinds of values: how one is read from YAML, written back, told to people and to JSON Schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from agent.config import fields
from agent.config.model import Amounts, Percent
from agent.domain.quantity import Quantity
from agent.domain.settings import Gates
from agent.domain.topology import NodeId

Json = Mapping[str, Any]

_TEXT: Final[Json] = {"type": "string"}
_OPTION: Final[Json] = {"type": ["string", "boolean", "integer"]}
_QUANTITY: Final[Json] = {"type": ["string", "number"]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """``read`` raises ValueError (or ProblemsError); what ``write`` makes of a value, ``read`` reads again."""

    word: str
    read: Callable[[Any], Any]
    write: Callable[[Any], Any] = field(default=lambda value: value)
    schema: Json = field(default_factory=lambda: _TEXT)


def choice(kind: type[Enum]) -> Kind:
    """One of an enum's values."""
    values = [str(member.value) for member in kind]
    return Kind(
        word=" \\| ".join(f"`{value}`" for value in values),
        read=fields.choice(kind),
        write=lambda member: member.value,
        schema={"enum": values},
    )


def _duration_text(seconds: float) -> str:
    return f"{seconds:.9f}".rstrip("0").rstrip(".") + "s"


def _amounts_text(amounts: Amounts) -> dict[str, str]:
    return {str(name): str(amount) for name, amount in amounts.items()}


def _eviction_text(threshold: Quantity | Percent) -> dict[str, str]:
    text = f"{threshold.percent:.9g}%" if isinstance(threshold, Percent) else str(threshold)
    return {"memory.available": text}


def _reservations(by_node: Mapping[NodeId, Amounts]) -> list[dict[str, Any]]:
    return [
        {"numaNode": int(node), "limits": _amounts_text(limits)} for node, limits in sorted(by_node.items())
    ]


def _gates_text(gates: Gates) -> dict[str, bool]:
    return {gate: getattr(gates, name) for gate, name in fields.GATES.items()}


def _map_of(values: Json) -> Json:
    return {"type": "object", "additionalProperties": dict(values)}


FLAG: Final = Kind(word="true or false", read=fields.flag, schema={"type": "boolean"})
GROUP: Final = Kind(word="name of a group", read=fields.group)
PATH: Final = Kind(word="absolute path", read=fields.path, schema={"type": "string", "pattern": "^/"})
PATH_OR_NOTHING: Final = Kind(
    word='absolute path, or ""', read=fields.path_or_nothing, schema={"type": "string", "pattern": "^(/|$)"}
)
ADDRESS: Final = Kind(word='HOST:PORT, or ""', read=fields.address)
DURATION: Final = Kind(
    word="duration",
    read=fields.duration,
    write=_duration_text,
    schema={"type": "string", "pattern": r"^((\d+\.?\d*|\.\d+)(ns|us|µs|ms|s|m|h))+$"},
)
CPU_LIST: Final = Kind(
    word="CPU list",
    read=fields.cpu_list,
    write=lambda cpus: "" if cpus is None else str(cpus),
    schema={"type": ["string", "integer"], "pattern": r"^[0-9, -]*$"},
)
OPTIONS: Final = Kind(word="map of options", read=fields.option_map, write=dict, schema=_map_of(_OPTION))
AMOUNTS: Final = Kind(
    word="map of quantities", read=fields.amounts, write=_amounts_text, schema=_map_of(_QUANTITY)
)
EVICTION: Final = Kind(
    word="map of quantities or percentages",
    read=fields.eviction_memory,
    write=_eviction_text,
    schema=_map_of(_QUANTITY),
)
RESERVATIONS: Final = Kind(
    word="list of {numaNode, limits}",
    read=fields.reserved_memory,
    write=_reservations,
    schema={
        "type": "array",
        "items": {
            "type": "object",
            "additionalProperties": False,
            "required": ["numaNode", "limits"],
            "properties": {"numaNode": {"type": "integer", "minimum": 0}, "limits": _map_of(_QUANTITY)},
        },
    },
)
PIDS: Final = Kind(
    word="whole number",
    read=fields.pids,
    write=lambda limit: -1 if limit is None else limit,
    schema={"type": "integer", "maximum": fields.MAX_PIDS},
)
SOCKET_MODE: Final = Kind(
    word="octal mode",
    read=fields.socket_mode,
    write=lambda mode: f"{mode:04o}",
    schema={"type": ["string", "integer"]},
)
GATES: Final = Kind(
    word="map of true or false",
    read=fields.gates,
    write=_gates_text,
    schema={
        "type": "object",
        "additionalProperties": False,
        "properties": {gate: {"type": "boolean"} for gate in fields.GATES},
    },
)
