"""Reading single configuration values: YAML values in, typed values out, or every problem in them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from enum import Enum
from typing import Any, Final, TypeVar

from agent.config.address import parse_address
from agent.config.model import Amounts, Percent
from agent.domain.idset import MAX_ID, CpuSet
from agent.domain.pod import CPU, MEMORY, ResourceName, is_hugepages, is_memory_type
from agent.domain.quantity import Quantity, parse_quantity
from agent.domain.settings import Gates
from agent.domain.topology import NodeId
from agent.manifest.problem import child, shown

T = TypeVar("T")
E = TypeVar("E", bound=Enum)

MAX_SECONDS: Final = 24 * 3600.0
"""Longer periods are typing errors, and overflow epoll_wait(2)."""
MAX_PIDS: Final = 4_194_304
"""PID_MAX_LIMIT: pids.max takes no more."""

GATES: Final[Mapping[str, str]] = {
    "PodLevelResources": "pod_level_resources",
    "PodLevelResourceManagers": "pod_level_resource_managers",
    "CPUManagerPolicyAlphaOptions": "cpu_alpha_options",
    "CPUManagerPolicyBetaOptions": "cpu_beta_options",
}

_GROUP = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,30}", re.ASCII)
_SOCKET_MODE = re.compile(r"0?[0-7]{3}", re.ASCII)
_DURATION = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|ms|s|m|h)", re.ASCII)
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PERCENT = re.compile(r"(\d{1,3}(?:\.\d{1,9})?)%", re.ASCII)
_RESERVABLE = (CPU, MEMORY, ResourceName("ephemeral-storage"), ResourceName("pid"))
_SIGNALS = (
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "containerfs.available",
    "containerfs.inodesFree",
    "allocatableMemory.available",
    "pid.available",
)
_AVAILABLE = "memory.available"


class ProblemsError(ValueError):
    """Several problems in one value: (place below the value, what is wrong there)."""

    def __init__(self, problems: Sequence[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{place}: {text}" for place, text in problems))
        self.problems = tuple(problems)


def problems_of(error: ValueError) -> tuple[tuple[str, str], ...]:
    """The problems that a reader found, each with its place below the value."""
    return error.problems if isinstance(error, ProblemsError) else (("", str(error)),)


def near(key: str, known: Iterable[str]) -> str:
    """`` (did you mean "…"?)`` for a misspelt key, empty where nothing is close."""
    close = get_close_matches(key[:64], known, n=1, cutoff=0.6)
    return f' (did you mean "{close[0]}"?)' if close else ""


def text(value: Any) -> str:
    """A string."""
    if not isinstance(value, str):
        raise ValueError(f"{shown(value)} is not a string")
    return value


def flag(value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise ValueError(f"{shown(value)} is not true or false")
    return value


def group(value: Any) -> str:
    """The name of a group, or empty; whether there is one shows where it is looked up."""
    if text(value) and not _GROUP.fullmatch(value):
        raise ValueError(f"{shown(value)} is not the name of a group")
    return text(value)


def path(value: Any) -> str:
    """An absolute path."""
    if not text(value).startswith("/") or not value.isprintable():
        raise ValueError(f"{shown(value)} is not an absolute path")
    return text(value).rstrip("/") or "/"


def address(value: Any) -> str:
    """``HOST:PORT``, or empty for no server."""
    parse_address(text(value))
    return text(value)


def path_or_nothing(value: Any) -> str:
    """An absolute path, or empty."""
    return path(value) if text(value) else ""


def socket_mode(value: Any) -> int:
    """A socket's mode, as octal text or the number that YAML makes of one; its owner can always connect."""
    octal = isinstance(value, str) and _SOCKET_MODE.fullmatch(value)
    mode = int(value, 8) if octal else value
    if isinstance(mode, bool) or not isinstance(mode, int) or mode & ~0o666 or mode & 0o600 != 0o600:
        raise ValueError(f'{shown(value)} is not the mode of a socket (expected e.g. "0600" or "0660")')
    return mode


def choice(kind: type[E]) -> Callable[[Any], E]:
    """One of an enum's values."""
    values = [str(member.value) for member in kind]

    def read(value: Any) -> E:
        for member in kind:
            if member.value == value:
                return member
        known = ", ".join(f'"{name}"' for name in values)
        same = (name for name in values if name.lower() == str(value).lower())
        hint = near(next(same, str(value)), values)
        raise ValueError(f"{shown(value)} must be one of: {known}{hint}")

    return read


def pids(value: Any) -> int | None:
    """podPidsLimit: None where it is zero or less, which stands for no limit."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{shown(value)} is not a whole number")
    if value > MAX_PIDS:
        raise ValueError(f"{value} is more than the kernel allows ({MAX_PIDS})")
    return value if value > 0 else None


def duration(value: Any) -> float:
    """A Go duration such as ``10s`` or ``1m30s``, in seconds; a day at the most."""
    length = seconds(value)
    if length > MAX_SECONDS:
        raise ValueError(f"{shown(value)} must be at most 24h")
    return length


def seconds(value: Any) -> float:
    """A Go duration of any length, in seconds."""
    source = str(value)
    parts = _DURATION.findall(source)
    if not parts or "".join(number + unit for number, unit in parts) != source:
        raise ValueError(f'{shown(value)} is not a duration (expected e.g. "10s" or "1m30s")')
    length = float(sum(float(number) * _SECONDS[unit] for number, unit in parts))
    if length <= 0:
        raise ValueError(f"{shown(value)} must be longer than zero")
    return length


def cpu_list(value: Any) -> CpuSet | None:
    """A CPU list; empty means none was chosen."""
    try:
        cpus = CpuSet.parse(str(value))
    except ValueError as error:
        raise ValueError(
            f"unable to parse reservedSystemCPUs (--reserved-cpus) {value}, error: {error}"
        ) from error
    return cpus or None


def mapping(value: Any) -> Mapping[str, Any]:
    """A map with string keys."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ValueError(f"{shown(value)} is not a map")
    return value


def option_map(value: Any) -> Mapping[str, str]:
    """A map of options; booleans and numbers become the text a kubelet would see."""
    return _each(value, lambda _name, item: _option(item))


def _option(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int):
        raise ValueError(f"{shown(value)} is not a text")
    return str(value)


def _each(value: Any, read: Callable[[str, Any], T]) -> dict[str, T]:
    """Read every item of a map; raises ProblemsError that name all the bad ones."""
    done: dict[str, T] = {}
    problems: list[tuple[str, str]] = []
    for key, item in mapping(value).items():
        try:
            done[key] = read(key, item)
        except ValueError as error:
            problems += [(child("", key) + place, text) for place, text in problems_of(error)]
    if problems:
        raise ProblemsError(problems)
    return done


def quantity(value: Any) -> Quantity:
    """A quantity that is not negative."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{shown(value)} is not a quantity")
    amount = parse_quantity(str(value))
    if amount.nano < 0:
        raise ValueError(f"{shown(value)} is negative")
    return amount


def amounts(value: Any) -> Amounts:
    """kubeReserved, systemReserved: quantities of cpu, memory, huge pages; of the kubelet's others, too."""
    return {ResourceName(name): amount for name, amount in _each(value, _reservable).items()}


def _reservable(name: str, value: Any) -> Quantity:
    if name not in _RESERVABLE and not is_hugepages(ResourceName(name)):
        raise ValueError(f"cannot be reserved{near(name, _RESERVABLE)}")
    return quantity(value)


def eviction_memory(value: Any) -> Quantity | Percent:
    """evictionHard: only ``memory.available`` matters here; a percentage is of the machine's memory."""
    stated = _each(value, _threshold)
    return stated.get(_AVAILABLE, Quantity.bytes(100 << 20))


def _threshold(signal: str, value: Any) -> Quantity | Percent:
    if signal not in _SIGNALS:
        raise ValueError(f"unknown eviction signal{near(signal, _SIGNALS)}")
    share = _PERCENT.fullmatch(str(value))
    if share is None:
        return quantity(value)
    if float(share[1]) > 100:
        raise ValueError(f"{shown(value)} is more than all")
    return Percent(float(share[1]))


def reserved_memory(value: Any) -> Mapping[NodeId, Amounts]:
    """reservedMemory with the checks and the words of the kubelet's validation."""
    if not isinstance(value, list):
        raise ValueError(f"{shown(value)} is not a list of {{numaNode, limits}}")
    by_node: dict[NodeId, dict[ResourceName, Quantity]] = {}
    problems: list[tuple[str, str]] = []
    for index, entry in enumerate(value):
        try:
            node, limits = _reservation(entry)
            held = by_node.setdefault(node, {})
            for name, amount in limits.items():
                _check_reserved(node, name, amount, held)
                held[name] = amount
        except ValueError as error:
            problems += [(f"[{index}]{place}", text) for place, text in problems_of(error)]
    if problems:
        raise ProblemsError(problems)
    return by_node


def _reservation(entry: Any) -> tuple[NodeId, Amounts]:
    """One entry's NUMA node and limits."""
    names = ("numaNode", "limits")
    unknown = [key for key in mapping(entry) if key not in names]
    if unknown:
        raise ValueError(f"unknown field {shown(unknown[0])}{near(unknown[0], names)}")
    missing = [name for name in names if name not in entry]
    if missing:
        raise ValueError(f"{missing[0]} is missing (expected {{numaNode, limits}})")
    node = entry["numaNode"]
    if isinstance(node, bool) or not isinstance(node, int) or not 0 <= node <= MAX_ID:
        raise ProblemsError([(".numaNode", f"{shown(node)} is not a NUMA node")])
    try:
        limits = _each(entry["limits"], lambda _name, item: quantity(item))
    except ValueError as error:
        raise ProblemsError([(f".limits{place}", text) for place, text in problems_of(error)]) from error
    return NodeId(node), {ResourceName(name): amount for name, amount in limits.items()}


def _check_reserved(node: NodeId, name: ResourceName, amount: Quantity, seen: Amounts) -> None:
    if not is_memory_type(name):
        raise ValueError(
            f'invalid configuration: the limit type "{name}" for NUMA node {node} is not supported,'
            " only [memory hugepages-<HugePageSize>] is accepted"
        )
    if amount.nano == 0:
        raise ValueError(
            f'invalid configuration: reserved memory may not be zero for NUMA node {node} and resource "{name}"'
        )
    if name in seen:
        raise ValueError(
            "invalid configuration: the reserved memory has a duplicate value for NUMA node"
            f' {node} and resource "{name}"'
        )


def gates(value: Any) -> Gates:
    """featureGates: known names, true or false, and what one gate needs of another."""
    if not isinstance(value, Mapping):
        raise ValueError("must be a map of gate names to true or false")
    chosen = Gates(**{GATES[gate]: on for gate, on in _each(value, _gate).items()})
    if chosen.pod_level_resource_managers and not chosen.pod_level_resources:
        needs = "needs PodLevelResources, which is off (turn both off, or PodLevelResources on)"
        raise ProblemsError([(".PodLevelResourceManagers", needs)])
    return chosen


def _gate(name: str, on: Any) -> bool:
    if name not in GATES:
        raise ValueError(f"unknown feature gate{near(name, GATES)}")
    return flag(on)
