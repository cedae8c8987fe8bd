"""Typed reading of sysfs, and the sentences about what is missing or contradictory.

Nothing is guessed silently: what a file lacks becomes a sentence, and the CPUs (or NUMA nodes) it
is true of are folded into one list, so that 512 CPUs without a file make one line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from agent.domain.idset import CpuSet, iter_bits
from agent.sysfs.reader import ABSENT, Absent, SysfsReader

SYS_CPU: Final = "sys/devices/system/cpu"
SYS_NODE: Final = "sys/devices/system/node"

T = TypeVar("T")
_NUMBERED_FOLDER = re.compile(r"/(cpu|node)(\d+)/")
_STAT_CPU = re.compile(r"^cpu(\d{1,5}) ", re.MULTILINE)
_MEMORY_TOTAL = re.compile(r"MemTotal:\s*(\d+) kB")


class Findings:
    """Sentences about a machine, in the order of their first finding."""

    __slots__ = ("_ids",)

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    def note(self, sentence: str, bits: int = 0) -> None:
        """Add ``sentence``; its ``{ids}`` becomes the list of all ids ever noted with it."""
        self._ids[sentence] = self._ids.get(sentence, 0) | bits

    def sentences(self) -> tuple[str, ...]:
        """The finished sentences."""
        return tuple(text.replace("{ids}", str(CpuSet(bits))) for text, bits in self._ids.items())


class Probe:
    """Reads values of one machine; a text that is not understood is a finding and counts as absent."""

    __slots__ = ("_reader", "findings")

    def __init__(self, reader: SysfsReader) -> None:
        self._reader = reader
        self.findings = Findings()

    def number(self, path: str) -> int | Absent:
        """A decimal number."""
        return self._parsed(path, int)

    def numbers(self, path: str) -> tuple[int, ...] | Absent:
        """Decimal numbers between white space."""
        return self._parsed(path, lambda text: tuple(map(int, text.split())))

    def ids(self, path: str) -> int | Absent:
        """The bits of a set in the kernel's list format; an empty file is the empty set."""
        return self._parsed(path, lambda text: CpuSet.parse(text).bits)

    def shared(self, folder: str, *names: str) -> int | Absent:
        """The bits of the first of ``names`` that exists: lists end in ``list``, the rest are masks."""
        for name in names:
            parse = CpuSet.parse if name.endswith("list") else CpuSet.parse_mask
            found = self._parsed(f"{folder}/{name}", parse)
            if found is not ABSENT:
                return found.bits
        return ABSENT

    def memory(self, path: str) -> int | Absent:
        """``MemTotal`` of a meminfo file, in bytes."""
        return self._parsed(path, _memory_total)

    def cpus_in_stat(self) -> CpuSet:
        """The CPUs of proc/stat, which lists those online on every architecture."""
        text = self._reader.read("proc/stat")
        return CpuSet() if text is ABSENT else CpuSet.of(int(cpu[1]) for cpu in _STAT_CPU.finditer(text))

    def numbered(self, folder: str, prefix: str, suffix: str = "") -> Sequence[int]:
        """The numbers, ascending, of the entries ``<prefix><number><suffix>`` in a directory."""
        pattern = re.compile(rf"{prefix}(\d{{1,9}}){suffix}", re.ASCII)
        matches = map(pattern.fullmatch, self._reader.list(folder))
        return sorted(int(match[1]) for match in matches if match)

    def _parsed(self, path: str, parse: Callable[[str], T]) -> T | Absent:
        text = self._reader.read(path)
        if text is ABSENT:
            return ABSENT
        try:
            return parse(text)
        except ValueError:
            self._not_understood(path)
            return ABSENT

    def _not_understood(self, path: str) -> None:
        folder = _NUMBERED_FOLDER.search(path)
        if folder is None:
            self.findings.note(f"{path}: not understood, counts as absent")
            return
        general = f"{path[: folder.start(2)]}N{path[folder.end(2) :]}"
        self.findings.note(
            f"{general}: not understood for N = {{ids}}, counts as absent", 1 << int(folder[2])
        )


def _memory_total(text: str) -> int:
    match = _MEMORY_TOTAL.search(text)
    if match is None:
        raise ValueError("no MemTotal")
    return int(match[1]) * 1024


def partition(shared: Mapping[int, int], among: int) -> tuple[dict[int, int], int]:
    """Group ids by the sets they name: id -> lowest id of its group; and the bits of ids in dispute.

    ``shared`` holds for each id the bits it says it shares with; only ids in ``among`` count, and
    an id always shares with itself. Where two ids name different sets, the lower one is believed.
    """
    leader: dict[int, int] = {}
    groups: dict[int, int] = {}
    named = {i: (bits | 1 << i) & among for i, bits in shared.items()}
    taken = 0
    for first in sorted(named):
        if first in leader:
            continue
        groups[first] = named[first] & ~taken
        taken |= groups[first]
        leader.update(dict.fromkeys(iter_bits(groups[first]), first))
    disputed = sum(1 << i for i, bits in named.items() if bits != groups[leader[i]])
    return leader, disputed
