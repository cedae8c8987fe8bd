"""What the CPU and the memory file have in common: checksums, the data envelope, unknown fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

from fnv_hash_fast import fnv1a_32

from agent.checkpoint.codec.gojson import (
    UINT64,
    Fields,
    RawFields,
    Struct,
    quote,
    read_struct,
    text_field,
    uint_field,
)
from agent.errors import StateError

S = TypeVar("S")

DATA_PREFIX: Final = b"(string)"
"""What the kubelet's object dump puts before a hashed string."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extra:
    """Fields this version does not know, as they were written; hand them back to the encoder.

    ``file`` are those of the file itself, ``data`` those inside its checksummed data.
    """

    file: RawFields = ()
    data: RawFields = ()


NO_EXTRA: Final = Extra()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded(Generic[S]):
    """A checkpoint that was accepted.

    ``verified`` is False where its checksum is 0 or absent, which the kubelet accepts in CPU V1,
    V2 and memory V1: damage to the checksum itself then goes unseen, and a newer file's pod
    entries with it. ``dropped`` names the containers of a V1 file that nobody knows.
    """

    policy: str
    state: S
    version: int
    extra: Extra = NO_EXTRA
    verified: bool = True
    dropped: tuple[str, ...] = ()


class CorruptCheckpointError(StateError):
    """The content has another checksum than the one stored with it."""

    def __init__(self, stored: int, computed: int, *, where: str = "") -> None:
        super().__init__(
            f"{where}checkpoint is corrupted",
            hint=f"the stored checksum is {stored}, the content's is {computed}",
        )
        self.stored = stored
        self.computed = computed


def require_policy(decoded: Decoded[S], configured: str, *, prefix: str = "") -> None:
    """Raise StateError unless the checkpoint was written under the ``configured`` policy.

    ``prefix`` is ``"[memorymanager] "`` in the Memory manager's texts.
    """
    if decoded.policy != configured:
        raise StateError(
            f'{prefix}configured policy "{configured}" differs from state checkpoint policy "{decoded.policy}"'
        )


def verify(stored: int, *dumps: Sequence[bytes]) -> None:
    """Raise CorruptCheckpointError unless ``stored`` is the hash of one of ``dumps``."""
    computed = [fnv1a_32(b"".join(dump)) for dump in dumps]
    if stored not in computed:
        raise CorruptCheckpointError(stored, computed[-1])


def has_data(known: Fields) -> bool:
    """Tell whether the file has the envelope of CPU V4 and memory V3: then nothing else counts."""
    data, checksum = known.get("data"), known.get("dataChecksum")
    return (isinstance(data, str) and data != "") or (type(checksum) is int and 0 < checksum <= UINT64)


def open_data(known: Fields, names: Mapping[str, str], where: str, noun: str) -> Struct:
    """Parse and verify the envelope's data; StateError texts start with ``where``."""
    text, stored = text_field(known, "data"), uint_field(known, "dataChecksum")
    try:
        data = read_struct(text, names)
    except StateError as error:
        raise StateError(f"{where}failed to deserialize {noun} checkpoint data: {error.message}") from error
    computed = fnv1a_32(DATA_PREFIX + text.encode())
    if stored != computed:
        raise CorruptCheckpointError(stored, computed, where=where)
    return data


class Piece(NamedTuple):
    """A part of a JSON text; ``quoted`` is the same within a JSON string."""

    text: bytes
    quoted: bytes


def piece(text: str) -> Piece:
    """``text``, also as it reads within a string."""
    return Piece(text.encode(), quote(text)[1:-1].encode())


def section(name: str, items: Piece) -> list[Piece]:
    """The pieces of an object field whose ``items`` begin with a comma each; none if it would be empty."""
    if not items.text:
        return []
    return [piece(f',"{name}":{{'), Piece(items.text[1:], items.quoted[1:]), piece("}")]


def raw_fields(extra: RawFields) -> str:
    """Unknown fields, each after a comma."""
    return "".join(f",{quote(name)}:{value}" for name, value in extra)


def with_data(body: Sequence[Piece], checksum: int, rest: Sequence[Piece], extra: RawFields) -> bytes:
    """A file with the envelope: ``body`` (an object still open), its checksum, then ``body`` and ``rest`` as data."""
    texts, quoted = zip(*body, *rest, strict=True)
    data_checksum = fnv1a_32(b"".join((DATA_PREFIX, *texts)))
    return b"".join(
        (
            *texts[: len(body)],
            f',"checksum":{checksum},"data":"'.encode(),
            *quoted,
            f'","dataChecksum":{data_checksum}{raw_fields(extra)}}}'.encode(),
        )
    )
