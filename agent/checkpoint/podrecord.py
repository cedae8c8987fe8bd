"""`pods/<uid>.json`: the admitted pod and what was decided for it, as numalet keeps it.

The kubelet has no such file; a lost or damaged checkpoint is rebuilt from these. The bytes are a
pure function of the record: sorted keys, no blanks, a SHA-256 over all of it. Fields a newer minor
version added are carried in ``unknown`` and written back, so that a downgrade loses nothing.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NoReturn, TypeVar

from agent.domain.idset import NO_CPUS, CpuSet, NodeMask, union
from agent.domain.lifecycle import ContainerLife, ContainerState, Lives
from agent.domain.pod import Pod, PodUid, ResourceName
from agent.domain.settings import Gates
from agent.domain.state import Block, Blocks, ContainerCpus, NodeState
from agent.errors import StateError

MAJOR: Final = 1
"""Raised only when an older agent would misread a record; it refuses to."""

MINOR: Final = 1
"""1.1 added ``lifecycle``; a record without it is as 1.0 wrote it."""

V = TypeVar("V")
Json = Mapping[str, Any]

_DIGEST = "sha256"
_ENCODER = json.JSONEncoder(sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})", re.ASCII)
_PART = ("containers", "pod")
_GATES: Final = {
    "PodLevelResources": "pod_level_resources",
    "PodLevelResourceManagers": "pod_level_resource_managers",
    "CPUManagerPolicyAlphaOptions": "cpu_alpha_options",
    "CPUManagerPolicyBetaOptions": "cpu_beta_options",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRecord:
    """One admitted pod. ``pod_cpus`` and ``pod_blocks`` None: it was not allocated as one.

    ``boot_id`` and ``admitted_at`` (RFC 3339) say when, ``source`` from where (a manifest file),
    ``gates`` under which rules. ``lives`` is what its containers did, of the same boot; ``ended_at``
    is when its work was done, empty while it holds resources (since 1.1). ``minor`` is the version of the newest agent that wrote the record.
    """

    uid: PodUid
    namespace: str
    name: str
    manifest: Json
    cpus: ContainerCpus = field(default_factory=dict)
    pod_cpus: CpuSet | None = None
    blocks: Mapping[str, Blocks] = field(default_factory=dict)
    pod_blocks: Blocks | None = None
    gates: Gates = field(default_factory=Gates)
    boot_id: str
    admitted_at: str
    source: str
    lives: Lives = field(default_factory=dict)
    ended_at: str = ""
    minor: int = 0
    unknown: Json = field(default_factory=dict)

    @property
    def held(self) -> CpuSet:
        """All the CPUs the pod holds."""
        return union(self.cpus.values()) | (self.pod_cpus or NO_CPUS)


def record_of(
    pod: Pod, state: NodeState, *, gates: Gates, boot_id: str, admitted_at: str, source: str
) -> PodRecord:
    """The record of ``pod``, whose allocations are in ``state``."""
    return PodRecord(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        manifest=pod.manifest,
        cpus=state.cpu.entries.get(pod.uid, {}),
        pod_cpus=state.cpu.pod_entries.get(pod.uid),
        blocks=state.memory.entries.get(pod.uid, {}),
        pod_blocks=state.memory.pod_entries.get(pod.uid),
        gates=gates,
        boot_id=boot_id,
        admitted_at=admitted_at,
        source=source,
    )


def encode_record(record: PodRecord) -> bytes:
    """Write a record. Raises StateError if the manifest is not JSON."""
    document = _over(record.unknown, _known(record))
    return _canonical({**document, _DIGEST: _digest(document)}) + b"\n"


def decode_record(raw: bytes) -> PodRecord:
    """Read a record; raises StateError if it is damaged, incomplete or of a newer major version."""
    document = _parsed(raw)
    minor = _minor(document)
    stored = document.pop(_DIGEST, None)
    computed = _digest(document)
    if stored != computed:
        raise StateError(
            "pod record is corrupted",
            hint=f"the stored SHA-256 is {stored}, the content's is {computed}",
        )
    try:
        record = _record(document, minor)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StateError(f"pod record is incomplete: {type(error).__name__}: {error}") from error
    return record


def _known(record: PodRecord) -> Json:
    lifecycle = _lifecycle_json(record)
    return {
        "version": f"{MAJOR}.{max(record.minor, MINOR if lifecycle else 0)}",
        "uid": record.uid,
        "namespace": record.namespace,
        "name": record.name,
        "manifest": record.manifest,
        "cpu": _part({name: str(cpus) for name, cpus in record.cpus.items()}, record.pod_cpus, str),
        "memory": _part(
            {name: _blocks_json(blocks) for name, blocks in record.blocks.items()},
            record.pod_blocks,
            _blocks_json,
        ),
        "gates": {name: getattr(record.gates, attribute) for name, attribute in _GATES.items()},
        "bootID": record.boot_id,
        "admittedAt": record.admitted_at,
        "source": record.source,
        **lifecycle,
    }


def _lifecycle_json(record: PodRecord) -> Json:
    lives = {
        name: {"state": life.state.value, "since": life.since, "restarts": life.restarts}
        for name, life in record.lives.items()
    }
    part = ({"containers": lives} if lives else {}) | (
        {"endedAt": record.ended_at} if record.ended_at else {}
    )
    return {"lifecycle": part} if part else {}


def _life(stored: Json) -> ContainerLife:
    return ContainerLife(
        state=ContainerState(stored["state"]), since=_text(stored, "since"), restarts=int(stored["restarts"])
    )


def _part(containers: Json, pod: V | None, render: Callable[[V], Any]) -> Json:
    return {"containers": containers} | ({} if pod is None else {"pod": render(pod)})


def _record(document: Json, minor: int) -> PodRecord:
    cpu, memory, gates = document["cpu"], document["memory"], document["gates"]
    lifecycle = document.get("lifecycle", {})
    record = PodRecord(
        uid=PodUid(_text(document, "uid")),
        namespace=_text(document, "namespace"),
        name=_text(document, "name"),
        manifest=dict(document["manifest"]),
        cpus={name: CpuSet.parse(cpus) for name, cpus in cpu["containers"].items()},
        pod_cpus=CpuSet.parse(cpu["pod"]) if "pod" in cpu else None,
        blocks={name: _blocks(blocks) for name, blocks in memory["containers"].items()},
        pod_blocks=_blocks(memory["pod"]) if "pod" in memory else None,
        gates=Gates(**{attribute: gates[name] is True for name, attribute in _GATES.items()}),
        boot_id=_text(document, "bootID"),
        admitted_at=_text(document, "admittedAt"),
        source=_text(document, "source"),
        lives={name: _life(life) for name, life in lifecycle.get("containers", {}).items()},
        ended_at=_text(lifecycle, "endedAt") if "endedAt" in lifecycle else "",
        minor=minor,
    )
    return _with_unknown(record, document)


def _with_unknown(record: PodRecord, document: Json) -> PodRecord:
    """Add what this version does not know: at the top, in the two resources and in the gates."""
    known = _known(record)
    unknown = {key: value for key, value in document.items() if key not in known}
    for part, names in (("cpu", _PART), ("memory", _PART), ("gates", _GATES)):
        rest = {key: value for key, value in document[part].items() if key not in names}
        if rest:
            unknown[part] = rest
    return replace(record, unknown=unknown)


def _over(unknown: Json, known: Json) -> Json:
    """``unknown`` fields below the ``known`` ones."""
    merged = {key: {**unknown[key], **known[key]} for key in ("cpu", "memory", "gates") if key in unknown}
    return {**unknown, **known, **merged}


def _text(document: Json, key: str) -> str:
    value = document[key]
    if not isinstance(value, str):
        raise TypeError(f"{key} is not a string")
    return value


def _blocks_json(blocks: Blocks) -> list[Json]:
    return [{"nodes": list(block.nodes), "type": block.type, "size": block.size} for block in blocks]


def _blocks(blocks: Sequence[Json]) -> Blocks:
    return tuple(
        Block(NodeMask.of(block["nodes"]), ResourceName(block["type"]), block["size"]) for block in blocks
    )


def _parsed(raw: bytes) -> dict[str, Any]:
    try:
        document = json.loads(raw.decode(), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise StateError(f"pod record is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise StateError("pod record is not a JSON object")
    return document


def _minor(document: Json) -> int:
    version = str(document.get("version"))
    match = _VERSION.fullmatch(version)
    if match is None:
        raise StateError(f"pod record has no readable version: {version!r}")
    if int(match[1]) != MAJOR:
        raise StateError(
            f"pod record has version {version}, this agent reads {MAJOR}.x",
            hint="run the numalet that wrote it, or a newer one",
        )
    return int(match[2])


def _digest(document: Json) -> str:
    return hashlib.sha256(_canonical(document)).hexdigest()


def _canonical(document: Json) -> bytes:
    try:
        return _ENCODER.encode(document).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise StateError(f"pod record cannot be written as JSON: {error}") from error


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
