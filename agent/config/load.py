"""From YAML text to `Config`: every problem in one error, unknown keys with the nearest known one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from agent.config.fields import near, problems_of
from agent.config.model import DEFAULT_SLICE, CgroupDriver, Config
from agent.config.table import API_VERSION, FIELDS, KIND
from agent.errors import ConfigError
from agent.manifest import ManifestError, decode
from agent.manifest.problem import child, shown
from agent.manifest.yamlnodes import key_lines
from agent.systemdbus.unitname import is_top_level_slice

Problem = tuple[str, str]
"""A place such as ``$.reservedMemory[0].limits.memory``, and what is wrong there."""

_HEADER: Final = {"apiVersion": API_VERSION, "kind": KIND}


def load_config(raw: bytes, source: str) -> Config:
    """Read a configuration file's bytes; raises ConfigError listing every problem with line and place."""
    try:
        documents = decode(raw, source)
    except ManifestError as error:
        raise ConfigError(str(error)) from error
    if len(documents) > 1:
        raise ConfigError(f"{source}: holds {len(documents)} documents, expected one")
    values, problems = read_values(documents[0] if documents else {})
    if problems:
        raise ConfigError(located(raw, source, problems))
    return Config(**values)


def located(raw: bytes, source: str, problems: Iterable[Problem]) -> str:
    """A line for each problem: ``config.yaml:3: $.stateDir: …``, without number where the key is not there."""
    lines = key_lines(raw)

    def where(place: str) -> str:
        return f"{source}:{lines[place]}: {place}" if place in lines else f"{source}: {place}"

    return "\n".join(f"{where(place)}: {text}" for place, text in problems)


def read_values(document: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    """The values by Config's names, and every problem; a null is an absent field, as in Kubernetes."""
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for key, value in document.items():
        if key in _HEADER:
            problems += _header(key, value)
        elif key not in FIELDS:
            problems.append((child("$", key), f"unknown field{near(key, (*FIELDS, *_HEADER))}"))
        elif value is not None:
            field = FIELDS[key]
            try:
                values[field.name] = field.kind.read(value)
            except ValueError as error:
                problems += [(f"$.{key}{place}", text) for place, text in problems_of(error)]
    if values.get("cgroup_driver") is CgroupDriver.SYSTEMD:
        problems += _slice_root(values.setdefault("cgroup_root", DEFAULT_SLICE))
    return values, problems


def _slice_root(root: str) -> list[Problem]:
    """What systemd could not make of a cgroup root."""
    if is_top_level_slice(root.rpartition("/")[2]):
        return []
    text = (
        f"{root} is no slice at the top of the hierarchy, which cgroupDriver: systemd needs: its name ends in"
        f' .slice and has no "-" (as {DEFAULT_SLICE}, the default then)'
    )
    return [("$.cgroupRoot", text)]


def _header(key: str, value: Any) -> list[Problem]:
    expected = _HEADER[key]
    return (
        []
        if value == expected
        else [(f"$.{key}", f'{shown(value)} is not supported (expected "{expected}")')]
    )
