"""`CgroupBackend` in memory, with the kernel's rules that matter to plans; shipped for tests and rehearsals.

Effective cpusets follow the parents', files exist only where the parent passes their controller on,
inner cgroups hold no processes, cgroups in use are not removed, and bad values get the kernel's errno.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

from agent.cgroup import layout
from agent.cgroup.backend import (
    DIRECTORY,
    NOTHING,
    PROCS,
    SUBTREE_CONTROL,
    Enabled,
    Explained,
    Prepared,
    Problem,
    check_read_back,
    check_usage,
)
from agent.cgroup.fakepartitions import FILES as PARTITION_FILES
from agent.cgroup.fakepartitions import FakePartitions
from agent.cgroup.fakevalues import accepted, ids_in, kernel_error
from agent.cgroup.layout import ROOT, CgroupDir, Kind
from agent.cgroup.tree import (
    CPU_MAX,
    CPU_WEIGHT,
    CPUS,
    CPUS_EFFECTIVE,
    EXCLUSIVE,
    HUGETLB,
    MEMBER,
    MEMORY_MAX,
    MEMORY_OOM_GROUP,
    MEMS,
    MEMS_EFFECTIVE,
    OPTIONAL_CONTROLLERS,
    PARTITION,
    PIDS_MAX,
    REQUIRED_CONTROLLERS,
    CgroupOp,
    EnableControllers,
    KernelOffer,
    MakeDir,
    Observed,
    ObservedDir,
    RemoveDir,
    Write,
    cpus_in,
    is_planned,
)
from agent.domain.idset import NO_CPUS, CpuSet, IdSet, NodeMask, union

_HUGETLB_MAX: Final = f"{HUGETLB}2MB.max"
_DEFAULTS: Final[Mapping[str, Mapping[str, str]]] = {
    "cpuset": {
        **dict.fromkeys((CPUS, MEMS, CPUS_EFFECTIVE, MEMS_EFFECTIVE, EXCLUSIVE), ""),
        PARTITION: MEMBER,
    },
    "cpu": {CPU_MAX: "max 100000", CPU_WEIGHT: "100"},
    "memory": {MEMORY_MAX: "max", MEMORY_OOM_GROUP: "0", "memory.current": "0"},
    "hugetlb": {_HUGETLB_MAX: "max"},
    "pids": {PIDS_MAX: "max"},
}
_DOMAIN: Final = frozenset({"memory", "hugetlb"})
"""Controllers whose cgroups hold no processes beside children; the others also work on threads."""
_CONTROLLER_OF: Final = {file: name for name, files in _DEFAULTS.items() for file in files}
_SHOWN: Final = frozenset({CPUS_EFFECTIVE, MEMS_EFFECTIVE})
"""The files whose content follows from where processes run."""
_DEFAULT_OF: Final = {file: text for files in _DEFAULTS.values() for file, text in files.items()}


@dataclass(slots=True)
class _Cgroup:
    available: set[str]
    """The controllers of the cgroup above, which that one passes on."""
    below: set[CgroupDir] = field(default_factory=set)
    subtree: set[str] = field(default_factory=set)
    files: dict[str, str] = field(default_factory=dict)
    pids: set[int] = field(default_factory=set)
    usage: int = 0

    def content(self, file: str) -> str:
        """What was written, or what the file of a new cgroup holds."""
        return self.files.get(file, _DEFAULT_OF[file])


class _Effective(NamedTuple):
    """Where the processes of a cgroup run."""

    cpus: CpuSet
    mems: NodeMask

    def within(self, files: Mapping[str, str]) -> _Effective:
        """Of a cgroup below, with these contents: what it asks for, as far as it is here; all if that is nothing."""
        cpus = cpus_in(files.get(CPUS, "")) & self.cpus or self.cpus
        mems = _mems_in(files.get(MEMS, "")) & self.mems or self.mems
        return _Effective(cpus, mems)

    def shown(self, file: str) -> str:
        """What the one of the `_SHOWN` files holds."""
        return _text(self.cpus if file == CPUS_EFFECTIVE else self.mems)


class FakeCgroups:
    """A subtree on a machine with these ids. ``log`` is every operation that succeeded."""

    def __init__(
        self, online: CpuSet, nodes: NodeMask, *, possible: CpuSet = NO_CPUS, page: int = 4096
    ) -> None:
        self.online = online
        self.nodes = nodes
        self.log: list[CgroupOp] = []
        self._possible = possible | online
        self._page = page
        self._passed_on: set[str] = set()
        self._cgroups: dict[CgroupDir, _Cgroup] = {}
        self._failures: dict[tuple[CgroupDir, str], int] = {}
        self._elsewhere: set[int] = set()
        self._last_pid = 0
        self._stranger = False
        self._touched: set[CgroupDir] = set()
        self.absent: frozenset[str] = frozenset()
        """Files that this kernel does not have."""
        self.partitions = FakePartitions(self._files, self._beside)
        """The kernel's view of them."""

    def spawn(self) -> int:
        """A new process outside our subtree."""
        self._last_pid += 1
        self._elsewhere.add(self._last_pid)
        return self._last_pid

    def exit(self, pid: int) -> None:
        """A process ends."""
        for pids in (self._elsewhere, *self._all_pids()):
            pids.discard(pid)

    def fail(self, directory: CgroupDir, file: str, number: int) -> None:
        """Let every operation on this file (`DIRECTORY`: making and removing) fail with errno ``number``."""
        self._failures[directory, file] = number

    def mend(self) -> None:
        """Let nothing fail any more."""
        self._failures.clear()

    @contextmanager
    def somebody_else(self) -> Iterator[None]:
        """What is done in this context, another program does: `changed` tells of it, and it is not logged."""
        known, self._stranger = len(self.log), True
        try:
            yield
        finally:
            self._stranger = False
            del self.log[known:]

    def changed(self) -> frozenset[CgroupDir] | None:
        """See `CgroupBackend.changed`."""
        touched, self._touched = frozenset(self._touched), set()
        return touched

    def use_memory(self, directory: CgroupDir, amount: int) -> None:
        """Let ``memory.current`` be ``amount`` bytes."""
        self._cgroups[directory].files["memory.current"] = str(amount)

    def preflight(self) -> tuple[Problem, ...]:
        """See `CgroupBackend.preflight`: nothing stands in the way."""
        return ()

    def prepare(self) -> Prepared:
        """See `CgroupBackend.prepare`."""
        missing = {*REQUIRED_CONTROLLERS, *OPTIONAL_CONTROLLERS} - self._passed_on
        created = () if ROOT in self._cgroups else ("/fake",)
        self._cgroups.setdefault(ROOT, _Cgroup(self._passed_on))
        self._passed_on |= missing
        enabled = (Enabled("/", tuple(sorted(missing))),) if missing else ()
        return Prepared(enabled=enabled, created=created)

    def restore(self, prepared: Prepared) -> None:
        """See `CgroupBackend.restore`."""
        if prepared.created and not self._children(ROOT) and not self._cgroups[ROOT].pids:
            del self._cgroups[ROOT]
        for step in prepared.enabled:
            busy = self._cgroups[ROOT].subtree if ROOT in self._cgroups else set()
            self._passed_on -= set(step.controllers) - busy

    def offer(self) -> KernelOffer:
        """See `CgroupBackend.offer`."""
        files = frozenset(_planned_of(frozenset(self._find(ROOT).available))) - self.absent
        return KernelOffer(controllers=frozenset(self._passed_on), files=files, page_size=self._page)

    def observe(self, top: CgroupDir = ROOT, leave_out: frozenset[Kind] = NOTHING) -> Observed:
        """See `CgroupBackend.observe`."""
        dirs: dict[CgroupDir, ObservedDir] = {}
        if top in self._cgroups:
            self._collect(top, leave_out | {Kind.FOREIGN}, self._effective(top), dirs)
        return Observed(dirs=dirs)

    def _collect(
        self,
        directory: CgroupDir,
        closed: frozenset[Kind],
        effective: _Effective,
        dirs: dict[CgroupDir, ObservedDir],
    ) -> bool:
        """Add what is seen there and below; returns whether any of it is populated."""
        dirs[directory] = ObservedDir()
        kind, cgroup = layout.kind_of(directory), self._cgroups[directory]
        if kind in closed:
            return self.populated(directory)
        populated = bool(cgroup.pids)
        for below in self._children(directory):
            populated |= self._collect(below, closed, self._within(effective, below), dirs)
        if kind is not Kind.NESTED:
            dirs[directory] = ObservedDir(
                files={
                    file: effective.shown(file) if file in _SHOWN else cgroup.content(file)
                    for file in _planned_of(frozenset(cgroup.available))
                    if file not in self.absent
                },
                subtree=frozenset(cgroup.subtree),
                populated=populated,
            )
        return populated

    def exists(self, directory: CgroupDir) -> bool:
        """See `CgroupBackend.exists`."""
        return directory in self._cgroups

    def children(self, directory: CgroupDir) -> tuple[CgroupDir, ...]:
        """See `CgroupBackend.children`."""
        with Explained(directory, DIRECTORY):
            self._find(directory)
        return tuple(self._children(directory))

    def make(self, directory: CgroupDir) -> None:
        """See `CgroupBackend.make`."""
        with Explained(directory, DIRECTORY):
            self._inject(directory, DIRECTORY)
            available = self._passed_on
            if directory != ROOT:
                above = self._find(layout.parent_of(directory))
                above.below.add(directory)
                available = above.subtree
            self._cgroups.setdefault(directory, _Cgroup(available))
        self._note(directory, MakeDir(directory))

    def _note(self, where: CgroupDir, op: CgroupOp) -> None:
        self.log.append(op)
        self._touch(where)

    def _touch(self, where: CgroupDir) -> None:
        if self._stranger:
            self._touched.add(where)

    def remove(self, directory: CgroupDir) -> None:
        """See `CgroupBackend.remove`."""
        with Explained(directory, DIRECTORY):
            self._inject(directory, DIRECTORY)
            if directory not in self._cgroups:
                return
            if self._children(directory) or self._cgroups[directory].pids:
                raise kernel_error(errno.EBUSY)
            del self._cgroups[directory]
            self.partitions.drop(directory)
            if directory != ROOT:
                self._cgroups[layout.parent_of(directory)].below.discard(directory)
        self._note(layout.parent_of(directory), RemoveDir(directory))

    def read(self, directory: CgroupDir, file: str) -> str:
        """See `CgroupBackend.read`."""
        with Explained(directory, file):
            self._inject(directory, file)
            return self._show(directory, file)

    def write(self, directory: CgroupDir, file: str, text: str) -> Mapping[str, str]:
        """See `CgroupBackend.write`."""
        with Explained(directory, file, text):
            self._inject(directory, file)
            cgroup = self._find(directory)
            self._check_is_there(cgroup, file)
            if file == MEMORY_MAX:
                check_usage(directory, text, int(cgroup.content("memory.current")))
            cgroup.files[file] = self._accepted(directory, file, text)
            if file in PARTITION_FILES:
                self.partitions.follow(directory, file, self.online)
            self._touch(directory)
            seen = check_read_back(
                directory, file, text, lambda name: self._show(directory, name), self._page
            )
        self._note(directory, Write(directory, file, text))
        return seen

    def agree(self) -> None:
        """See `CgroupBackend.agree`. There is nobody to tell."""

    def enable(self, directory: CgroupDir, controllers: Sequence[str]) -> None:
        """See `CgroupBackend.enable`."""
        with Explained(directory, SUBTREE_CONTROL, " ".join(f"+{name}" for name in controllers)):
            self._inject(directory, SUBTREE_CONTROL)
            cgroup = self._find(directory)
            if not set(controllers) <= cgroup.available:
                raise kernel_error(errno.ENOENT)
            if cgroup.pids and _DOMAIN & {*controllers, *cgroup.subtree}:
                raise kernel_error(errno.EBUSY)
            cgroup.subtree |= set(controllers)
        self._note(directory, EnableControllers(directory, tuple(controllers)))

    def disable(self, directory: CgroupDir, controllers: Sequence[str]) -> None:
        """Take controllers from the children, as another program might; their values are lost."""
        with Explained(directory, SUBTREE_CONTROL):
            self._find(directory).subtree -= set(controllers)
        for below in self._children(directory):
            files = self._cgroups[below].files
            for file in [file for file in files if _CONTROLLER_OF[file] in controllers]:
                del files[file]
            if PARTITION not in files:
                self.partitions.drop(below)
        self._touched.add(directory)

    def procs(self, directory: CgroupDir) -> tuple[int, ...]:
        """See `CgroupBackend.procs`."""
        with Explained(directory, PROCS):
            return tuple(sorted(self._find(directory).pids))

    def add_process(self, directory: CgroupDir, pid: int) -> None:
        """See `CgroupBackend.add_process`."""
        with Explained(directory, PROCS, str(pid)):
            self._inject(directory, PROCS)
            target = self._find(directory)
            inner = any(map(self.populated, self._children(directory)))
            if target.subtree and (_DOMAIN & target.subtree or inner):
                raise kernel_error(errno.EBUSY)
            homes = [pids for pids in (self._elsewhere, *self._all_pids()) if pid in pids]
            if not homes:
                raise kernel_error(errno.ESRCH)
            homes[0].discard(pid)
            target.pids.add(pid)
            target.usage += 1

    def populated(self, directory: CgroupDir) -> bool:
        """See `CgroupBackend.populated`."""
        with Explained(directory, "cgroup.events"):
            return bool(self._find(directory).pids) or any(map(self.populated, self._children(directory)))

    def kill(self, directory: CgroupDir) -> None:
        """See `CgroupBackend.kill`."""
        with Explained(directory, "cgroup.kill", "1"):
            self._inject(directory, "cgroup.kill")
            self._find(directory)
            self._clear(directory)

    def stat(self, directory: CgroupDir) -> Mapping[str, int]:
        """See `CgroupBackend.stat`: each process runs for 1 µs, when it joins."""
        with Explained(directory, "cpu.stat"):
            cgroup = self._find(directory)
        stat = {"usage_usec": cgroup.usage}
        if "cpu" in cgroup.available:
            stat |= {"nr_periods": 0, "nr_throttled": 0}
        if "memory" in cgroup.available:
            stat["memory.current"] = int(cgroup.content("memory.current"))
        return stat

    def effective_cpus(self, directory: CgroupDir) -> CpuSet:
        """Where processes in the cgroup may run, whether or not it has a file that says so."""
        return self._effective(directory).cpus

    def _inject(self, directory: CgroupDir, file: str) -> None:
        if (directory, file) in self._failures:
            raise kernel_error(self._failures[directory, file])

    def _clear(self, directory: CgroupDir) -> None:
        self._cgroups[directory].pids.clear()
        for below in self._children(directory):
            self._clear(below)

    def _find(self, directory: CgroupDir) -> _Cgroup:
        if directory not in self._cgroups:
            raise kernel_error(errno.ENOENT)
        return self._cgroups[directory]

    def _children(self, directory: CgroupDir) -> list[CgroupDir]:
        return sorted(self._cgroups[directory].below)

    def _all_pids(self) -> list[set[int]]:
        return [cgroup.pids for cgroup in self._cgroups.values()]

    def _show(self, directory: CgroupDir, file: str) -> str:
        cgroup = self._find(directory)
        if file == SUBTREE_CONTROL:
            return " ".join(sorted(cgroup.subtree))
        self._check_is_there(cgroup, file)
        return self._effective(directory).shown(file) if file in _SHOWN else cgroup.content(file)

    def _check_is_there(self, cgroup: _Cgroup, file: str) -> None:
        if _CONTROLLER_OF.get(file) not in cgroup.available or file in self.absent:
            raise kernel_error(errno.ENOENT)

    def _effective(self, directory: CgroupDir) -> _Effective:
        if directory != ROOT:
            return self._within(self._effective(layout.parent_of(directory)), directory)
        return self._within(_Effective(self.online - union(self.partitions.taken.values()), self.nodes), ROOT)

    def _within(self, above: _Effective, directory: CgroupDir) -> _Effective:
        inside = above.within(self._cgroups[directory].files)
        taken = self.partitions.taken.get(directory)
        return inside if taken is None else _Effective(taken & self.online, inside.mems)

    def _files(self, directory: CgroupDir) -> dict[str, str]:
        return self._cgroups[directory].files

    def _beside(self, directory: CgroupDir) -> Iterator[CgroupDir]:
        if directory != ROOT:
            yield from (one for one in self._children(layout.parent_of(directory)) if one != directory)

    def _accepted(self, directory: CgroupDir, file: str, text: str) -> str:
        """The content after writing ``text``; raises the kernel's errno if it takes it not."""
        if file == CPUS:
            return self._accepted_ids(directory, text, self._possible)
        if file == MEMS:
            return self._accepted_ids(directory, text, self.nodes)
        if file == EXCLUSIVE:
            return self.partitions.accepted(directory, file, str(ids_in(text, self._possible)))
        if file == PARTITION:
            return self.partitions.accepted(directory, file, text)
        try:
            return accepted(file, text, self._page)
        except ValueError as error:
            raise kernel_error(errno.EINVAL) from error

    def _accepted_ids(self, directory: CgroupDir, text: str, possible: IdSet) -> str:
        ids = ids_in(text, possible)
        if not ids and self.populated(directory):
            raise kernel_error(errno.ENOSPC)
        return str(ids)


@lru_cache
def _planned_of(controllers: frozenset[str]) -> tuple[str, ...]:
    """The files that plans are about, of a cgroup that has these controllers."""
    return tuple(file for name in sorted(controllers) for file in _DEFAULTS[name] if is_planned(file))


_text = lru_cache(maxsize=4096)(str)
_mems_in = lru_cache(maxsize=4096)(NodeMask.parse)
