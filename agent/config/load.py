"""From YAML text to `Config`: every problem in one error, unknown keys with the nearest known one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from agent.config import fields
from agent.config.fields import near, problems_of
from agent.config.model import Config, StateRecovery
from agent.domain.settings import CpuPolicy, Gates, MemoryPolicy, TopologyPolicy, TopologyScope
from agent.errors import ConfigError
from agent.manifest import ManifestError, decode
from agent.manifest.problem import child, shown

API_VERSION: Final = "numalet/v1"
KIND: Final = "NumaletConfiguration"

FIELDS: Final[Mapping[str, tuple[str, Callable[[Any], Any]]]] = {
    "cpuManagerPolicy": ("cpu_policy", fields.choice(CpuPolicy)),
    "cpuManagerPolicyOptions": ("cpu_options", fields.option_map),
    "cpuManagerReconcilePeriod": ("reconcile_period", fields.duration),
    "memoryManagerPolicy": ("memory_policy", fields.choice(MemoryPolicy)),
    "reservedMemory": ("reserved_memory", fields.reserved_memory),
    "topologyManagerPolicy": ("topology_policy", fields.choice(TopologyPolicy)),
    "topologyManagerScope": ("topology_scope", fields.choice(TopologyScope)),
    "topologyManagerPolicyOptions": ("topology_options", fields.option_map),
    "reservedSystemCPUs": ("reserved_cpus", fields.cpu_list),
    "kubeReserved": ("kube_reserved", fields.amounts),
    "systemReserved": ("system_reserved", fields.amounts),
    "evictionHard": ("eviction_memory", fields.eviction_memory),
    "podPidsLimit": ("pod_pids_limit", fields.pids),
    "staticPodPath": ("manifest_dir", fields.path),
    "fileCheckFrequency": ("manifest_scan_period", fields.duration),
    "cgroupRoot": ("cgroup_root", fields.path),
    "stateDir": ("state_dir", fields.path),
    "controlSocket": ("control_socket", fields.path),
    "podResourcesSocket": ("pod_resources_socket", fields.path_or_nothing),
    "podResourcesSocketMode": ("pod_resources_mode", fields.socket_mode),
    "metricsBindAddress": ("metrics_address", fields.address),
    "stateRecovery": ("state_recovery", fields.choice(StateRecovery)),
}
GATES: Final[Mapping[str, str]] = {
    "PodLevelResources": "pod_level_resources",
    "PodLevelResourceManagers": "pod_level_resource_managers",
    "CPUManagerPolicyAlphaOptions": "cpu_alpha_options",
    "CPUManagerPolicyBetaOptions": "cpu_beta_options",
}
_GATES_FIELD: Final = "featureGates"
_SPECIAL: Final = ("apiVersion", "kind", _GATES_FIELD)


def load_config(raw: bytes, source: str) -> Config:
    """Read a configuration file's bytes; raises ConfigError listing every problem with its place."""
    try:
        documents = decode(raw, source)
    except ManifestError as error:
        raise ConfigError(str(error)) from error
    if len(documents) > 1:
        raise ConfigError(f"{source}: holds {len(documents)} documents, expected one")
    values, problems = _read(documents[0] if documents else {})
    if problems:
        raise ConfigError("\n".join(f"{source}: {problem}" for problem in problems))
    return Config(**values)


def _read(document: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The values by Config's names, and every problem; a null is an absent field, as in Kubernetes."""
    values: dict[str, Any] = {}
    problems = _header(document)
    for key, value in document.items():
        if key not in FIELDS:
            if key not in _SPECIAL:
                problems.append(f"{child('$', key)}: unknown field{near(key, (*FIELDS, *_SPECIAL))}")
        elif value is not None:
            name, read = FIELDS[key]
            try:
                values[name] = read(value)
            except ValueError as error:
                problems += [f"$.{key}{place}: {text}" for place, text in problems_of(error)]
    gates, gate_problems = _gates(document.get(_GATES_FIELD))
    return {**values, "gates": gates}, [*problems, *gate_problems]


def _header(document: Mapping[str, Any]) -> list[str]:
    return [
        f'$.{key}: {shown(document[key])} is not supported (expected "{expected}")'
        for key, expected in (("apiVersion", API_VERSION), ("kind", KIND))
        if key in document and document[key] != expected
    ]


def _gates(value: Any) -> tuple[Gates, list[str]]:
    if value is None:
        return Gates(), []
    if not isinstance(value, Mapping):
        return Gates(), [f"$.{_GATES_FIELD}: must be a map of gate names to true or false"]
    chosen: dict[str, bool] = {}
    problems: list[str] = []
    for gate, on in value.items():
        place = child(f"$.{_GATES_FIELD}", gate)
        if gate not in GATES:
            problems.append(f"{place}: unknown feature gate{near(gate, GATES)}")
        elif not isinstance(on, bool):
            problems.append(f"{place}: {shown(on)} is not true or false")
        else:
            chosen[GATES[gate]] = on
    return Gates(**chosen), [*problems, *_gate_dependencies(Gates(**chosen))]


def _gate_dependencies(gates: Gates) -> list[str]:
    if gates.pod_level_resources or not gates.pod_level_resource_managers:
        return []
    needs = "needs PodLevelResources, which is off (turn both off, or PodLevelResources on)"
    return [f"$.{_GATES_FIELD}.PodLevelResourceManagers: {needs}"]
