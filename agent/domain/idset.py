"""Immutable sets of small ids (CPUs, NUMA nodes) held in one Python int: bit *i* is id *i*.

Set algebra is one machine operation per 64 ids, ids may be sparse and large (CPU 2047, node 255).
Text is the kernel's list format: https://man7.org/linux/man-pages/man7/cpuset.7.html (FORMATS).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import ClassVar, Self

MAX_ID = 65_535
"""Largest id a text may name; far above any kernel's NR_CPUS, it bounds what a typo can allocate."""

_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9})/(\d{1,9}))?)?", re.ASCII)
_MASK_WORD = re.compile(r"[0-9a-fA-F]{1,8}", re.ASCII)


def iter_bits(bits: int) -> Iterator[int]:
    """Yield the positions of the one bits of ``bits``, ascending."""
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


@lru_cache(maxsize=4096)
def _listed(bits: int) -> str:
    """See `IdSet.__str__`. Pure: a shared pool is written for every pod that shares it."""
    parts = []
    while bits:
        low = bits & -bits
        carried = bits + low  # through the lowest run, to the bit above it
        end = carried & -carried
        first, last = low.bit_length() - 1, end.bit_length() - 2
        parts.append(str(first) if first == last else f"{first}-{last}")
        bits = carried ^ end
    return ",".join(parts)


class IdSet:
    """Base of `CpuSet` and `NodeMask`: the two never mix, and never compare equal."""

    __slots__ = ("bits",)

    bits: int
    noun: ClassVar[str] = "id"

    def __init__(self, bits: int = 0) -> None:
        self.bits = bits

    @classmethod
    def of(cls, ids: Iterable[int]) -> Self:
        """Make a set of ``ids``, in any order, repeats allowed."""
        bits = 0
        for i in ids:
            bits |= 1 << i
        return cls(bits)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the kernel's list format: ``0-3,8,16-30:2/4``; empty text is the empty set.

        Raises ValueError naming the part that is not understood.
        """
        bits = 0
        text = text.strip(" \t\n\0")
        for part in text.split(",") if text else ():
            match = _RANGE.fullmatch(part.strip())
            if match is None:
                raise ValueError(f'{part!r} is not a {cls.noun} or a range (expected e.g. "0-3,8")')
            first, last = int(match[1]), int(match[2] or match[1])
            if last < first:
                raise ValueError(f"range {part!r} runs backwards")
            if last > MAX_ID:
                raise ValueError(f"{part!r} is above the largest {cls.noun} id {MAX_ID}")
            if match[3] is None:
                bits |= ((1 << (last - first + 1)) - 1) << first
            else:
                used, group = int(match[3]), int(match[4])
                if not 0 < used <= group:
                    raise ValueError(f"{part!r} uses {used} of every {group}")
                for start in range(first, last + 1, group):
                    bits |= ((1 << min(used, last - start + 1)) - 1) << start
        return cls(bits)

    @classmethod
    def parse_mask(cls, text: str) -> Self:
        """Read the kernel's mask format, 32-bit hexadecimal words joined by commas: ``f,00000001``.

        Raises ValueError naming the word that is not understood.
        """
        bits = 0
        text = text.strip(" \t\n\0")
        for word in text.split(",") if text else ():
            if not _MASK_WORD.fullmatch(word):
                raise ValueError(f"{word!r} is not a 32-bit hexadecimal word of a {cls.noun} mask")
            bits = bits << 32 | int(word, 16)
        return cls(bits)

    def __str__(self) -> str:
        """Render the canonical list format: ascending, runs of two and more as ``a-b``."""
        return _listed(self.bits)

    def __repr__(self) -> str:
        return f'{type(self).__name__}("{self}")'

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.bits == other.bits

    def __hash__(self) -> int:
        return hash(self.bits)

    def __len__(self) -> int:
        return self.bits.bit_count()

    def __bool__(self) -> bool:
        return self.bits != 0

    def __iter__(self) -> Iterator[int]:
        return iter_bits(self.bits)

    def __contains__(self, i: int) -> bool:
        return self.bits >> i & 1 == 1

    def __or__(self, other: Self) -> Self:
        return type(self)(self.bits | other.bits)

    def __and__(self, other: Self) -> Self:
        return type(self)(self.bits & other.bits)

    def __sub__(self, other: Self) -> Self:
        return type(self)(self.bits & ~other.bits)

    def __le__(self, other: Self) -> bool:
        return self.bits & ~other.bits == 0

    def isdisjoint(self, other: Self) -> bool:
        """Tell whether the two sets share no id."""
        return self.bits & other.bits == 0


class CpuSet(IdSet):
    """A set of logical CPUs, as in cpuset(7)."""

    __slots__ = ()
    noun = "CPU"


class NodeMask(IdSet):
    """A set of NUMA nodes."""

    __slots__ = ()
    noun = "NUMA node"


NO_CPUS = CpuSet()
NO_NODES = NodeMask()


def union(sets: Iterable[CpuSet]) -> CpuSet:
    """Return the CPUs that are in any of ``sets``."""
    bits = 0
    for one in sets:
        bits |= one.bits
    return CpuSet(bits)
