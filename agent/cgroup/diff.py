"""From the observed tree to the wanted one: ordered operations, so that no two sets ever overlap.

A cgroup is *bearing* if processes run on its own cpuset: containers that stand apart and shared
pools. Pod cgroups only enclose. The order:

1. enable missing controllers, top-down; open what somebody narrowed that only encloses; remove what belongs
   to nobody; dissolve partitions that are to be none, or elsewhere, and take back from ``cpuset.cpus.exclusive``
   what is not to be there
2. bearing cgroups give up the CPUs they may not keep; nothing grows before everything has shrunk
3. enclosing cgroups widen to old and new, so that every child's set fits at every moment
4. the rare bearing cgroup whose old and new sets share nothing moves
5. enclosing cgroups narrow to their new set
6. memory nodes that differ are written, parents first, so that what is made has its nodes above it
7. ``cpuset.cpus.exclusive`` is handed down; new cgroups are made, parents first, each confined before it can
   hold a process
8. bearing cgroups grow, and all other files that differ are written, parents first
9. partitions are made: by now no other cgroup has any of their CPUs

Every write is read back before the next operation (see `Write`), and only differences are written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet

from agent.cgroup import layout
from agent.cgroup.layout import ROOT, CgroupDir, Kind
from agent.cgroup.partition import granted, is_granted, is_invalid, is_partition, unpartitioned
from agent.cgroup.strangers import confining
from agent.cgroup.tree import (
    CPUS,
    CPUS_EFFECTIVE,
    EFFECTIVE,
    EXCLUSIVE,
    MEMBER,
    MEMS,
    PARTITION,
    CgroupOp,
    EnableControllers,
    MakeDir,
    Observed,
    ObservedDir,
    RemoveDir,
    Room,
    Setting,
    Wanted,
    WantedDir,
    Write,
    cpus_in,
    top_down,
)
from agent.domain.idset import NO_CPUS, CpuSet, union

_UNSEEN = ObservedDir()
_NOT_OURS = frozenset({Kind.ROOT, Kind.FOREIGN})
_BEARING = frozenset({Kind.POOL, Kind.CONTAINER})
_OPEN = frozenset({Kind.ROOT, Kind.QOS, Kind.POD})
"""What encloses others, and has room for them where that was not taken from it."""
_ORDERED = frozenset({CPUS, EXCLUSIVE, PARTITION})


def diff(wanted: Wanted, observed: Observed) -> tuple[CgroupOp, ...]:
    """The operations that make ``observed`` into ``wanted``, none if it already is; no process is killed."""
    planned, wanted = wanted, unpartitioned(confining(wanted, observed), observed)
    kept = tuple(directory for directory in wanted.dirs if directory in observed.dirs)
    sets = _CpusetOrder(wanted, observed, kept, wanted.dirs.keys() - planned.dirs.keys())
    others = tuple(_other_writes(wanted, observed, kept))
    partitions = _PartitionOrder(wanted, observed, kept)
    return (
        *_enables(wanted, observed, kept),
        *sets.openings,
        *_removals(wanted, observed),
        *partitions.dissolutions(),
        *partitions.returns(),
        *_rest_of(sets.openings, wanted),
        *sets.shrinks(),
        *sets.widenings(),
        *sets.moves(),
        *sets.narrowings(),
        *(op for op in others if op.file == MEMS),
        *partitions.grants(),
        *_creations(wanted, observed),
        *sets.growths(),
        *(op for op in others if op.file != MEMS),
        *partitions.makings(),
    )


def _enables(wanted: Wanted, observed: Observed, kept: tuple[CgroupDir, ...]) -> Iterator[CgroupOp]:
    for directory in kept:
        missing = wanted.dirs[directory].subtree - observed.dirs[directory].subtree
        if missing:
            yield EnableControllers(directory, tuple(sorted(missing)))


def _removals(wanted: Wanted, observed: Observed) -> Iterator[CgroupOp]:
    """Remove pods that are gone; in a pod that stays, what is empty.

    A partition is dissolved first: older kernels come to that only some time after the removal. A populated
    container cgroup in a pod that stays is reported as a deviation.
    """
    known = wanted.dirs.keys() | wanted.held
    for directory in reversed(top_down(observed.dirs.keys() - known)):
        if _is_gone(known, observed, directory):
            if observed.dirs[directory].files.get(PARTITION, MEMBER) != MEMBER:
                yield Write(directory, PARTITION, MEMBER)
            yield RemoveDir(directory)


def _is_gone(known: AbstractSet[CgroupDir], observed: Observed, directory: CgroupDir) -> bool:
    kind = layout.kind_of(directory)
    if kind in _NOT_OURS:
        return False
    if kind is Kind.QOS:
        return not any(d.startswith(directory + "/") and _stays(known, d) for d in observed.dirs)
    line = (directory, *layout.ancestors(directory))
    pod = next(d for d in line if layout.kind_of(d) is Kind.POD)
    if pod not in known:
        return True
    owner = next(d for d in line if layout.kind_of(d) is not Kind.NESTED)
    return owner not in known and not observed.dirs[owner].populated


def _stays(known: AbstractSet[CgroupDir], directory: CgroupDir) -> bool:
    return directory in known or layout.kind_of(directory) is Kind.FOREIGN


class _CpusetOrder:
    """The writes of ``cpuset.cpus`` to cgroups that exist, phase by phase."""

    def __init__(
        self,
        wanted: Wanted,
        observed: Observed,
        kept: tuple[CgroupDir, ...],
        strange: AbstractSet[CgroupDir],
    ) -> None:
        confined = [
            d for d in kept if layout.kind_of(d) is not Kind.POOLED and CPUS in wanted.dirs[d].settings
        ]
        # Without cgroups of ours in it the processes of a stranger are in its pod cgroup itself.
        bare = strange - {layout.parent_of(d) for d in confined}
        self._bearing = [d for d in confined if layout.kind_of(d) in _BEARING or d in bare]
        self._enclosing = [d for d in confined if layout.kind_of(d) is Kind.POD and d not in bare]
        self._now: dict[CgroupDir, CpuSet] = {}
        self._text: dict[CgroupDir, str] = {}
        self._new = {d: cpus_in(wanted.dirs[d].settings[CPUS].text) for d in confined}
        self.openings = tuple(_openings(wanted, observed, kept))
        self._opened = {op.directory for op in self.openings if op.file == CPUS}
        # What is handed down may be offline.
        self._there = union(
            (*(cpus_in(d.files.get(CPUS_EFFECTIVE, "")) for d in observed.dirs.values()), *self._new.values())
        )
        for directory in confined:
            files = observed.dirs[directory].files
            self._text[directory] = files.get(CPUS, "")
            self._now[directory] = self._once_opened(directory, files)

    def _once_opened(self, directory: CgroupDir, files: Mapping[str, str]) -> CpuSet:
        """The CPUs of a cgroup, of which those above are known, when all above have theirs back."""
        if directory in self._opened:
            return self._new[directory]
        if CPUS_EFFECTIVE not in files:
            return _ALL  # without the controller the cgroup runs anywhere: it must shrink first
        above = layout.parent_of(directory) if self._opened else directory
        if above not in self._opened:
            return granted(files) & self._there
        self._opened.add(directory)
        room = self._now[above]
        return cpus_in(files[CPUS]) & room or room

    def shrinks(self) -> Iterator[CgroupOp]:
        """Bearing cgroups keep only what they may keep, deepest first."""
        for directory in reversed(self._bearing):
            now, new = self._now[directory], self._new[directory]
            if not now <= new and not now.isdisjoint(new):
                yield from self._write(directory, now & new)

    def widenings(self) -> Iterator[CgroupOp]:
        """Enclosing cgroups cover their old and new set."""
        for directory in self._enclosing:
            now, new = self._now[directory], self._new[directory]
            if not new <= now:
                yield from self._write(directory, now | new)

    def moves(self) -> Iterator[CgroupOp]:
        """Bearing cgroups without a CPU that they could keep."""
        for directory in self._bearing:
            if self._now[directory].isdisjoint(self._new[directory]):
                yield from self._write(directory, self._new[directory])

    def narrowings(self) -> Iterator[CgroupOp]:
        """Enclosing cgroups shrink to their new set, children before parents."""
        for directory in reversed(self._enclosing):
            yield from self._settle(directory)

    def growths(self) -> Iterator[CgroupOp]:
        """Bearing cgroups get all of their new set."""
        for directory in self._bearing:
            yield from self._settle(directory)

    def _settle(self, directory: CgroupDir) -> Iterator[CgroupOp]:
        new = self._new[directory]
        if cpus_in(self._text[directory]) != new:
            yield from self._write(directory, new)

    def _write(self, directory: CgroupDir, cpus: CpuSet) -> Iterator[CgroupOp]:
        self._now[directory] = cpus
        self._text[directory] = str(cpus)
        yield Write(directory, CPUS, str(cpus))


_ALL = CpuSet((1 << 65_536) - 1)


def _openings(wanted: Wanted, observed: Observed, kept: tuple[CgroupDir, ...]) -> Iterator[Write]:
    """Cpusets that leave too little room, top-down: what is in them has what it asks for again.

    Beside a partition there is no room for what it has, until it is dissolved.
    """
    seen = (one.files for one in observed.dirs.values())
    taken = union(cpus_in(files.get(EXCLUSIVE, "")) for files in seen if is_partition(files))
    for directory in kept:
        if layout.kind_of(directory) not in _OPEN:
            continue
        new, files = wanted.dirs[directory].settings, observed.dirs[directory].files
        for file in EFFECTIVE:
            setting = new.get(file)
            if isinstance(setting, Room) and not setting.is_met(files.get(file, "")):
                beside = taken if file == CPUS and directory != ROOT else NO_CPUS
                yield Write(directory, file, str(cpus_in(setting.text) - beside))


def _rest_of(openings: tuple[Write, ...], wanted: Wanted) -> Iterator[Write]:
    for op in openings:
        text = wanted.dirs[op.directory].settings[op.file].text
        if op.text != text:
            yield Write(op.directory, op.file, text)


def _is_opening(directory: CgroupDir, setting: Setting) -> bool:
    return isinstance(setting, Room) and layout.kind_of(directory) in _OPEN


class _PartitionOrder:
    """The writes of ``cpuset.cpus.partition``, and of ``cpuset.cpus.exclusive`` to cgroups that exist."""

    def __init__(self, wanted: Wanted, observed: Observed, kept: tuple[CgroupDir, ...]) -> None:
        self._wanted = wanted
        self._observed = observed
        self._kinds = {
            d: one.settings[PARTITION].text for d, one in wanted.dirs.items() if PARTITION in one.settings
        }
        self._now = {d: observed.dirs[d].files.get(PARTITION, MEMBER) for d in self._kinds.keys() & set(kept)}
        handing = [d for d in kept if EXCLUSIVE in wanted.dirs[d].settings]
        self._handing = handing
        self._exclusive = {d: cpus_in(observed.dirs[d].files.get(EXCLUSIVE, "")) for d in handing}
        self._new = {d: cpus_in(wanted.dirs[d].settings[EXCLUSIVE].text) for d in handing}

    def dissolutions(self) -> Iterator[CgroupOp]:
        """No partition, or no valid one, is left where none is to be, nor one that keeps none of its CPUs.

        Of others the kernel changes the set in place: it goes by ``cpuset.cpus.exclusive`` (Linux 6.12).
        """
        for directory in reversed([d for d in self._kinds if d in self._now]):
            if self._now[directory] != MEMBER and self._is_another(directory):
                self._now[directory] = MEMBER
                yield Write(directory, PARTITION, MEMBER)

    def _is_another(self, directory: CgroupDir) -> bool:
        settings, files = self._wanted.dirs[directory].settings, self._observed.dirs[directory].files
        moves = any(
            cpus_in(files.get(file, "")).isdisjoint(cpus_in(settings[file].text))
            for file in (CPUS, EXCLUSIVE)
            if file in settings
        )
        return self._kinds[directory] == MEMBER or moves or is_invalid(files)

    def returns(self) -> Iterator[CgroupOp]:
        """CPUs that are not handed down any more go back, children first.

        Those of an invalid partition, too: Linux 6.12 may keep them from everybody until then.
        """
        for directory in reversed(self._handing):
            now = self._exclusive[directory]
            keeps = (
                NO_CPUS if is_invalid(self._observed.dirs[directory].files) else now & self._new[directory]
            )
            if keeps != now:
                yield from self._hand(directory, keeps)

    def grants(self) -> Iterator[CgroupOp]:
        """Each cgroup hands down all that it is to."""
        for directory in self._handing:
            if self._exclusive[directory] != self._new[directory]:
                yield from self._hand(directory, self._new[directory])

    def makings(self) -> Iterator[CgroupOp]:
        """Partitions, new and changed."""
        for directory, kind in self._kinds.items():
            if self._now.get(directory, MEMBER) != kind:
                yield Write(directory, PARTITION, kind)

    def _hand(self, directory: CgroupDir, cpus: CpuSet) -> Iterator[CgroupOp]:
        self._exclusive[directory] = cpus
        yield Write(directory, EXCLUSIVE, str(cpus))


def _creations(wanted: Wanted, observed: Observed) -> Iterator[CgroupOp]:
    for directory, new in wanted.dirs.items():
        if directory in observed.dirs:
            continue
        yield MakeDir(directory)
        yield from (op for op in _writes(directory, new, _UNSEEN) if op.file != PARTITION)
        if new.subtree:
            yield EnableControllers(directory, tuple(sorted(new.subtree)))


def _other_writes(wanted: Wanted, observed: Observed, kept: tuple[CgroupDir, ...]) -> Iterator[Write]:
    for directory in kept:
        for op in _writes(directory, wanted.dirs[directory], observed.dirs[directory]):
            pooled = op.file == CPUS and layout.kind_of(directory) is Kind.POOLED
            if op.file not in _ORDERED or pooled:
                yield op


def _writes(directory: CgroupDir, new: WantedDir, old: ObservedDir) -> Iterator[Write]:
    for file, setting in new.settings.items():
        found = old.files.get(file)
        if found is None:
            is_met = isinstance(setting, Room)
        else:
            is_met = setting.is_met(found) or _is_opening(directory, setting)
        if not is_met:
            yield Write(directory, file, setting.text)


def deviations(wanted: Wanted, observed: Observed) -> tuple[str, ...]:
    """A sentence for each difference between the two trees, none if the kernel does as wanted."""
    return tuple(_deviations(wanted, observed))


def _deviations(wanted: Wanted, observed: Observed) -> Iterator[str]:
    for problem in wanted.problems:
        yield f"{problem.directory}: {problem.reason}"
    for directory, new in unpartitioned(confining(wanted, observed), observed).dirs.items():
        shown = directory or "the root cgroup"
        old = observed.dirs.get(directory)
        if old is None:
            yield f"{shown} does not exist"
            continue
        missing = new.subtree - old.subtree
        if missing:
            yield f"{shown} does not give its children {', '.join(sorted(missing))}"
        yield from _file_deviations(shown, new, old)
    for directory in top_down(observed.dirs.keys() - wanted.dirs.keys() - wanted.held):
        kind = layout.kind_of(directory)
        if kind is Kind.FOREIGN:
            yield f"{directory} ({kind.value}) is not in the plan"
        elif kind is not Kind.NESTED:
            state = "holds processes" if observed.dirs[directory].populated else "is empty"
            yield f"{directory} ({kind.value}) is not in the plan and {state}"


def _file_deviations(shown: str, new: WantedDir, old: ObservedDir) -> Iterator[str]:
    for file, setting in new.settings.items():
        found = old.files.get(file)
        if found is None:
            yield f"{shown} has no {file}, wanted {setting.text}"
        elif not setting.is_met(found):
            yield f"{shown} has {file} {found or 'empty'}, wanted {setting.text}"
        elif isinstance(setting, Room):
            continue  # what is not there above it is missing where it is asked for
        elif file in EFFECTIVE and not is_granted(file, setting.text, old.files):
            effective = old.files.get(EFFECTIVE[file]) or "nothing"
            yield f"{shown} asks for {file} {setting.text} and gets {effective}"
    if CPUS in new.settings and CPUS_EFFECTIVE in old.files and cpus_in(old.files[CPUS_EFFECTIVE]) == NO_CPUS:
        yield f"{shown} has no CPU to run on"
