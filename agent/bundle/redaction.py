"""What of a pod leaves the host: what numalet decides by, and the shape of the rest. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

REDACTED: Final = "REDACTED"

RULES: Final = (
    "manifests: every text is REDACTED but apiVersion, kind, name, namespace, uid, restartPolicy, resources, overhead",
    "manifests: so are values of environment, annotations and labels (not their names), commands, images, probes",
    "manifests: annotations of numalet's own keep their values",
    "processes: their ids and the CPUs and memory they are allowed; no names, no command lines",
    "kernel command line: values of what concerns CPUs, memory and cgroups; of all others, only the names",
    "configuration: values, without the comments of the file",
)
"""What is said of it in each bundle."""

_CONTAINERS: Final = ("initContainers", "containers", "ephemeralContainers")
_OURS: Final = "numalet"
_WORD: Final = re.compile(r'(?:[^\s"]|"[^"]*"?)+')
_FOR_INIT: Final = "--"
_PARAMETERS: Final = (
    "cgroup", "default_hugepagesz", "housekeeping", "hugepages", "hugepagesz", "idle", "intel_idle", "irqaffinity",
    "isolcpus", "kthread_cpus", "maxcpus", "mem", "mitigations", "nohz", "nosmp", "nosmt", "nr_cpus", "numa",
    "possible_cpus", "processor.max_cstate", "psi", "rcu_nocb", "swapaccount", "systemd.unified_cgroup_hierarchy",
    "transparent_hugepage", "tsc",
)  # fmt: skip


def manifest(value: Mapping[str, Any]) -> dict[str, Any]:
    """A pod's manifest without what might be secret; it is decided about as the whole one is."""
    shown: dict[str, Any] = _but(value, ("apiVersion", "kind"), {"metadata": _metadata, "spec": _spec})
    return shown


def _metadata(value: Any) -> Any:
    return _but(value, ("name", "namespace", "uid"), {"annotations": _annotations})


def _annotations(value: Any) -> Any:
    return _but(value, tuple(name for name in value if _is_ours(name)) if isinstance(value, dict) else (), {})


def _spec(value: Any) -> Any:
    return _but(value, ("restartPolicy", "resources", "overhead"), dict.fromkeys(_CONTAINERS, _containers))


def _containers(value: Any) -> Any:
    if not isinstance(value, list):
        return _hidden(value)
    return [_but(item, ("name", "restartPolicy", "resources"), {"env": _environment}) for item in value]


def _environment(value: Any) -> Any:
    return [_but(item, ("name",), {}) for item in value] if isinstance(value, list) else _hidden(value)


def _but(value: Any, kept: Collection[str], parts: Mapping[str, Callable[[Any], Any]]) -> Any:
    """``value`` with its ``kept`` fields as they are, its ``parts`` made of theirs, all else hidden."""
    if not isinstance(value, Mapping):
        return _hidden(value)
    return {key: held if key in kept else parts.get(key, _hidden)(held) for key, held in value.items()}


def _hidden(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _hidden(held) for key, held in value.items()}
    if isinstance(value, list):
        return [_hidden(item) for item in value]
    return REDACTED if isinstance(value, str) else value


def _is_ours(annotation: str) -> bool:
    return annotation.partition("/")[0].split(".")[0] == _OURS


def kernel_command_line(text: str) -> str:
    """The kernel's parameters, the values only of those that concern CPUs, memory and cgroups.

    See kernel-parameters in the kernel's documentation: a value with blanks is quoted, what follows ``--`` is init's.
    """
    words = _WORD.findall(text)
    ours = words[: words.index(_FOR_INIT)] if _FOR_INIT in words else words
    rest = [_FOR_INIT, REDACTED] if len(ours) < len(words) else []
    return " ".join((*map(_parameter, ours), *rest))


def _parameter(word: str) -> str:
    name, equals, _ = word.partition("=")
    return word if not equals or name.startswith(_PARAMETERS) else f"{name}={REDACTED}"
