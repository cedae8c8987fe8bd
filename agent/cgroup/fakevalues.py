"""Which values the kernel takes for a cgroup's files, and which errno it has for the others; for `FakeCgroups`."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Final

from agent.cgroup.tree import CPU_MAX, CPU_WEIGHT, HUGETLB, MEMORY_OOM_GROUP, PIDS_MAX
from agent.cgroup.units import (
    MIN_QUOTA,
    Unlimited,
    limit_text,
    parse_cpu_max,
    parse_hugetlb_size,
    parse_limit,
    parse_weight,
)
from agent.domain.idset import IdSet


@lru_cache(maxsize=4096)
def accepted(file: str, text: str, page: int) -> str:
    """The content after writing ``text``, as far as that does not depend on other files. Raises ValueError, OSError.

    Pure, as `ids_in` is: most texts are the same from one write to the next.
    """
    return _ACCEPT[file](text) if file in _ACCEPT else _limit(file, text, page)


@lru_cache(maxsize=4096)
def ids_in(text: str, possible: IdSet) -> IdSet:
    """The ids of a list. Raises the kernel's OSError."""
    try:
        ids = type(possible).parse(text)
    except ValueError as error:
        raise kernel_error(errno.EINVAL) from error
    if ids.bits.bit_length() > possible.bits.bit_length():
        raise kernel_error(errno.ERANGE)
    if not ids <= possible:
        raise kernel_error(errno.EINVAL)
    return ids


def kernel_error(number: int) -> OSError:
    """An errno as a system call would have it."""
    return OSError(number, os.strerror(number))


def _limit(file: str, text: str, page: int) -> str:
    unit = parse_hugetlb_size(file.split(".")[1]) if file.startswith(HUGETLB) else page
    return limit_text(parse_limit(text), 1 if file == PIDS_MAX else unit)


def _accepted_cpu_max(text: str) -> str:
    bandwidth = parse_cpu_max(text)
    if not isinstance(bandwidth.quota, Unlimited) and bandwidth.quota < MIN_QUOTA:
        raise kernel_error(errno.EINVAL)
    return str(bandwidth)


def _accepted_weight(text: str) -> str:
    with suppress(ValueError):
        return str(parse_weight(text))
    raise kernel_error(errno.ERANGE if text.isdigit() else errno.EINVAL)


def _accepted_switch(text: str) -> str:
    if text not in {"0", "1"}:
        raise kernel_error(errno.EINVAL)
    return text


_ACCEPT: Final[Mapping[str, Callable[[str], str]]] = {
    CPU_MAX: _accepted_cpu_max,
    CPU_WEIGHT: _accepted_weight,
    MEMORY_OOM_GROUP: _accepted_switch,
}
