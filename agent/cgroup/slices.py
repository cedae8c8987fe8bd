"""Cgroups that are systemd's slices (``cgroupDriver: systemd``).

systemd makes and removes the cgroups, and knows what is written there as unit properties: what it writes on
its own, after a daemon-reload or with another property of the unit, is then what we want. Each file is
written and read back directly first, so that the kernel's own answer counts and nothing is left to be
awaited. The properties follow, of many units at once, before a cgroup is made or gains a CPU that another
left; when systemd has acted on them the files are read again.

A cgroup passes on the controllers that systemd finds a use for among the units in it, and no others. So each
slice is made with a property for each controller. One that holds no unit passes nothing on, until the first comes.

memory.oom.group is no property of a slice (OOMPolicy= is one of services and scopes), and yet systemd writes 0
there with everything else of the memory controller. Whoever reads the cgroup puts it back: it is nobody's
doing, and no drift to tell of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Final

from agent.cgroup import layout
from agent.cgroup.backend import (
    DIRECTORY,
    NOTHING,
    READ_BACK,
    REFUSED,
    CgroupBackend,
    EnforcementError,
    Prepared,
    Problem,
)
from agent.cgroup.layout import ROOT, CgroupDir, Kind
from agent.cgroup.naming import SliceNames
from agent.cgroup.tree import (
    CPUS,
    EXCLUSIVE,
    MEMORY_MAX,
    MEMORY_OOM_GROUP,
    MEMS,
    MEMS_EFFECTIVE,
    PARTITION,
    KernelOffer,
    Observed,
    ObservedDir,
    cpus_in,
    top_down,
)
from agent.cgroup.unitproperties import properties_of
from agent.cgroup.watch import DriftWatch
from agent.systemdbus.manager import UNIT_EXISTS, SystemdError, SystemdManager
from agent.systemdbus.properties import (
    ACTIVE,
    ALLOWED_CPUS,
    CPU_WEIGHT,
    DEFAULT_DEPENDENCIES,
    DESCRIPTION,
    MEMORY_ACCOUNTING,
    TASKS_ACCOUNTING,
    Properties,
)
from agent.systemdbus.unitname import MAX_UNIT_NAME

_GONE: Final = frozenset({"ENOENT", "ENODEV"})
_THEIRS: Final = frozenset({Kind.NESTED, Kind.FOREIGN})
_INNER: Final = frozenset({Kind.ROOT, Kind.QOS, Kind.POD, Kind.POOL})
_SYSTEMDS: Final = frozenset({"cpu", "cpuset", "memory", "pids"})
"""The controllers of ours that systemd enables and disables; it knows nothing of hugetlb."""
_FRESH: Final[Properties] = {
    # Slices are stopped early in a shutdown, before the pods' processes are: these stay until the end.
    DEFAULT_DEPENDENCIES: False,
    CPU_WEIGHT: 100,
    MEMORY_ACCOUNTING: True,
    TASKS_ACCOUNTING: True,
}
"""What lets systemd enable cpu, memory and pids in the slice above; cpuset: see `SystemdCgroups._all_nodes`."""
_NOTHING_YET: Final[Properties] = {}
_NEEDS_SYSTEMD: Final = "or set cgroupDriver: cgroupfs, which needs no systemd"


class SystemdCgroups:
    """`CgroupBackend` whose cgroups are slices; ``files`` reads and writes the same cgroups directly.

    ``watch`` is the one that ``files`` has.
    """

    def __init__(
        self,
        files: CgroupBackend,
        systemd: SystemdManager,
        names: SliceNames,
        watch: DriftWatch | None = None,
    ) -> None:
        self._files = files
        self._systemd = systemd
        self._names = names
        self._watch = watch
        self._oom_groups: set[CgroupDir] = set()
        self._otherwise: set[CgroupDir] = set()
        self._untold: dict[CgroupDir, dict[str, str]] = {}
        self._some_left = False
        """Whether a cgroup gave up CPUs in what systemd was not told yet."""

    # --- the subtree ------------------------------------------------------------------------

    def preflight(self) -> tuple[Problem, ...]:
        """See `CgroupBackend.preflight`."""
        return (*self._obstacles(), *self._files.preflight())

    def _obstacles(self) -> Iterator[Problem]:
        try:
            known = self._systemd.properties(self._names.root)
        except SystemdError as error:
            yield Problem(f"cgroupDriver: {error.message}", f"{error.hint}; {_NEEDS_SYSTEMD}")
            return
        if ALLOWED_CPUS not in known:
            yield Problem(
                f"cgroupDriver: this systemd knows no {ALLOWED_CPUS} (244 and newer do)",
                f"a newer one, {_NEEDS_SYSTEMD}",
            )

    def prepare(self) -> Prepared:
        """See `CgroupBackend.prepare`. What a crash left between a cgroup and its unit is put right, too."""
        is_new = self._start(ROOT)
        done = self._files.prepare()
        self._take_over()
        return replace(done, created=(*done.created, self._names.root)) if is_new else done

    def restore(self, prepared: Prepared) -> None:
        """See `CgroupBackend.restore`."""
        self._files.restore(prepared)
        if self._names.root in prepared.created and not self._files.observe().dirs.keys() - {ROOT}:
            with self._systemds(ROOT, DIRECTORY):
                self._systemd.stop(self._names.root)

    def offer(self) -> KernelOffer:
        """See `CgroupBackend.offer`."""
        return self._files.offer()

    def observe(self, top: CgroupDir = ROOT, leave_out: frozenset[Kind] = NOTHING) -> Observed:
        """See `CgroupBackend.observe`. A slice without others in it is told to pass on what it will.

        Puts back what systemd has reset.
        """
        found = {d: self._mended(d, seen) for d, seen in self._files.observe(top, leave_out).dirs.items()}
        parents = {layout.parent_of(directory) for directory in found if directory != ROOT}
        empty = {d for d in found.keys() - parents if layout.kind_of(d) in _INNER - leave_out}
        return Observed(
            dirs={d: replace(s, subtree=s.subtree | _SYSTEMDS) if d in empty else s for d, s in found.items()}
        )

    def changed(self) -> frozenset[CgroupDir] | None:
        """See `CgroupBackend.changed`."""
        found, otherwise, self._otherwise = self._files.changed(), self._otherwise, set()
        return None if found is None else found | otherwise

    def exists(self, directory: CgroupDir) -> bool:
        """See `CgroupBackend.exists`."""
        return self._files.exists(directory)

    def children(self, directory: CgroupDir) -> tuple[CgroupDir, ...]:
        """See `CgroupBackend.children`."""
        return self._files.children(directory)

    # --- cgroups and their units --------------------------------------------------------------

    def make(self, directory: CgroupDir) -> None:
        """See `CgroupBackend.make`."""
        above = layout.parent_of(directory)
        # For want of a slice above systemd would make that one, too; the kernel says what is wrong.
        if directory == ROOT or self._files.exists(above):
            self._start(directory)
        self._files.make(directory)
        if directory != ROOT:  # it has done so, unless somebody took them away behind its back
            self._files.enable(above, sorted(_SYSTEMDS & self._files.offer().controllers))

    def remove(self, directory: CgroupDir) -> None:
        """See `CgroupBackend.remove`. With the unit goes what systemd would start in it again."""
        is_free = not self._files.exists(directory) or not self._files.populated(directory)
        if is_free and self._is_a_slice(directory):
            with self._systemds(directory, DIRECTORY):
                self._systemd.stop(self._names.unit(directory))
        self._files.remove(directory)
        self._oom_groups.discard(directory)
        self._untold.pop(directory, None)

    def _start(self, directory: CgroupDir, stated: Properties = _NOTHING_YET) -> bool:
        """Start the cgroup's unit, with what was ``stated`` before; returns whether it is new."""
        unit = self._names.unit(directory)
        if len(unit) > MAX_UNIT_NAME:
            meaning = f"the unit name has {len(unit)} characters, more than systemd's {MAX_UNIT_NAME}"
            hint = "give the pod a shorter uid or the container a shorter name"
            raise EnforcementError(unit, DIRECTORY, "", REFUSED, meaning, hint)
        fresh = {
            DESCRIPTION: f"numalet {directory or 'pods'}",
            **_FRESH,
            **self._all_nodes(directory),
            **stated,
        }
        with self._systemds(directory, DIRECTORY):
            try:
                self._systemd.start_transient(unit, fresh)
            except SystemdError as error:
                if error.code != UNIT_EXISTS:
                    raise
                self._start_again(unit, stated)
                return False
        return True

    def _start_again(self, unit: str, stated: Properties) -> None:
        """Somebody stopped it: it stays loaded while its cgroup is in use."""
        if self._systemd.states([unit])[unit] != ACTIVE:
            if stated:
                self._systemd.set_properties(unit, stated)
            self._systemd.start_loaded(unit)

    def _take_over(self) -> None:
        """Units for all cgroups there are, with what is in their files; none without a cgroup."""
        with self._systemds(ROOT, DIRECTORY):
            found = self._systemd.units([self._names.root, self._names.below])
            active = {unit.name for unit in found if unit.active_state == ACTIVE}
            for name in sorted(active, reverse=True):  # deepest first
                directory = self._names.directory_of(name)
                if layout.kind_of(directory) not in _THEIRS and not self._files.exists(directory):
                    self._systemd.stop(name)
            seen = self._files.observe().dirs
            stated = {d: self._stated(d, seen[d].files) for d in top_down(seen) if self._is_a_slice(d)}
            for directory, properties in stated.items():
                self._remember(directory, seen[directory].files)
                if self._names.unit(directory) not in active:
                    self._start(directory, properties)
            wanted = {self._names.unit(directory): properties for directory, properties in stated.items()}
            known = self._systemd.properties_of([*wanted])
            differing = {unit: _differing(wanted[unit], known[unit]) for unit in wanted}
            self._systemd.set_properties_of({unit: more for unit, more in differing.items() if more})

    def _all_nodes(self, directory: CgroupDir) -> Properties:
        """What asks for the cpuset controller: all NUMA nodes there are, as if nothing was said.

        The root has it as soon as anything in it has; before it is made nothing says which nodes there are.
        """
        return properties_of(MEMS, self._files.read(ROOT, MEMS_EFFECTIVE)) if directory != ROOT else {}

    def _stated(self, directory: CgroupDir, files: Mapping[str, str]) -> Properties:
        """What the files of a slice come to, so that systemd would not write them otherwise."""
        return {**_properties(files), **({} if files.get(MEMS) else self._all_nodes(directory))}

    def _is_a_slice(self, directory: CgroupDir) -> bool:
        return layout.kind_of(directory) not in _THEIRS

    # --- files --------------------------------------------------------------------------------

    def read(self, directory: CgroupDir, file: str) -> str:
        """See `CgroupBackend.read`."""
        return self._files.read(directory, file)

    def write(self, directory: CgroupDir, file: str, text: str) -> Mapping[str, str]:
        """See `CgroupBackend.write`. Nobody gains a CPU before systemd knows who has left it."""
        gains = self._gains(directory, file, text)
        if gains and self._some_left:
            self.agree()
        seen = self._files.write(directory, file, text)
        self._remember(directory, seen)
        if properties_of(file, seen[file]):
            self._untold.setdefault(directory, {})[file] = seen[file]
            self._some_left |= file == CPUS and not gains
        return seen

    def _gains(self, directory: CgroupDir, file: str, text: str) -> bool:
        if file == CPUS:
            return not text or not cpus_in(text) <= cpus_in(self._files.read(directory, file))
        return file in {EXCLUSIVE, PARTITION}

    def agree(self) -> None:
        """See `CgroupBackend.agree`. systemd is told of all files at once, and they are read again."""
        untold = {d: files for d, files in self._untold.items() if self._files.exists(d)}
        if untold:
            with self._systemds(ROOT, DIRECTORY):
                self._tell(untold)
        self._untold, self._some_left = {}, False
        for directory, files in untold.items():
            try:
                self._look_again(directory, files)
            except EnforcementError as error:
                if error.code not in _GONE:  # that is noticed elsewhere
                    raise

    def _tell(self, untold: Mapping[CgroupDir, Mapping[str, str]]) -> None:
        """Return when systemd has acted."""
        units = {self._names.unit(directory): directory for directory in untold}
        self._systemd.set_properties_of({unit: _properties(untold[units[unit]]) for unit in units})
        for unit, state in self._systemd.states([*units]).items():
            if state != ACTIVE:  # somebody stopped it; its cgroup is still there
                seen = self._files.observe(units[unit]).dirs.get(units[unit], ObservedDir())
                self._start(units[unit], self._stated(units[unit], seen.files))

    def _look_again(self, directory: CgroupDir, files: Mapping[str, str]) -> None:
        """See that systemd has written the same.

        It has written others of the same controller, too: these are read again as if a stranger had.
        """
        for file, text in files.items():
            if self._watch is not None:
                self._watch.disown(directory, file)
            now = self._files.read(directory, file)
            if now != text:
                self._otherwise.add(directory)
                meaning = f"systemd was told {', '.join(properties_of(file, text))} and made it {now!r}"
                hint = f"see which drop-ins it has: systemctl status {self._names.unit(directory)!r}"
                raise EnforcementError(self._names.unit(directory), file, text, READ_BACK, meaning, hint)
        if MEMORY_MAX in files and directory in self._oom_groups:
            self._files.write(directory, MEMORY_OOM_GROUP, "1")

    def _remember(self, directory: CgroupDir, files: Mapping[str, str]) -> None:
        if files.get(MEMORY_OOM_GROUP) == "1":
            self._oom_groups.add(directory)
        elif MEMORY_OOM_GROUP in files:
            self._oom_groups.discard(directory)

    def _mended(self, directory: CgroupDir, seen: ObservedDir) -> ObservedDir:
        if directory not in self._oom_groups or seen.files.get(MEMORY_OOM_GROUP, "1") == "1":
            return seen
        with suppress(EnforcementError):  # it is gone: that is noticed elsewhere
            mended = self._files.write(directory, MEMORY_OOM_GROUP, "1")
            return replace(seen, files={**seen.files, **mended})
        return seen

    def enable(self, directory: CgroupDir, controllers: Sequence[str]) -> None:
        """See `CgroupBackend.enable`."""
        self._files.enable(directory, controllers)

    @contextmanager
    def _systemds(self, directory: CgroupDir, file: str, value: str = "") -> Iterator[None]:
        """Turn what systemd refuses in the block into an `EnforcementError`."""
        try:
            yield
        except SystemdError as error:
            unit = error.unit or self._names.unit(directory)
            raise EnforcementError(unit, file, value, error.code, error.message, error.hint) from error

    # --- processes ----------------------------------------------------------------------------

    def procs(self, directory: CgroupDir) -> tuple[int, ...]:
        """See `CgroupBackend.procs`."""
        return self._files.procs(directory)

    def add_process(self, directory: CgroupDir, pid: int) -> None:
        """See `CgroupBackend.add_process`. In the slice itself: systemd leaves processes there alone."""
        self._files.add_process(directory, pid)

    def populated(self, directory: CgroupDir) -> bool:
        """See `CgroupBackend.populated`."""
        return self._files.populated(directory)

    def kill(self, directory: CgroupDir) -> None:
        """See `CgroupBackend.kill`."""
        self._files.kill(directory)

    def stat(self, directory: CgroupDir) -> Mapping[str, int]:
        """See `CgroupBackend.stat`."""
        return self._files.stat(directory)


def _properties(files: Mapping[str, str]) -> Properties:
    """What files come to, all together."""
    return {name: value for file, text in files.items() for name, value in properties_of(file, text).items()}


def _differing(wanted: Properties, known: Properties) -> Properties:
    return {name: value for name, value in wanted.items() if known.get(name) != value}
