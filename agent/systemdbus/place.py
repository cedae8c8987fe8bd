"""Where a unit's cgroup is, and what limits written as cgroup files are as unit properties; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from agent.domain.idset import CpuSet, NodeMask
from agent.systemdbus.properties import (
    ALLOWED_CPUS,
    ALLOWED_MEMORY_NODES,
    CONTROL_GROUP,
    CPU_QUOTA,
    INFINITY,
    Properties,
    PropertyValue,
)

CPU_QUOTA_PERIOD: Final = "CPUQuotaPeriodUSec"
CPU_WEIGHT: Final = "CPUWeight"
MEMORY_MAX: Final = "MemoryMax"
LIMITS: Final = (
    ALLOWED_CPUS,
    ALLOWED_MEMORY_NODES,
    CPU_QUOTA,
    CPU_QUOTA_PERIOD,
    CPU_WEIGHT,
    MEMORY_MAX,
)
"""All that `properties_of` can say."""

_SECOND: Final = 1_000_000
_NO_LIMIT: Final = "max"
_SUFFIX: Final = ".slice"
_DEFAULT_SLICE: Final = "system.slice"
_ROOT_SLICE: Final = "-.slice"


def place_of(unit: str, shown: Properties) -> str:
    """The path below the mount of a unit's cgroup: where it is, or will be when it is started."""
    now = str(shown.get(CONTROL_GROUP, "")).strip("/")
    above = slice_path(str(shown.get("Slice", "")) or _DEFAULT_SLICE)
    return now or "/".join(filter(None, (above, unit)))


def slice_path(name: str) -> str:
    """The path below the mount of a slice: each dash is a level (systemd.slice(5)).

    >>> slice_path("a-b.slice")
    'a.slice/a-b.slice'
    """
    if name == _ROOT_SLICE:
        return ""
    parts = name.removesuffix(_SUFFIX).split("-")
    return "/".join("-".join(parts[: i + 1]) + _SUFFIX for i in range(len(parts)))


def properties_of(files: Mapping[str, str]) -> Properties:
    """The properties that make systemd write these contents of cgroup files."""
    properties: dict[str, PropertyValue] = {}
    for file, text in files.items():
        match file:
            case "cpuset.cpus":
                properties[ALLOWED_CPUS] = CpuSet.parse(text)
            case "cpuset.mems":
                properties[ALLOWED_MEMORY_NODES] = NodeMask.parse(text)
            case "cpu.max":
                quota, period = text.split()
                limited = quota != _NO_LIMIT
                properties[CPU_QUOTA] = int(quota) * _SECOND // int(period) if limited else INFINITY
                properties[CPU_QUOTA_PERIOD] = int(period)
            case "cpu.weight":
                properties[CPU_WEIGHT] = int(text)
            case "memory.max":
                properties[MEMORY_MAX] = INFINITY if text == _NO_LIMIT else int(text)
            case _:
                raise ValueError(f"{file} is no unit property")
    return properties


def property_text(value: PropertyValue) -> str:
    """A property of `properties_of` as a text; `property_value` reads it."""
    return str(value)


def property_value(name: str, text: str) -> PropertyValue:
    """What `property_text` wrote. Raises ValueError."""
    if name == ALLOWED_CPUS:
        return CpuSet.parse(text)
    return NodeMask.parse(text) if name == ALLOWED_MEMORY_NODES else int(text)
