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
        known, kept, budget, state = self._tables, dict[bytes, _Table | None](), NEW_TABLES, OFFSET
        for piece in pieces:
            table = known.get(piece)
            if table is None and budget and piece in known:
                table, budget = _table(piece), budget - 1
            kept[piece] = table
            if table is None:
                state = fnv1a(piece, state)
            else:
                low = state & 0xFF
                state = (state - low) * table.power + table.ends[low] & MASK
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
        self._texts: dict[str, dict[PodUid, tuple[object, bytes]]] = {}

    def pieces(
        self, part: str, pods: Mapping[PodUid, V], render: Callable[[PodUid, V], bytes]
    ) -> list[bytes]:
        """``render`` each of ``pods`` in the order of their uids; ``part`` names the list."""
        known = self._texts.get(part, {})
        kept: dict[PodUid, tuple[object, bytes]] = {}
        for uid in sorted(pods):
            value, held = pods[uid], known.get(uid)
            if held is None or held[0] is not value:
                held = (value, render(uid, value))
            kept[uid] = held
        self._texts[part] = kept
        return [text for _, text in kept.values()]

    def fnv1a(self, part: str, pieces: Iterable[bytes]) -> int:
        """The FNV-1a hash of the joined ``pieces``; ``part`` names the text."""
        return self._hashes.setdefault(part, PieceHash()).of(pieces)
