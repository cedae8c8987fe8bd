"""`cpu_manager_state`, versions 1 to 4.

V4 is V3 with checksum 0 (a 1.36 kubelet then falls back to V2, which takes a 0) and the same
content once more as a string with a checksum of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from fnv_hash_fast import fnv1a_32

from agent.checkpoint.codec.file import (
    NO_EXTRA,
    Decoded,
    Extra,
    Piece,
    has_data,
    open_data,
    piece,
    raw_fields,
    section,
    verify,
    with_data,
)
from agent.checkpoint.codec.godump import (
    Texts,
    cpu_dump,
    cpu_entry,
    cpu_pod_entry,
    cpu_v1_dump,
)
from agent.checkpoint.codec.gojson import (
    NO_FIELDS,
    Fields,
    as_map,
    as_text,
    fold,
    folded,
    map_field,
    quote,
    read_struct,
    text_field,
    text_from,
    uint_field,
)
from agent.checkpoint.codec.memo import Memo
from agent.domain.idset import CpuSet, union
from agent.domain.pod import PodUid
from agent.domain.settings import Gates
from agent.domain.state import ContainerCpus, CpuState
from agent.errors import StateError

LATEST: Final = 4

_LEGACY = "CPUManagerCheckpoint"
_V1 = "CPUManagerCheckpointV1"
_DATA_FIELDS = folded("policyName", "defaultCpuSet", "entries", "podEntries")
_FILE_FIELDS = {**_DATA_FIELDS, **folded("checksum", "data", "dataChecksum")}
_POD_FIELDS = folded("cpuSet")
_CPU_LIST = re.compile(r"(?:\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*)?", re.ASCII)


def encode_cpu(
    policy: str,
    state: CpuState,
    *,
    version: int = LATEST,
    extra: Extra = NO_EXTRA,
    memo: Memo | None = None,
) -> bytes:
    """Write version 2, 3 or 4. V2 has no place for pod entries: they are left out.

    A ``memo`` kept from write to write makes the cost that of what changed.
    """
    memo = memo or Memo()
    head = f'{{"policyName":{quote(policy)},"defaultCpuSet":"{state.default}"'
    body = [piece(head), *section("entries", Piece(*memo.joined("entries", state.entries, _entry_json, 2)))]
    if version > 2:
        body += section(
            "podEntries", Piece(*memo.joined("podEntries", state.pod_entries, _pod_entry_json, 2))
        )
    if version == LATEST:
        return with_data(body, 0, [piece(f"{raw_fields(extra.data)}}}")], extra.file)
    content = _Content(
        policy=policy,
        default=str(state.default),
        entries={uid: {name: str(cpus) for name, cpus in pod.items()} for uid, pod in state.entries.items()},
        pods=state.pod_entries if version > 2 else None,
    )
    checksum = fnv1a_32(b"".join(_dump(content)))
    tail = f',"checksum":{checksum}{raw_fields(extra.file)}}}'
    return b"".join((*(part.text for part in body), tail.encode()))


def encode_cpu_v1(policy: str, default: CpuSet, entries: Mapping[str, CpuSet]) -> bytes:
    """Write version 1, whose ``entries`` go by container id; hashed under its own Go type's name."""
    texts = {container: str(cpus) for container, cpus in sorted(entries.items())}
    checksum = fnv1a_32(b"".join(cpu_v1_dump(_V1, policy, str(default), texts)))
    body = f'{{"policyName":{quote(policy)},"defaultCpuSet":"{default}"'
    if texts:
        body += f',"entries":{_object(texts)}'
    return f'{body},"checksum":{checksum}}}'.encode()


def decode_cpu(
    raw: bytes,
    *,
    gates: Gates,
    v1_containers: Mapping[str, tuple[PodUid, str]] | None = None,
) -> Decoded[CpuState]:
    """Read any version as the kubelet does; with PodLevelResourceManagers off, pod entries are ignored.

    V1 files are refused, as since Kubernetes 1.37, unless ``v1_containers`` tells which container
    of which pod each container id is; the CPUs of other ids go back to the default set. Raises
    StateError in the kubelet's words, CorruptCheckpointError for a wrong checksum.
    """
    file = read_struct(text_from(raw), _FILE_FIELDS)
    if has_data(file.known):
        _v3(file.known)  # types are checked here too, values are not used
        data = open_data(file.known, _DATA_FIELDS, "could not load v4 checkpoint: ", "cpu manager")
        content, version, extra = _v3(data.known), 4, Extra(file=file.extra, data=data.extra)
        verified = True
    else:
        extra, verified = Extra(file=file.extra), uint_field(file.known, "checksum") != 0
        try:
            content, version = _read_legacy(file.known, gates)
        except StateError:
            if v1_containers is None:
                raise
            return _read_v1(file.known, extra, v1_containers)
    state = _state(content, with_pods=gates.pod_level_resource_managers)
    return Decoded(policy=content.policy, state=state, version=version, extra=extra, verified=verified)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Content:
    """The content as it is hashed: sets as texts, None for a nil map. ``pods`` is None for V2."""

    policy: str
    default: str
    entries: Mapping[str, Texts | None] | None
    pods: Mapping[PodUid, CpuSet] | None


def _v2(known: Fields) -> _Content:
    entries = map_field(known, "entries")
    return _Content(
        policy=text_field(known, "policyName"),
        default=text_field(known, "defaultCpuSet"),
        entries=None if entries is None else {uid: _pod_texts(pod) for uid, pod in entries.items()},
        pods=None,
    )


def _v3(known: Fields) -> _Content:
    return replace(_v2(known), pods=_pod_sets(known))


def _pod_texts(pod: object) -> Mapping[str, str] | None:
    if pod is None:
        return None
    return {name: as_text(cpus, "entries") for name, cpus in as_map(pod, "entries").items()}


def _pod_sets(known: Fields) -> Mapping[PodUid, CpuSet]:
    found = {}
    for uid, pod in (map_field(known, "podEntries") or NO_FIELDS).items():
        text = text_field(fold(as_map(pod or {}, "podEntries"), _POD_FIELDS), "cpuSet")
        found[PodUid(uid)] = _cpus(text, f'could not parse cpuset "{text}" for pod "{uid}"')
    return found


def _read_legacy(known: Fields, gates: Gates) -> tuple[_Content, int]:
    stored = uint_field(known, "checksum")
    try:
        content = _v3(known)
        verify(stored, _dump(content, type_name="CPUManagerCheckpointV3"), _dump(content))
    except StateError:
        content = _v2(known)
        if stored:
            real = () if gates.pod_level_resource_managers else ("CPUManagerCheckpointV2",)
            verify(stored, *(_dump(content, type_name=name) for name in (*real, _LEGACY)))
        return content, 2
    return content, 3


def _read_v1(known: Fields, extra: Extra, containers: Mapping[str, tuple[PodUid, str]]) -> Decoded[CpuState]:
    policy, default = text_field(known, "policyName"), text_field(known, "defaultCpuSet")
    texts = {key: as_text(v, "entries") for key, v in (map_field(known, "entries") or NO_FIELDS).items()}
    stored = uint_field(known, "checksum")
    if stored:
        verify(stored, *(cpu_v1_dump(name, policy, default, texts) for name in (_V1, _LEGACY)))
    sets = {
        key: _cpus(text, f'could not parse cpuset "{text}" for container "{key}"')
        for key, text in texts.items()
    }
    dropped = tuple(sorted(sets.keys() - containers.keys()))
    freed = union(sets[key] for key in dropped)
    state = CpuState(default=_cpus(default, f'could not parse default CPU set "{default}"') | freed)
    for key in sorted(sets.keys() & containers.keys()):
        state = state.with_entry(*containers[key], sets[key])
    return Decoded(policy=policy, state=state, version=1, extra=extra, verified=stored != 0, dropped=dropped)


def _state(content: _Content, *, with_pods: bool) -> CpuState:
    entries: dict[PodUid, ContainerCpus] = {}
    for uid, pod in (content.entries or {}).items():
        entries[PodUid(uid)] = {
            name: _cpus(text, f'could not parse cpuset "{text}" for container "{name}" in pod "{uid}"')
            for name, text in (pod or {}).items()
        }
    default = _cpus(content.default, f'could not parse default CPU set "{content.default}"')
    pods = content.pods if with_pods and content.pods else {}
    return CpuState(default=default, entries=entries, pod_entries=pods)


def _cpus(text: str, context: str) -> CpuSet:
    """Parse the kubelet's list format, which is the kernel's without strides and blanks."""
    try:
        if _CPU_LIST.fullmatch(text):
            return CpuSet.parse(text)
    except ValueError as error:
        raise StateError(f"{context}: {error}") from error
    raise StateError(f"{context}: not a list of CPUs")


def _entry_json(uid: PodUid, pod: ContainerCpus) -> Piece:
    return piece(f",{quote(uid)}:{_object({name: str(pod[name]) for name in sorted(pod)})}")


def _pod_entry_json(uid: PodUid, cpus: CpuSet) -> Piece:
    entry = f'{{"cpuSet":"{cpus}"}}' if cpus else "{}"
    return piece(f",{quote(uid)}:{entry}")


def _object(texts: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{quote(name)}:"{text}"' for name, text in texts.items()) + "}"


def _dump(content: _Content, *, type_name: str = _LEGACY) -> list[bytes]:
    """What is hashed for V2 and V3."""
    entries, pods = content.entries, content.pods
    return cpu_dump(
        type_name,
        content.policy,
        content.default,
        None if entries is None else [cpu_entry(uid, entries[uid]) for uid in sorted(entries)],
        None if pods is None else [cpu_pod_entry(uid, pods[uid]) for uid in sorted(pods)],
    )
