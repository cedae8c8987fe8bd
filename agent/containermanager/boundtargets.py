"""A bound unit or cgroup: where it is, what it has, and giving it something else.

The kernel's files say what holds. A unit is set through systemd, which would undo what is written behind
its back, and keeps it for the next start; a cgroup of somebody else's is written.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, Protocol

from agent.cgroup.backend import READ_BACK, REFUSED, CgroupBackend, EnforcementError
from agent.cgroup.bound import BOUND_FILES
from agent.cgroup.compared import Compared, compared
from agent.cgroup.layout import CgroupDir
from agent.cgroup.tree import (
    CPUS,
    EFFECTIVE,
    MEMS,
    ObservedDir,
    Setting,
    WantedDir,
    cpus_in,
)
from agent.containermanager.boundstate import Texts
from agent.domain.idset import NO_CPUS, CpuSet, NodeMask
from agent.errors import HostError
from agent.systemdbus.manager import SystemdManager
from agent.systemdbus.place import LIMITS, place_of, properties_of, property_text, property_value
from agent.systemdbus.place import MEMORY_MAX as UNIT_MEMORY_MAX
from agent.systemdbus.properties import ALLOWED_CPUS, ALLOWED_MEMORY_NODES, LOAD_STATE, Properties

Settings = Mapping[str, Setting]

_LOADED: Final = "loaded"
_PATIENCE: Final = 5.0
_STARTING: Final = 0.5
_PAUSE: Final = 0.005
_GONE: Final = frozenset({"ENOENT", "ENODEV"})


class Target(Protocol):
    """What a container is bound to, at one moment. All raise HostError."""

    place: CgroupDir
    """Its cgroup below the mount, there or not."""
    missing: str
    """Why nothing can be set now; empty if it can."""

    def cpus(self) -> CpuSet:
        """Where it may run, or will when it starts; the empty set is anywhere."""

    def found(self) -> Texts:
        """What it has, to be given back one day."""

    def differing(self, settings: Settings) -> tuple[str, ...]:
        """What it has otherwise, as ``NAME was VALUE``."""

    def give(self, settings: Settings) -> None:
        """Let it have that, and see that it does."""

    def give_back(self, found: Texts, everything: tuple[CpuSet, NodeMask]) -> None:
        """Let it have what it had; where it had no set of its own ``everything`` does not confine it."""


def kernel_files(outside: CgroupBackend, place: CgroupDir) -> Mapping[str, str]:
    """The files that are set, and the effective sets, as far as they are there."""
    files: dict[str, str] = {}
    for file in (*BOUND_FILES, *EFFECTIVE.values()):
        with suppress(EnforcementError):
            files[file] = outside.read(place, file)
    return files


def comparison(outside: CgroupBackend, place: CgroupDir, settings: Settings) -> tuple[Compared, ...]:
    """Each file that is set, wanted and as it is."""
    seen = ObservedDir(files=kernel_files(outside, place))
    return tuple(compared(WantedDir(settings=settings), seen))


def would_kill(outside: CgroupBackend, place: CgroupDir, limit: str) -> int:
    """The bytes in use, if a ``memory.max`` of ``limit`` is less; else 0."""
    if not limit.isdigit():
        return 0
    with suppress(EnforcementError, ValueError):  # it does not run, or accounts no memory
        used = int(outside.read(place, "memory.current"))
        return used if used > int(limit) else 0
    return 0


class BoundCgroup:
    """`Target` that a container runtime, or whoever, has made."""

    def __init__(self, path: str, outside: CgroupBackend) -> None:
        self.place = CgroupDir(path)
        self._outside = outside
        self.missing = "" if outside.exists(self.place) else f"there is no cgroup {path} yet"

    def cpus(self) -> CpuSet:
        """See `Target.cpus`."""
        return cpus_in(kernel_files(self._outside, self.place).get(CPUS, ""))

    def found(self) -> Texts:
        """See `Target.found`."""
        files = kernel_files(self._outside, self.place)
        return {file: files[file] for file in BOUND_FILES if file in files}

    def differing(self, settings: Settings) -> tuple[str, ...]:
        """See `Target.differing`."""
        found = _differing(comparison(self._outside, self.place, settings))
        return found if self._outside.exists(self.place) else ()

    def give(self, settings: Settings) -> None:
        """See `Target.give`. One that goes meanwhile needs nothing."""
        try:
            for one in comparison(self._outside, self.place, settings):
                if not one.met:
                    self._outside.write(self.place, one.file, one.wanted)
        except EnforcementError as error:
            if error.code not in _GONE or self._outside.exists(self.place):
                raise

    def give_back(self, found: Texts, everything: tuple[CpuSet, NodeMask]) -> None:
        """See `Target.give_back`. The kernel takes no empty set while processes are in the cgroup."""
        now = kernel_files(self._outside, self.place)
        full = {CPUS: str(everything[0]), MEMS: str(everything[1])}
        for file, before in found.items():
            text = before or full[file]
            if now.get(file, text) == text:
                continue
            try:
                self._outside.write(self.place, file, text)
            except EnforcementError as error:
                narrower = error.code == READ_BACK and file in EFFECTIVE  # a cgroup above has less: as before
                if not narrower and error.code not in {REFUSED, *_GONE}:
                    raise


class BoundUnit:
    """`Target` that is a service or scope of systemd's. Raises SystemdError."""

    def __init__(self, unit: str, systemd: SystemdManager, outside: CgroupBackend) -> None:
        self.unit = unit
        self._systemd = systemd
        self._outside = outside
        self.shown: Properties = systemd.properties(unit)
        self.place = CgroupDir(place_of(unit, self.shown))
        state = self.shown.get(LOAD_STATE)
        self.missing = "" if state == _LOADED else f"unit {unit} is {state}, not loaded"

    def cpus(self) -> CpuSet:
        """See `Target.cpus`."""
        stated = self.shown.get(ALLOWED_CPUS, NO_CPUS)
        assert isinstance(stated, CpuSet)  # noqa: S101 - by its name
        now = cpus_in(kernel_files(self._outside, self.place).get(CPUS, ""))
        return stated | now if stated and (now or not self.runs()) else NO_CPUS

    def found(self) -> Texts:
        """See `Target.found`."""
        return {name: property_text(self.shown[name]) for name in LIMITS if name in self.shown}

    def differing(self, settings: Settings) -> tuple[str, ...]:
        """See `Target.differing`: the property and, where the unit runs, the kernel's file."""
        wanted = properties_of({file: setting.text for file, setting in settings.items()})
        accepted = {
            name: {properties_of({file: text})[name] for text in setting.accepted}
            for file, setting in settings.items()
            for name in properties_of({file: setting.text})
        }
        properties = tuple(
            f"{name} was {self.shown.get(name)}"
            for name, value in wanted.items()
            if self.shown.get(name) not in {value, *accepted[name]}
        )
        return properties or self._in_the_kernel(settings)

    def _in_the_kernel(self, settings: Settings) -> tuple[str, ...]:
        """Looked at again for a moment: a unit that starts has its cgroup before it has its settings."""
        deadline = time.monotonic() + _STARTING
        while differing := self.runs() and _differing(comparison(self._outside, self.place, settings)):
            if time.monotonic() > deadline:
                return differing
            time.sleep(_PAUSE)
        return ()

    def runs(self) -> bool:
        """Whether it has a cgroup."""
        return self._outside.exists(self.place)

    def give(self, settings: Settings) -> None:
        """See `Target.give`. systemd answers before it has written."""
        self._set(properties_of({file: setting.text for file, setting in settings.items()}))
        deadline = time.monotonic() + _PATIENCE
        while self.runs():
            unmet = [one for one in comparison(self._outside, self.place, settings) if not one.met]
            if not unmet:
                return
            first = unmet[0]
            is_cut = first.actual == first.wanted
            if (is_cut or time.monotonic() > deadline) and self.runs():
                raise self._not_taken(first, is_cut=is_cut)
            time.sleep(_PAUSE)

    def _not_taken(self, file: Compared, *, is_cut: bool) -> HostError:
        if is_cut:
            return HostError(
                f"unit {self.unit} has {file.file} {file.wanted} and gets {file.effective or 'nothing'}: a slice"
                f" above {self.place} does not have them all",
                hint=f"give it a slice of its own: Slice= in its [Service], AllowedCPUs= of {self.place}'s slices",
            )
        return HostError(
            f"systemd took {file.wanted} for unit {self.unit}, but the kernel has {file.file}"
            f" {file.actual or 'nothing'} there",
            hint=f"another program changes it, too: journalctl -b | grep {self.unit}",
        )

    def give_back(self, found: Texts, everything: tuple[CpuSet, NodeMask]) -> None:
        """See `Target.give_back`. A unit that is gone has taken its properties with it."""
        if self.missing:
            return
        before = {name: property_value(name, text) for name, text in found.items()}
        if would_kill(self._outside, self.place, found.get(UNIT_MEMORY_MAX, "")):
            del before[UNIT_MEMORY_MAX]
        full: Properties = {ALLOWED_CPUS: everything[0], ALLOWED_MEMORY_NODES: everything[1]}
        unset = {name: value for name, value in before.items() if name in full and not value}
        # systemd 252 resets a set and leaves the kernel's file: first say it in full.
        self._set({**before, **{name: full[name] for name in unset}})
        self._wait_for(str(before.get(ALLOWED_CPUS) or everything[0]))
        if unset:
            self._set(unset)

    def _wait_for(self, cpus: str) -> None:
        deadline = time.monotonic() + _PATIENCE
        while self.runs() and kernel_files(self._outside, self.place).get(CPUS, cpus) not in {cpus, ""}:
            if time.monotonic() > deadline:
                raise HostError(
                    f"systemd took AllowedCPUs={cpus} for unit {self.unit}, but the kernel does not have it",
                    hint=f"another program changes it, too: journalctl -b | grep {self.unit}",
                )
            time.sleep(_PAUSE)

    def _set(self, properties: Properties) -> None:
        self._systemd.set_properties(self.unit, properties)
        self.shown = {**self.shown, **properties}


def _differing(files: tuple[Compared, ...]) -> tuple[str, ...]:
    return tuple(
        f"{one.file} was {one.actual or 'empty'}"
        + (f" ({one.effective or 'nothing'} effective)" if one.actual == one.wanted else "")
        for one in files
        if not one.met
    )
