"""The fields of a v1 Pod and what kind of value each holds, and the check of an object against them.

Only objects numalet reads are listed to the last field; the rest (volumes, probes, …) is accepted
as the kind of value it is, and kept.
Source: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from enum import Enum
from typing import Any, Final

from agent.manifest.problem import Problems, child, shown


class Kind(Enum):
    """What a field holds; the value says it to people."""

    TEXT = "a string"
    FLAG = "true or false"
    WHOLE = "a whole number"
    OBJECT = "a mapping"
    LIST = "a list of mappings"
    TEXTS = "a list of strings"
    TEXT_MAP = "a mapping of strings"


Table = Mapping[str, Kind]

_MAX_GUESSED = 64
"""No field name is longer; comparing longer ones is slow and helps nobody."""


def _table(**names: str) -> Table:
    """Make a table from the names of each kind: ``text="name image"``."""
    return {name: Kind[kind.upper()] for kind, listed in names.items() for name in listed.split()}


POD: Final = _table(text="apiVersion kind", object="metadata spec status")

METADATA: Final = _table(
    text="name generateName namespace selfLink uid resourceVersion creationTimestamp deletionTimestamp",
    whole="generation deletionGracePeriodSeconds",
    text_map="labels annotations",
    list="ownerReferences managedFields",
    texts="finalizers",
)

POD_SPEC: Final = _table(
    text="restartPolicy dnsPolicy serviceAccountName serviceAccount nodeName hostname subdomain schedulerName"
    " priorityClassName runtimeClassName preemptionPolicy hostnameOverride",
    flag="automountServiceAccountToken hostNetwork hostPID hostIPC shareProcessNamespace enableServiceLinks"
    " setHostnameAsFQDN hostUsers",
    whole="terminationGracePeriodSeconds activeDeadlineSeconds priority",
    object="securityContext affinity dnsConfig overhead os resources schedulingGroup workloadRef",
    list="volumes initContainers containers ephemeralContainers imagePullSecrets tolerations hostAliases"
    " readinessGates topologySpreadConstraints schedulingGates resourceClaims",
    text_map="nodeSelector",
)

CONTAINER: Final = _table(
    text="name image workingDir restartPolicy terminationMessagePath terminationMessagePolicy imagePullPolicy",
    flag="stdin stdinOnce tty",
    object="resources livenessProbe readinessProbe startupProbe lifecycle securityContext",
    list="ports envFrom env resizePolicy restartPolicyRules volumeMounts volumeDevices",
    texts="command args",
)

EPHEMERAL_CONTAINER: Final = {**CONTAINER, "targetContainerName": Kind.TEXT}
POD_RESOURCES: Final = _table(object="requests limits")
CONTAINER_RESOURCES: Final = {**POD_RESOURCES, "claims": Kind.LIST}


def check_fields(value: Mapping[str, Any], table: Table, path: str, problems: Problems) -> None:
    """Note unknown fields, with the nearest known name, and values of the wrong kind; null is absent."""
    for name, held in value.items():
        kind = table.get(name)
        if kind is None:
            guess = "" if problems.full else _guess(name, table)
            problems.add(path, f"unknown field {shown(name)}{guess}")
        elif held is not None and type(held) is not _PYTHON.get(kind):
            _check_kind(held, kind, child(path, name), problems)


def _guess(name: str, table: Table) -> str:
    near = get_close_matches(name, table, n=1) if len(name) <= _MAX_GUESSED else []
    return f" (did you mean {shown(near[0])}?)" if near else ""


def _check_kind(value: Any, kind: Kind, path: str, problems: Problems) -> None:
    if kind is Kind.TEXT:
        _check_text(value, path, problems)
    elif kind is Kind.TEXT_MAP:
        _check_text_map(value, path, problems)
    elif kind in (Kind.LIST, Kind.TEXTS):
        _check_list(value, kind, path, problems)
    elif not isinstance(value, _PYTHON[kind]) or (kind is Kind.WHOLE and isinstance(value, bool)):
        problems.add(path, f"{shown(value)} is not {kind.value}")


_PYTHON: Final[Mapping[Kind, type]] = {
    Kind.TEXT: str,
    Kind.FLAG: bool,
    Kind.WHOLE: int,
    Kind.OBJECT: dict,
}
"""The kinds that say all about a value of their type, as most values are of."""


def _check_text(value: Any, path: str, problems: Problems) -> None:
    if not isinstance(value, str):
        hint = "" if isinstance(value, dict | list) else " (put it in quotes)"
        problems.add(path, f"{shown(value)} is not a string{hint}")


def _check_text_map(value: Any, path: str, problems: Problems) -> None:
    if not isinstance(value, dict):
        problems.add(path, f"{shown(value)} is not {Kind.TEXT_MAP.value}")
        return
    for key, held in value.items():
        if not isinstance(held, str):
            _check_text(held, child(path, key), problems)


def _check_list(value: Any, kind: Kind, path: str, problems: Problems) -> None:
    if not isinstance(value, list):
        problems.add(path, f"{shown(value)} is not {kind.value}")
        return
    for index, item in enumerate(value):
        if kind is Kind.TEXTS:
            _check_text(item, f"{path}[{index}]", problems)
        elif not isinstance(item, dict):
            problems.add(f"{path}[{index}]", f"{shown(item)} is not a mapping")
