"""Any stored file, told apart by its content and read even where it is damaged.

The codec refuses what a kubelet would refuse. Who looks into a damaged file wants to see what is in
it all the same: its content is then read once more out of an envelope with the right checksum.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Generic, TypeVar

from fnv_hash_fast import fnv1a_32

from agent.checkpoint.codec import (
    CorruptCheckpointError,
    Decoded,
    Extra,
    decode_cpu,
    decode_memory,
    encode_cpu,
    encode_cpu_v1,
    encode_memory,
)
from agent.checkpoint.codec.file import DATA_PREFIX, has_data
from agent.checkpoint.codec.gojson import (
    Fields,
    Struct,
    folded,
    map_field,
    read_struct,
    text_field,
    text_from,
)
from agent.checkpoint.podrecord import PodRecord, decode_record
from agent.domain.idset import CpuSet
from agent.domain.pod import PodUid
from agent.domain.settings import Gates
from agent.domain.state import CpuState, MemoryState
from agent.errors import StateError

S = TypeVar("S", CpuState, MemoryState)
F = TypeVar("F")

ContainerIds = Mapping[str, tuple[PodUid, str]]
"""Which container of which pod each container id is: CPU V1 files go by these ids."""

NOBODY: Final = PodUid("")
"""Holds, under their ids, the containers of a CPU V1 file that nobody knows."""

_GATES: Final = Gates()
_NAMES: Final = folded(
    "policyName", "defaultCpuSet", "machineState", "entries", "podEntries", "checksum", "data", "dataChecksum"
)
_ENVELOPE: Final = ("checksum", "data", "dataChecksum")
_BEFORE: Final = "the part that kubelets before 1.37 read"


@dataclass(frozen=True, slots=True)
class Checksum:
    """One checksum of a file; ``stored`` 0 is none, where a kubelet accepts that."""

    field: str
    stored: int
    computed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFile(Generic[S]):
    """What both checkpoints have.

    ``refusal`` is the sentence with which a kubelet refuses the file, empty where it does not;
    ``problems`` say what other readers make of it.
    """

    policy: str
    version: int
    state: S
    checksums: tuple[Checksum, ...]
    extra: Extra
    refusal: str = ""
    problems: tuple[str, ...]


class CpuFile(CheckpointFile[CpuState]):
    """A `cpu_manager_state`."""

    __slots__ = ()


class MemoryFile(CheckpointFile[MemoryState]):
    """A `memory_manager_state`."""

    __slots__ = ()


StoredFile = CpuFile | MemoryFile | PodRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class _Format(Generic[S, F]):
    """``plain`` is the version without pod entries; the next one has them, ``latest`` has an envelope."""

    make: Callable[..., F]
    decode: Callable[[bytes], Decoded[S]]
    encode: Callable[..., bytes]
    plain: int
    latest: int


def read_stored(raw: bytes, *, containers: ContainerIds | None = None) -> StoredFile:
    """Read a file of any kind and version; raises StateError where there is no sense in it.

    A pod record is read only if it is whole: numalet alone writes them.
    """
    file = read_struct(text_from(raw), _NAMES)
    names = {name for name, _ in file.extra}
    if {"manifest", "uid"} <= names:
        return decode_record(raw)
    if "machineState" in file.known:
        return _read(raw, file, _MEMORY)
    if "defaultCpuSet" not in file.known:
        raise StateError(
            "neither a CPU nor a memory checkpoint, nor a pod record",
            hint="expected one of the fields defaultCpuSet, machineState, manifest",
        )
    return _read(raw, file, _cpu_format(file.known, containers or {}))


def _cpu_format(known: Fields, containers: ContainerIds) -> _Format[CpuState, CpuFile]:
    """The format with what V1 needs: somebody for each container id, if only `NOBODY`."""
    entries = {} if has_data(known) else map_field(known, "entries") or {}
    ids = {key: containers.get(key, (NOBODY, key)) for key, cpus in entries.items() if isinstance(cpus, str)}
    decode = partial(decode_cpu, gates=_GATES, v1_containers=ids if ids or not entries else None)
    return _Format(make=CpuFile, decode=decode, encode=encode_cpu, plain=1 if ids else 2, latest=4)


_MEMORY: Final = _Format(
    make=MemoryFile, decode=partial(decode_memory, gates=_GATES), encode=encode_memory, plain=1, latest=3
)


def _read(raw: bytes, file: Struct, form: _Format[S, F]) -> F:
    known, problems, refusal = file.known, list[str](), ""
    try:
        decoded = form.decode(raw)
        computed = 0
    except StateError as error:
        decoded, computed = _damaged(file, form, error)
        refusal = sentence(error)
    if has_data(known):
        problems += _older_readers(known, form, decoded.state)
    elif known.get("podEntries") and decoded.version <= form.plain:
        problems.append("its podEntries are not covered by the checksum: every reader passes them over")
    return form.make(
        policy=decoded.policy,
        version=decoded.version,
        state=decoded.state,
        checksums=_checksums(known, computed or _stored(known, "checksum")),
        extra=decoded.extra,
        refusal=refusal,
        problems=tuple(problems),
    )


def _damaged(file: Struct, form: _Format[S, F], error: StateError) -> tuple[Decoded[S], int]:
    """The content of a refused file and, where it has no envelope, the checksum it should have."""
    known = file.known
    if form is not _MEMORY and form.plain == 1:
        return _damaged_v1(known, form)
    content = {name: value for name, value in known.items() if name not in _ENVELOPE}
    text = text_field(known, "data") if has_data(known) else _json(content).decode()
    decoded = form.decode(_json({"data": text, "dataChecksum": fnv1a_32(DATA_PREFIX + text.encode())}))
    decoded = replace(decoded, extra=replace(decoded.extra, file=file.extra))
    if has_data(known):
        return decoded, 0
    version = form.plain + bool(known.get("podEntries"))
    if version == form.plain and isinstance(error, CorruptCheckpointError):
        computed = error.computed
    else:
        computed = _stored(
            json.loads(form.encode(decoded.policy, decoded.state, version=version)), "checksum"
        )
    return replace(decoded, version=version), computed


def _damaged_v1(known: Fields, form: _Format[S, F]) -> tuple[Decoded[S], int]:
    decoded = form.decode(_json({**known, "checksum": 0}))
    sets = {key: CpuSet.parse(cpus or "") for key, cpus in known["entries"].items()}
    whole = encode_cpu_v1(decoded.policy, CpuSet.parse(text_field(known, "defaultCpuSet")), sets)
    return decoded, _stored(json.loads(whole), "checksum")


def _older_readers(known: Fields, form: _Format[S, F], state: S) -> Iterator[str]:
    """What is wrong with the inline part of a file that has an envelope."""
    inline = {name: known[name] for name in known if name not in ("podEntries", "data", "dataChecksum")}
    try:
        older = form.decode(_json(inline)).state
    except StateError as error:
        yield f"{_BEFORE} cannot be used: {sentence(error)}"
        return
    if replace(state, pod_entries={}) != older:
        yield f"{_BEFORE} is not what its data says"


def _checksums(known: Fields, computed: int) -> tuple[Checksum, ...]:
    """The envelope's checksum, or the one of a file without; the inline one is `_older_readers`' matter."""
    if not has_data(known):
        return (Checksum("checksum", _stored(known, "checksum"), computed),)
    computed = fnv1a_32(DATA_PREFIX + text_field(known, "data").encode())
    return (Checksum("dataChecksum", _stored(known, "dataChecksum"), computed),)


def _stored(known: Fields, field: str) -> int:
    value = known.get(field)
    return value if isinstance(value, int) else 0


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def sentence(error: StateError) -> str:
    """The whole of an error on one line."""
    return f"{error.message} ({error.hint})" if error.hint else error.message
