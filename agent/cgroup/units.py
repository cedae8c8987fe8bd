"""Kubernetes amounts as cgroup v2 file contents, and back.

Texts are exactly what the kernel prints, so that a written value can be compared with what is read
back: Documentation/admin-guide/cgroup-v2.rst.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Final, NewType

MilliCpu = NewType("MilliCpu", int)
Shares = NewType("Shares", int)
Weight = NewType("Weight", int)
Bytes = NewType("Bytes", int)
Micros = NewType("Micros", int)

MIN_SHARES: Final = Shares(2)
MAX_SHARES: Final = Shares(262_144)
MIN_WEIGHT: Final = Weight(1)
MAX_WEIGHT: Final = Weight(10_000)
MIN_QUOTA: Final = Micros(1_000)
DEFAULT_PERIOD: Final = Micros(100_000)


class Unlimited(Enum):
    """No limit; the kernel writes ``max``."""

    UNLIMITED = "max"


UNLIMITED: Final = Unlimited.UNLIMITED
MilliLimit = MilliCpu | Unlimited
ByteLimit = Bytes | Unlimited


@dataclass(frozen=True, slots=True)
class CpuMax:
    """The content of ``cpu.max``: at most ``quota`` of CPU time in each ``period``, both in µs."""

    quota: Micros | Unlimited
    period: Micros = DEFAULT_PERIOD

    def __str__(self) -> str:
        """Render as the kernel does: ``max 100000``, ``150000 100000``."""
        return f"{self.quota.value if isinstance(self.quota, Unlimited) else self.quota} {self.period}"


def shares_of(milli: MilliCpu) -> Shares:
    """cgroup v1 shares of a CPU request, within [2, 262144]; a request of nothing has 2."""
    return Shares(min(max(milli * 1024 // 1000, MIN_SHARES), MAX_SHARES))


def weight_of(shares: Shares) -> Weight:
    """``cpu.weight`` of shares, the formula of runc 1.3.2 and crun 1.23: 1024 shares are 100."""
    if shares <= MIN_SHARES:
        return MIN_WEIGHT if shares else Weight(0)
    if shares >= MAX_SHARES:
        return MAX_WEIGHT
    log = math.log2(shares)
    return Weight(math.ceil(10 ** ((log * log + 125 * log) / 612 - 7 / 34)))


def linear_weight_of(shares: Shares) -> Weight:
    """``cpu.weight`` of shares by the older, linear formula (KEP-2254), which the kubelet still uses."""
    return Weight(1 + (shares - 2) * 9999 // 262_142) if shares else Weight(0)


def cpu_max_of(limit: MilliLimit, period: Micros = DEFAULT_PERIOD) -> CpuMax:
    """The bandwidth for a CPU limit; below the kernel's minimum of 1000 µs it is that minimum."""
    if isinstance(limit, Unlimited):
        return CpuMax(UNLIMITED, period)
    return CpuMax(Micros(max(limit * period // 1000, MIN_QUOTA)), period)


def limit_text(limit: ByteLimit, page: int) -> str:
    """The content of ``memory.max`` and its like: ``max``, or bytes rounded down to ``page`` bytes.

    The kernel rounds in the same way: the text is what it will read back.
    """
    return limit.value if isinstance(limit, Unlimited) else str(limit // page * page)


def parse_cpu_max(text: str) -> CpuMax:
    """Read ``cpu.max``; raise ValueError naming the text that is not understood."""
    fields = text.split()
    if not 1 <= len(fields) <= 2:
        raise ValueError(f'{text!r} is not a cpu.max (expected e.g. "max 100000")')
    period = Micros(_number(fields[1])) if len(fields) == 2 else DEFAULT_PERIOD
    quota = UNLIMITED if fields[0] == UNLIMITED.value else Micros(_number(fields[0]))
    return CpuMax(quota, period)


def parse_limit(text: str) -> ByteLimit:
    """Read ``memory.max`` and its like; raise ValueError naming the text that is not understood."""
    text = text.strip()
    return UNLIMITED if text == UNLIMITED.value else Bytes(_number(text))


def parse_weight(text: str) -> Weight:
    """Read ``cpu.weight``; raise ValueError for what is no number from 1 to 10000."""
    weight = Weight(_number(text.strip()))
    if not MIN_WEIGHT <= weight <= MAX_WEIGHT:
        raise ValueError(f"cpu.weight {weight} is not within [{MIN_WEIGHT}, {MAX_WEIGHT}]")
    return weight


def parse_hugetlb_size(name: str) -> Bytes:
    """Read a page size as hugetlb files name it (mm/hugetlb_cgroup.c): ``2MB`` -> 2097152.

    Raises ValueError if it is none.
    """
    shift = {"KB": 10, "MB": 20, "GB": 30}.get(name[-2:])
    if shift is None:
        raise ValueError(f'{name!r} is not a huge page size (expected e.g. "2MB")')
    return Bytes(_number(name[:-2]) << shift)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f'{text!r} is not a number and not "max"')
    return int(text)
