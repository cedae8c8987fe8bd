"""FNV-1a, 32 bit, and what a writer may remember so that the next file costs only what changed.

A plain hash is a multiplication per byte, some 75 ns in Python, and a busy node's files have 100s
of KB. They consist of one piece per pod, most of which are the same in the next file, but behind
a header (default CPU set, machine state) that is not, so a remembered prefix would not help.
Instead: XOR with a byte touches only the low 8 bits of the hash, all else is multiplication. Over
a given piece the hash ``h`` therefore becomes ``h * prime^len + c`` (mod 2^32), where ``c`` depends
on the low byte of ``h`` alone. A table of 256 such values makes a known piece one step, whatever
stands before it.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Final, NamedTuple, TypeVar

from agent.domain.pod import PodUid
from agent.domain.state import changed_pods

OFFSET: Final = 0x811C9DC5
PRIME: Final = 0x01000193
MASK: Final = 0xFFFFFFFF

NEW_TABLES: Final = 16
"""Most tables made for one text: each costs about ten plain hashes of its piece."""

_LANE: Final = 64
_LANES: Final = sum(1 << _LANE * low for low in range(256))
_RAMP: Final = sum(low << _LANE * low for low in range(256))

V = TypeVar("V")


def fnv1a(data: bytes, state: int = OFFSET) -> int:
    """The FNV-1a hash of ``data``, going on from ``state``."""
    whole = len(data) & ~3
    four = iter(data[:whole])
    # XOR reaches the low byte only, so masking once in four steps gives the same result.
    for a, b, c, d in zip(four, four, four, four, strict=True):
        state = ((((state ^ a) * PRIME ^ b) * PRIME ^ c) * PRIME ^ d) * PRIME & MASK
    for byte in data[whole:]:
        state = (state ^ byte) * PRIME & MASK
    return state


class _Table(NamedTuple):
    """How one piece moves the hash: ``power`` is prime^len, ``ends[low]`` where 0..255 end up."""

    power: int
    ends: array[int]


@cache
def _lanes_of(byte: int) -> int:
    return _LANES * byte


def _table(piece: bytes) -> _Table:
    """Hash ``piece`` from all 256 low bytes at once, side by side in one int of 64-bit lanes."""
    lanes, mask = _RAMP, _LANES * MASK
    for byte in piece:
        lanes = (lanes ^ _lanes_of(byte)) * PRIME & mask
    ends = array("I", struct.unpack("<256Q", lanes.to_bytes(256 * _LANE // 8, "little")))
    return _Table(pow(PRIME, len(piece), MASK + 1), ends)


class PieceHash:
    """FNV-1a of texts given as pieces; equals `fnv1a` of the joined pieces, always.

    Holds a table (1 KB) per piece that the latest two texts had in common, nothing else.
    """

    __slots__ = ("_tables",)

    def __init__(self) -> None:
        self._tables: dict[bytes, _Table | None] = {}

    def of(self, pieces: Iterable[bytes]) -> int:
        """Hash one text."""
        parts = tuple(pieces)
        known, budget, state = self._tables, NEW_TABLES, OFFSET
        kept = dict(zip(parts, map(known.get, parts), strict=True))
        for piece, table in zip(parts, map(kept.get, parts), strict=True):
            if table is not None:
                power, ends = table
                low = state & 0xFF
                state = (state - low) * power + ends[low] & MASK
                continue
            state = fnv1a(piece, state)
            if budget and piece in known:
                kept[piece], budget = _table(piece), budget - 1
        self._tables = kept
        return state


class Memo:
    """What one writer of one file remembers from write to write; its results never depend on it.

    A pod whose value is the same object as at the previous write is not rendered again: the
    mappings of a state are never written to. Not to be shared between threads or files.
    """

    __slots__ = ("_hashes", "_texts")

    def __init__(self) -> None:
        self._hashes: dict[str, PieceHash] = {}
        self._texts: dict[str, tuple[Mapping[PodUid, object], dict[PodUid, bytes]]] = {}

    def pieces(
        self, part: str, pods: Mapping[PodUid, V], render: Callable[[PodUid, V], bytes]
    ) -> list[bytes]:
        """``render`` each of ``pods`` in the order of their uids; ``part`` names the list."""
        last, texts = self._texts.get(part, ({}, {}))
        changed = changed_pods(last, pods)
        if changed:
            texts = texts | {uid: render(uid, pods[uid]) for uid in changed if uid in pods}
            for uid in changed - pods.keys():
                del texts[uid]
        self._texts[part] = pods, texts
        return list(map(texts.__getitem__, sorted(texts)))

    def fnv1a(self, part: str, pieces: Iterable[bytes]) -> int:
        """The FNV-1a hash of the joined ``pieces``; ``part`` names the text."""
        return self._hashes.setdefault(part, PieceHash()).of(pieces)
