"""The cgroup tree as values: what is wanted, what was observed, and the operations in between."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Final

from agent.cgroup.layout import CgroupDir
from agent.cgroup.units import parse_hugetlb_size
from agent.domain.idset import NO_CPUS, CpuSet

CPUS: Final = "cpuset.cpus"
MEMS: Final = "cpuset.mems"
EXCLUSIVE: Final = "cpuset.cpus.exclusive"
PARTITION: Final = "cpuset.cpus.partition"
MEMBER: Final = "member"
CPUS_EFFECTIVE: Final = "cpuset.cpus.effective"
MEMS_EFFECTIVE: Final = "cpuset.mems.effective"
CPU_MAX: Final = "cpu.max"
CPU_WEIGHT: Final = "cpu.weight"
MEMORY_MAX: Final = "memory.max"
MEMORY_OOM_GROUP: Final = "memory.oom.group"
PIDS_MAX: Final = "pids.max"
HUGETLB: Final = "hugetlb."
LIMIT_SUFFIX: Final = ".max"

EFFECTIVE: Final[Mapping[str, str]] = {CPUS: CPUS_EFFECTIVE, MEMS: MEMS_EFFECTIVE}
"""Where the kernel shows what a cpuset came to."""

REQUIRED_CONTROLLERS: Final = ("cpu", "cpuset", "memory")
OPTIONAL_CONTROLLERS: Final = ("hugetlb", "pids")

_PLANNED: Final = frozenset(
    {
        CPUS,
        CPUS_EFFECTIVE,
        MEMS,
        MEMS_EFFECTIVE,
        EXCLUSIVE,
        PARTITION,
        CPU_MAX,
        CPU_WEIGHT,
        MEMORY_MAX,
        MEMORY_OOM_GROUP,
        PIDS_MAX,
    }
)


@dataclass(frozen=True, slots=True)
class Setting:
    """What a file is to hold; a text in ``accepted`` means the same and is left as it is."""

    text: str
    accepted: tuple[str, ...] = ()

    def is_met(self, found: str) -> bool:
        """Tell whether ``found`` needs no write."""
        return found == self.text or found in self.accepted


@dataclass(frozen=True, slots=True)
class Room(Setting):
    """A cpuset that does nothing of its own: not set, as it is made, or with room for ``least``, and none ``apart``."""

    least: str = ""
    apart: str = ""

    def is_met(self, found: str) -> bool:
        """Tell whether ``found`` needs no write."""
        has = cpus_in(found)
        return not found or (cpus_in(self.least) <= has and has.isdisjoint(cpus_in(self.apart)))


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedDir:
    """One cgroup: contents by file name in the order of writing, and ``subtree`` for its children."""

    settings: Mapping[str, Setting] = field(default_factory=dict)
    subtree: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class EmptyCpuset:
    """A cgroup without an online CPU to run on. Nothing is written there.

    On cgroup v2 an empty ``cpuset.cpus`` means "as the parent", never "none".
    """

    directory: CgroupDir
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The tree to be: parents before children. ``held`` cgroups are neither made, changed nor removed.

    ``shared`` is the node shared pool, for processes of pods that are not in the tree.
    """

    dirs: Mapping[CgroupDir, WantedDir] = field(default_factory=dict)
    held: frozenset[CgroupDir] = frozenset()
    problems: tuple[EmptyCpuset, ...] = ()
    shared: CpuSet = NO_CPUS


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedDir:
    """One cgroup as the kernel shows it; a file that is not there is missing in ``files``."""

    files: Mapping[str, str] = field(default_factory=dict)
    subtree: frozenset[str] = frozenset()
    populated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """One scan of our subtree, the root (``""``) included if it exists."""

    dirs: Mapping[CgroupDir, ObservedDir] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class KernelOffer:
    """What this kernel and our place in the hierarchy offer.

    ``files`` are the interface files that a cgroup of ours has once all ``controllers`` are enabled
    above it; ``page_size`` in bytes. Not slotted: what each pod's plan asks for is worked out once.
    """

    controllers: frozenset[str]
    files: frozenset[str]
    page_size: int

    @cached_property
    def used(self) -> frozenset[str]:
        """The controllers used at every level."""
        return self.controllers & {*REQUIRED_CONTROLLERS, *OPTIONAL_CONTROLLERS}

    @cached_property
    def hugetlb_files(self) -> tuple[tuple[str, int], ...]:
        """The limit files of each huge page size, with the size in bytes."""
        names = (file for file in self.files if file.startswith(HUGETLB))
        limits = (file for file in names if file.endswith(LIMIT_SUFFIX))
        return tuple(sorted((file, parse_hugetlb_size(file.split(".")[1])) for file in limits))


@dataclass(frozen=True, slots=True)
class MakeDir:
    """Create a cgroup; it may be there already."""

    directory: CgroupDir


@dataclass(frozen=True, slots=True)
class EnableControllers:
    """Give the children of a cgroup these controllers."""

    directory: CgroupDir
    controllers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Write:
    """Write a file and read it back; for cpusets the effective set must be the same, too."""

    directory: CgroupDir
    file: str
    text: str


@dataclass(frozen=True, slots=True)
class RemoveDir:
    """Remove a cgroup without processes and children."""

    directory: CgroupDir


CgroupOp = MakeDir | EnableControllers | Write | RemoveDir


@lru_cache(maxsize=4096)
def cpus_in(text: str) -> CpuSet:
    """The CPUs a kernel file lists; a text that is not a list holds none.

    Pure and total: most texts are the same from one comparison to the next.
    """
    try:
        return CpuSet.parse(text)
    except ValueError:
        return CpuSet()


def is_planned(file: str) -> bool:
    """Tell whether ``file`` is one that plans set or compare."""
    return file in _PLANNED or (file.startswith(HUGETLB) and file.endswith(LIMIT_SUFFIX))


def top_down(directories: Iterable[CgroupDir]) -> list[CgroupDir]:
    """Parents before children, siblings by name."""
    return sorted(directories, key=lambda directory: directory.split("/") if directory else [])
