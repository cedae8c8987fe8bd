"""The kernel's rules for cpuset partitions, for `FakeCgroups`: remote ones, as Linux 6.12 has them."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from agent.cgroup import layout
from agent.cgroup.layout import ROOT, CgroupDir
from agent.cgroup.tree import CPUS, EXCLUSIVE, MEMBER, PARTITION, cpus_in
from agent.domain.idset import NO_CPUS, CpuSet, union

NOT_PERMITTED: Final = "Enable partition not permitted"
BAD_LIST: Final = "Invalid cpu list in cpuset.cpus.exclusive"
NOT_EXCLUSIVE: Final = "Cpu list in cpuset.cpus not exclusive"
NOT_ROOT: Final = "Parent is not a partition root"
FILES: Final = frozenset({CPUS, EXCLUSIVE, PARTITION})
_KINDS: Final = frozenset({MEMBER, "root", "isolated"})


class FakePartitions:
    """The valid partitions among cgroups, whose files ``files`` gives and whose siblings ``beside``.

    Without ``permitted`` it is as for a process without CAP_SYS_ADMIN.
    """

    def __init__(
        self,
        files: Callable[[CgroupDir], dict[str, str]],
        beside: Callable[[CgroupDir], Iterator[CgroupDir]],
    ) -> None:
        self.permitted = True
        self.taken: dict[CgroupDir, CpuSet] = {}
        self._files = files
        self._beside = beside

    def accepted(self, directory: CgroupDir, file: str, text: str) -> str:
        """What is kept of ``text``, which is a kind or, in the kernel's form, CPUs. Raises the kernel's OSError."""
        if file == PARTITION and text not in _KINDS:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        if file == EXCLUSIVE and any(
            _collides(cpus_in(text), self._files(other)) for other in self._beside(directory)
        ):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return text

    def follow(self, directory: CgroupDir, file: str, online: CpuSet) -> None:
        """``file`` was written: which partitions there are now."""
        if file == PARTITION:
            self.drop(directory)
            kind = self._files(directory)[PARTITION]
            wrong = "" if kind == MEMBER else self._wrong(directory, online)
            if wrong:
                self._files(directory)[PARTITION] = f"{kind} invalid ({wrong})"
            elif kind != MEMBER:
                self.taken[directory] = self._handed(directory)
            return
        for one in sorted(self.taken):
            self._review(one, directory, file)

    def drop(self, directory: CgroupDir) -> None:
        """The cgroup is no partition, or is no more."""
        self.taken.pop(directory, None)

    def _review(self, one: CgroupDir, written: CgroupDir, file: str) -> None:
        kind, handed = self._files(one)[PARTITION], self._handed(one)
        if file == CPUS and layout.parent_of(written) == layout.parent_of(one) and self._overlaps(one):
            self._files(one)[PARTITION] = f"{kind} invalid ({NOT_EXCLUSIVE})"
        elif not handed:
            own = written == one
            self._files(one)[PARTITION] = f"{kind} invalid ({NOT_ROOT})" if own else MEMBER
        else:
            self.taken[one] = handed
            return
        self.drop(one)

    def _wrong(self, directory: CgroupDir, online: CpuSet) -> str:
        handed, others = self._handed(directory), union(self.taken.values())
        if self._overlaps(directory):
            return NOT_EXCLUSIVE
        if not self.permitted:
            return NOT_PERMITTED
        if not handed or not handed.isdisjoint(others) or online - others <= handed:
            return BAD_LIST
        return ""

    def _overlaps(self, directory: CgroupDir) -> bool:
        own = _claimed(self._files(directory))
        return any(not own.isdisjoint(_claimed(self._files(other))) for other in self._beside(directory))

    def _handed(self, directory: CgroupDir) -> CpuSet:
        """``cpuset.cpus.exclusive.effective``: what every cgroup down to here hands down."""
        cpus = cpus_in(self._files(ROOT).get(EXCLUSIVE, ""))
        for one in (directory, *layout.ancestors(directory)):
            cpus &= cpus_in(self._files(one).get(EXCLUSIVE, ""))
        return cpus


def _claimed(files: Mapping[str, str]) -> CpuSet:
    return cpus_in(files.get(EXCLUSIVE, "")) or cpus_in(files.get(CPUS, ""))


def _collides(exclusive: CpuSet, beside: Mapping[str, str]) -> bool:
    """Whether a sibling hands some of it down as well, or would have no CPU left of its own."""
    theirs, asked = cpus_in(beside.get(EXCLUSIVE, "")), cpus_in(beside.get(CPUS, ""))
    return not exclusive.isdisjoint(theirs) or (asked != NO_CPUS and asked <= exclusive)
