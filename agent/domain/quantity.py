"""Kubernetes quantities, exact: ``1500m``, ``2Gi``, ``1e3``, ``0.5``.

Grammar and rounding follow k8s.io/apimachinery ``pkg/api/resource``: a value is kept in units of
10^-9, is capped at 2^63-1, and whatever is finer, there or in whole and milli units, is rounded away
from zero: who asks for some gets some.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

NANO = 1_000_000_000
MAX_VALUE = (1 << 63) - 1

_QUANTITY = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>\d*)(?:\.(?P<part>\d*))?"
    r"(?P<suffix>Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]?|[eE][+-]?\d{1,6})",
    re.ASCII,
)
_MAX_TEXT = 256
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


class Format(Enum):
    """How a quantity was written, and so how its canonical text looks."""

    BINARY_SI = "BinarySI"
    DECIMAL_SI = "DecimalSI"
    DECIMAL_EXPONENT = "DecimalExponent"


@dataclass(frozen=True, slots=True)
class Quantity:
    """An exact amount in units of 10^-9."""

    nano: int
    format: Format = Format.DECIMAL_SI

    @property
    def value(self) -> int:
        """The amount in whole units, rounded away from zero."""
        return _rounded(self.nano, NANO)

    @property
    def milli(self) -> int:
        """The amount in thousandths, rounded away from zero."""
        return _rounded(self.nano, NANO // 1000)

    def __str__(self) -> str:
        """Render the canonical text: the largest suffix that leaves no fraction."""
        return _canonical(self)

    def __add__(self, other: Quantity) -> Quantity:
        """Return the sum, written as the left side is; as the right side if the left is zero."""
        return Quantity(self.nano + other.nano, self.format if self.nano else other.format)

    @classmethod
    def whole(cls, value: int, fmt: Format = Format.DECIMAL_SI) -> Quantity:
        """Make a quantity of ``value`` whole units."""
        return cls(value * NANO, fmt)

    @classmethod
    def bytes(cls, value: int) -> Quantity:
        """Make a quantity of ``value`` bytes, shown with binary suffixes."""
        return cls(value * NANO, Format.BINARY_SI)


ZERO = Quantity(0)


@lru_cache(maxsize=4096)
def parse_quantity(text: str) -> Quantity:
    """Read a quantity; raise ValueError saying what was expected.

    Pure and total: the cache holds one answer per text for ever.
    """
    match = _QUANTITY.fullmatch(text) if len(text) <= _MAX_TEXT else None
    if match is None or not (match["whole"] or match["part"]):
        raise ValueError(f'"{text[:60]}" is not a quantity (expected e.g. "2", "1500m" or "4Gi")')
    digits = int((match["whole"] or "") + (match["part"] or "") or "0")
    scale = -len(match["part"] or "")
    suffix = match["suffix"]
    fmt, shift = Format.DECIMAL_SI, 0
    if suffix in _BINARY:
        fmt, shift = Format.BINARY_SI, _BINARY[suffix]
    elif suffix in _DECIMAL:
        scale += _DECIMAL[suffix]
    else:
        fmt = Format.DECIMAL_EXPONENT
        scale += int(suffix[1:])
    nano = _scaled(digits << shift, scale + 9)
    nano = min(nano, MAX_VALUE * NANO)
    return Quantity(-nano if match["sign"] == "-" else nano, fmt)


def _rounded(nano: int, unit: int) -> int:
    return -(-nano // unit) if nano >= 0 else nano // unit


def _scaled(number: int, power: int) -> int:
    """``number`` times 10^``power``, a fraction rounded up; beyond the cap any large value serves."""
    if number == 0:
        return 0
    if power >= 0:
        return number * int(10**power) if power <= 40 else MAX_VALUE * NANO
    if -power > len(str(number)) + 1:
        return 1
    return -(-number // int(10**-power))


def _canonical(quantity: Quantity) -> str:
    sign = "-" if quantity.nano < 0 else ""
    nano = abs(quantity.nano)
    if nano == 0:
        return "0"
    if quantity.format is Format.BINARY_SI and nano % NANO == 0 and nano >= 1024 * NANO:
        value, suffix = nano // NANO, ""
        for name in _BINARY:
            if value % 1024:
                break
            value, suffix = value // 1024, name
        return f"{sign}{value}{suffix}"
    exponent = -9
    while nano % 1000 == 0 and exponent < 18:
        nano //= 1000
        exponent += 3
    if quantity.format is Format.DECIMAL_EXPONENT:
        return f"{sign}{nano}" + (f"e{exponent}" if exponent else "")
    suffix = next(name for name, power in _DECIMAL.items() if power == exponent)
    return f"{sign}{nano}{suffix}"
