"""What the kernel has, as it was read back last: enforcement then costs what changed, not what there is.

A group (a pod's cgroups, or what is above the pods) is remembered once it was read, and each write that
was read back is entered. It is read anew where that may not hold any more: after an error in it, after
somebody else touched it, where cgroups of it are to go (only the kernel knows who lives there), and,
a few at a time, whenever `suspect` says so. Where the backend cannot tell who else writes, nothing is
remembered at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Final

from agent.cgroup import layout
from agent.cgroup.backend import SUBTREE_CONTROL, ApplyError, CgroupBackend, EnforcementError, apply
from agent.cgroup.diff import diff
from agent.cgroup.layout import ROOT, CgroupDir, Kind
from agent.cgroup.partition import granted
from agent.cgroup.plan import joined
from agent.cgroup.strangers import strangers
from agent.cgroup.tree import (
    CPUS_EFFECTIVE,
    EFFECTIVE,
    CgroupOp,
    EnableControllers,
    MakeDir,
    Observed,
    ObservedDir,
    RemoveDir,
    Wanted,
    Write,
)
from agent.domain.idset import CpuSet

REMOVED: Final = "cgroup"
"""The ``file`` of a repair that made a removed cgroup again."""

_Dirs = dict[CgroupDir, ObservedDir]
_KERNELS_OWN: Final = frozenset(EFFECTIVE.values())
_VANISHED: Final = frozenset({"ENOENT", "ENODEV"})
_POD: Final = frozenset({Kind.POD})
_THEIRS: Final = frozenset({Kind.NESTED, Kind.FOREIGN})
_NOTHING: Final = Wanted()
_AS_MADE: Final = ObservedDir(files=dict.fromkeys(EFFECTIVE, ""))


@dataclass(frozen=True, slots=True)
class Repair:
    """A file that somebody else had changed and that was put right: it was ``found`` with that text."""

    directory: CgroupDir
    file: str
    found: str


@dataclass(slots=True)
class Mirror:
    """The remembered subtree of ``backend``. Its user locks."""

    backend: CgroupBackend
    repairs: list[Repair] = field(default_factory=list)
    """What was repaired since somebody took them out."""
    strangers: dict[CgroupDir, CpuSet] = field(default_factory=dict)
    """The cgroups with processes of pods that have no part, and the CPUs they were found on."""
    put_off: Mapping[CgroupDir, EnforcementError] = field(default_factory=dict)
    """Whose memory limit waits until less is in use; tried again with each `settle`."""
    _seen: dict[CgroupDir, _Dirs] = field(default_factory=dict)
    _doubted: set[CgroupDir] = field(default_factory=set)
    _unsettled: set[CgroupDir] = field(default_factory=set)
    _drifted: dict[tuple[CgroupDir, str], str] = field(default_factory=dict)
    _blind: bool = True
    """Whether any cgroup may be otherwise than remembered."""

    def settle(self, parts: Mapping[CgroupDir, Wanted], changed: AbstractSet[CgroupDir]) -> int:
        """Bring the kernel in line with ``parts``, of which ``changed`` are others than before.

        Returns the number of operations. Raises ApplyError: what is not done is done next time.
        """
        self._unsettled |= changed
        if ROOT in changed:  # they follow the node shared pool
            self._unsettled |= self.strangers.keys()
        self._heed()
        done, moved_in = 0, set[CgroupDir]()
        while True:
            fresh = self._look(parts)
            ops = self._ops(parts)
            try:
                put_off = apply(self.backend, ops, self._enter)
            except ApplyError as error:
                group = layout.group_of(error.op.directory)
                self._distrust(group)
                # Removed after it was read, before we were told.
                vanished = error.cause.code in _VANISHED and group not in fresh
                # Read as empty, and then somebody came.
                joined_late = _is_busy(error) and group not in moved_in
                if not (vanished or joined_late):
                    raise
                moved_in.add(group)
                done += len(error.done)
            except BaseException:
                self._blind = True
                raise
            else:
                self.put_off = put_off
                self._unsettled = {layout.group_of(directory) for directory in put_off}
                kept = self._drifted.items() if put_off else ()
                self._drifted = {key: found for key, found in kept if key[0] in put_off}
                return done + len(ops) - len(put_off)

    def suspect(self, groups: Iterable[CgroupDir]) -> None:
        """Let the next `settle` read these groups anew."""
        self._doubted.update(groups)

    def forget(self) -> None:
        """Let the next `settle` read everything anew."""
        self._blind = True

    def _heed(self) -> None:
        touched = self.backend.changed()
        if touched is None:
            self._blind = True
        else:
            self._doubted.update(map(layout.group_of, touched))

    def _distrust(self, group: CgroupDir) -> None:
        """What was remembered is nothing to measure drift by either: the last write may have come half way."""
        self._seen.pop(group, None)
        self._doubted.add(group)

    # --- reading ----------------------------------------------------------------------------

    def _look(self, parts: Mapping[CgroupDir, Wanted]) -> AbstractSet[CgroupDir]:
        """Read what is in doubt, or about to lose cgroups; returns which groups were read."""
        if not self._blind and ROOT in self._doubted:
            self._look_above(parts)
        if self._blind:
            return self._look_everywhere(parts)
        self._unsettled |= self._doubted
        losing = {group for group in self._unsettled if self._loses(group, parts.get(group, _NOTHING))}
        fresh = self._doubted | losing
        for group in fresh - {ROOT}:
            self._see(group, dict(self.backend.observe(group).dirs))
        self._doubted.clear()
        return fresh

    def _loses(self, group: CgroupDir, wanted: Wanted) -> bool:
        """Whether cgroups of the group are to go, or it was never read."""
        seen = self._seen.get(group)
        if seen is None:
            return True
        known = wanted.dirs.keys() | wanted.held
        # What stays in a pod that stays is nobody's to remove.
        stays = _THEIRS if group in known else frozenset[Kind]()
        return any(layout.kind_of(directory) not in stays for directory in seen.keys() - known)

    def _look_above(self, parts: Mapping[CgroupDir, Wanted]) -> None:
        """Read what is above the pods, and which pods there are. What changed above may have changed all."""
        found = self.backend.observe(ROOT, _POD).dirs
        pods = {directory for directory in found if layout.kind_of(directory) is Kind.POD}
        above = {directory: seen for directory, seen in found.items() if directory not in pods}
        self._blind = ROOT not in self._seen or not _is_as(self._seen[ROOT], above)
        self._see(ROOT, above)
        self._doubted |= (pods | parts.keys()) ^ self._seen.keys()

    def _look_everywhere(self, parts: Mapping[CgroupDir, Wanted]) -> AbstractSet[CgroupDir]:
        groups: dict[CgroupDir, _Dirs] = {}
        for directory, seen in self.backend.observe().dirs.items():
            groups.setdefault(layout.group_of(directory), {})[directory] = seen
        every = groups.keys() | parts.keys() | self._seen.keys()
        for group in every:
            self._see(group, groups.get(group, {}))
        self._unsettled |= every
        self._doubted.clear()
        self._blind = False
        return every

    def _see(self, group: CgroupDir, found: _Dirs) -> None:
        """Remember what was found, and what of it is not as it was remembered."""
        for directory, before in self._seen.get(group, {}).items():
            now = found.get(directory)
            if now is None:
                self._drifted[directory, REMOVED] = "gone"
                continue
            if not before.subtree <= now.subtree:
                self._drifted[directory, SUBTREE_CONTROL] = " ".join(sorted(now.subtree))
            for file in before.files.keys() - _KERNELS_OWN:
                text = now.files.get(file, "")
                if text != before.files[file]:
                    self._drifted[directory, file] = text
        self._seen[group] = found

    # --- writing ----------------------------------------------------------------------------

    def _ops(self, parts: Mapping[CgroupDir, Wanted]) -> tuple[CgroupOp, ...]:
        """The operations for the unsettled groups: in the others nothing differs."""
        dirs: _Dirs = {}
        for group in self._unsettled:
            dirs |= self._seen.get(group, {})
        wanted = joined(parts[group] for group in self._unsettled if group in parts)
        wanted = replace(wanted, shared=parts.get(ROOT, _NOTHING).shared)
        observed = Observed(dirs=dirs)
        self._meet(strangers(wanted, observed))
        return diff(wanted, observed)

    def _meet(self, found: Mapping[CgroupDir, CpuSet]) -> None:
        """``found`` are the strangers among the unsettled groups."""
        elsewhere = {pod: cpus for pod, cpus in self.strangers.items() if pod not in self._unsettled}
        self.strangers = elsewhere | {pod: self.strangers.get(pod, cpus) for pod, cpus in found.items()}

    def _enter(self, op: CgroupOp, files: Mapping[str, str]) -> None:
        """Remember what an operation has brought about."""
        group = layout.group_of(op.directory)
        dirs = self._seen.setdefault(group, {})
        match op:
            case Write(directory, file, _):
                dirs[directory] = _with(dirs[directory], files)
                # what all pods have from above changes with it
                self._blind |= group == ROOT and file in EFFECTIVE
                self._repaired(directory, file)
            case MakeDir(directory):
                dirs[directory] = _AS_MADE
                self._repaired(directory, REMOVED)
            case EnableControllers(directory, controllers):
                known = dirs[directory]
                dirs[directory] = replace(known, subtree=known.subtree | set(controllers))
                self._repaired(directory, SUBTREE_CONTROL)
            case RemoveDir(directory):
                dirs.pop(directory, None)
                if not dirs:
                    del self._seen[group]

    def _repaired(self, directory: CgroupDir, file: str) -> None:
        found = self._drifted.pop((directory, file), None)
        if found is not None:
            self.repairs.append(Repair(directory, file, found))


def _with(known: ObservedDir, files: Mapping[str, str]) -> ObservedDir:
    return ObservedDir(files={**known.files, **files}, subtree=known.subtree, populated=known.populated)


def _is_busy(error: ApplyError) -> bool:
    return isinstance(error.op, RemoveDir) and error.cause.code == "EBUSY"


def _is_as(before: _Dirs, found: _Dirs) -> bool:
    """Whether all that is remembered was found, apart from CPUs that partitions below took or gave back."""
    return all(
        directory in found
        and was.subtree == found[directory].subtree
        and _kept(was).items() <= _kept(found[directory]).items()
        for directory, was in before.items()
        if layout.kind_of(directory) is not Kind.FOREIGN
    ) and (ROOT not in before or granted(before[ROOT].files) == granted(found[ROOT].files))


def _kept(seen: ObservedDir) -> Mapping[str, str]:
    return {file: text for file, text in seen.files.items() if file != CPUS_EFFECTIVE}
