"""Containers that something else runs: what each is, what it is given there, and what it is given back.

One look per enforcement (`look`), then in the order of `Enforcer.enforce`: those who share leave CPUs
(`leave`), and when nobody else is there any more, each is given what it is to have, and what is bound no
longer what it had before (`settle`). Its owner locks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from agent.cgroup.backend import CgroupBackend, EnforcementError
from agent.cgroup.bound import is_related
from agent.cgroup.compared import Compared
from agent.cgroup.kernelview import kernel_view
from agent.cgroup.layout import CgroupDir
from agent.cgroup.tree import CPUS, MEMORY_MAX, Setting, cpus_in
from agent.containermanager.boundstate import BoundOriginals
from agent.containermanager.boundstrays import strays
from agent.containermanager.boundtargets import (
    BoundCgroup,
    BoundUnit,
    Settings,
    Target,
    comparison,
    would_kill,
)
from agent.domain.binding import Binding, BindingKind
from agent.domain.idset import NO_CPUS, CpuSet, NodeMask
from agent.domain.pod import PodUid
from agent.errors import HostError
from agent.systemdbus.manager import SystemdManager

Key = tuple[PodUid, str]
"""A container: its pod's uid, and its name."""


class BindingError(HostError):
    """A container cannot be what its pod's annotation says; the pod is refused."""


class Watch(Protocol):
    """What we use of `BoundWatch`."""

    def follow(self, places: Iterable[CgroupDir]) -> None:
        """Tell of these and no others any more; before they are looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A container of ``pod`` (namespace/name) that is ``binding``, and what it is to have.

    ``exclusive`` are those of its CPUs that no pod but its own may use.
    """

    key: Key
    pod: str
    binding: Binding
    settings: Settings
    exclusive: CpuSet

    @property
    def name(self) -> str:
        """For people: the pod, the container and what it is."""
        return f"pod {self.pod}: container {self.key[1]} ({self.binding})"

    @property
    def cpus(self) -> CpuSet:
        """The CPUs it is to run on."""
        return cpus_in(self.settings[CPUS].text) if CPUS in self.settings else NO_CPUS


class Binder:
    """Sets bound units through ``systemd`` and bound cgroups through ``outside``, the whole cgroup mount.

    ``ours`` are cgroups that nothing may be bound to, nor what is in them or around them.
    """

    def __init__(
        self,
        systemd: SystemdManager,
        outside: CgroupBackend,
        originals: BoundOriginals,
        watch: Watch,
        ours: Mapping[CgroupDir, str],
        mount: str,
    ) -> None:
        self._systemd = systemd
        self._outside = outside
        self._originals = originals
        self._watch = watch
        self._ours = ours
        self._mount = mount
        self._bound: Sequence[Bound] = ()
        self._targets: dict[Key, Target] = {}
        self._given: dict[Key, Settings] = {}
        self.places: dict[Key, CgroupDir] = {}
        """Where each bound container's cgroup is, or will be, below the mount."""
        self.failures: dict[Key, HostError] = {}
        """Why containers cannot be had as they are to be, until they can."""
        self.put_off: dict[Key, str] = {}
        """Whose memory limit waits until less is in use, as sentences."""
        self.strays: tuple[str, ...] = ()
        """Who else may run on bound containers' exclusive CPUs, as sentences."""
        self.repairs: list[tuple[PodUid, str]] = []
        """What others had changed, as sentences, since somebody took it out."""

    # --- admission --------------------------------------------------------------------------

    def check(self, bound: Sequence[Bound], confined: frozenset[str]) -> None:
        """Refuse what can never be, or is somebody's already. Raises BindingError.

        ``confined`` are the top-level cgroups that are kept off exclusive CPUs as a whole.
        """
        places = dict(self.places)
        for one in bound:
            try:
                target = self._target(one.binding)
            except HostError as error:
                raise BindingError(f"{one.name}: {error.message}", hint=error.hint) from error
            self._check_unit(one, target)
            self._check_ours(one, target.place)
            self._check_free(one, target.place, places)
            top = target.place.split("/")[0]
            if top in confined and one.exclusive:
                raise BindingError(
                    f"{one.name}: it is in {top}, which hostIsolation keeps off exclusive CPUs, so it would not get"
                    f" {one.exclusive}",
                    hint=f"give it a slice of its own, e.g. Slice={one.key[1]}.slice by systemctl edit, and restart"
                    " it (docs/bindings.md)",
                )
            places[one.key] = target.place

    @staticmethod
    def _check_unit(one: Bound, target: Target) -> None:
        if not isinstance(target, BoundUnit):
            return
        if target.missing:
            hint = f"systemctl status {target.unit}; a transient unit is bound while it runs"
            raise BindingError(f"{one.name}: {target.missing}", hint=hint)
        real = str(target.shown.get("Id", target.unit))
        if real != target.unit:
            raise BindingError(f"{one.name}: it is an alias of {real}", hint=f"bind {real}")

    def _check_ours(self, one: Bound, place: CgroupDir) -> None:
        for ours, what in self._ours.items():
            if is_related(place, ours):
                raise BindingError(
                    f"{one.name}: cgroup {place} is, is in or is around {ours}, {what}",
                    hint="bind something that is not numalet's",
                )

    def _check_free(self, one: Bound, place: CgroupDir, places: Mapping[Key, CgroupDir]) -> None:
        for key, other in places.items():
            if is_related(place, other):
                holder = next((b.name for b in self._bound if b.key == key), f"container {key[1]}")
                raise BindingError(
                    f"{one.name}: cgroup {place} is, is in or is around {other}, which is bound already: {holder}",
                    hint="one cgroup is one container: bind another, or delete that pod first",
                )

    def _target(self, binding: Binding) -> Target:
        if binding.kind is BindingKind.UNIT:
            return BoundUnit(binding.name, self._systemd, self._outside)
        return BoundCgroup(binding.name, self._outside)

    # --- enforcement ------------------------------------------------------------------------

    def look(self, bound: Sequence[Bound]) -> None:
        """Go on with these; why one cannot be looked at is its failure."""
        self._bound, self._targets, self.failures = bound, {}, {}
        for one in bound:
            try:
                target = self._target(one.binding)
                self._check_ours(one, target.place)  # under another cgroupRoot it was not
            except HostError as error:
                self.failures[one.key] = error
            else:
                self._targets[one.key], self.places[one.key] = target, target.place
        self.places = {one.key: self.places[one.key] for one in bound if one.key in self.places}

    def lent(self) -> Mapping[str, CpuSet]:
        """By top-level cgroup, the exclusive CPUs of the bound containers in it."""
        lent: dict[str, CpuSet] = {}
        for one in self._bound:
            if one.key in self.places:
                top = self.places[one.key].split("/")[0]
                lent[top] = lent.get(top, NO_CPUS) | one.exclusive
        return lent

    def leave(self) -> None:
        """Let bound containers give up CPUs that they may not keep; nothing grows.

        Raises HostError where one that shares does not; what is wrong with one that does not share, `settle` says.
        """
        known = self._originals.all()
        for one in self._bound:
            target = self._targets.get(one.key)
            try:
                if target is None:
                    self._check_left(one)
                elif not target.missing and one.binding in known:
                    self._leave(one, target)
            except HostError:
                if not one.exclusive:
                    raise

    def _check_left(self, one: Bound) -> None:
        """Raise the failure of one that cannot be looked at, unless it was given no more than it is to have."""
        failure, given = self.failures[one.key], self._given.get(one.key, {}).get(CPUS)
        if not isinstance(failure, BindingError) and not (given and cpus_in(given.text) <= one.cpus):
            raise failure

    def _leave(self, one: Bound, target: Target) -> None:
        now, wanted = target.cpus(), one.cpus
        if now and now <= wanted:  # the empty set is anywhere
            return
        last = self._given.get(one.key, {}).get(CPUS)
        if last is not None and not (now and now <= cpus_in(last.text)):
            differing = target.differing({CPUS: last})
            if differing:  # a unit that starts has its settings a moment after its cgroup
                self._repaired(one, differing)
        target.give({CPUS: Setting(str(now & wanted or wanted))})

    def settle(self, everything: tuple[CpuSet, NodeMask]) -> None:
        """Give each what it is to have; back what is not bound any more. Raises HostError, StateError for the latter."""
        self._give_back(everything)
        keys = {one.key for one in self._bound}
        self._given = {key: given for key, given in self._given.items() if key in keys}
        self.put_off = {key: text for key, text in self.put_off.items() if key in keys}
        self._watch.follow(self.places.values())
        for one in self._bound:
            if one.key in self._targets:
                try:
                    self._give(one, self._once_followed(one))
                except HostError as error:
                    self.failures[one.key] = error

    def _once_followed(self, one: Bound) -> Target:
        """What was missing may have come before it was followed: nobody tells of it any more."""
        target = self._targets[one.key]
        return self._target(one.binding) if target.missing else target

    def _give_back(self, everything: tuple[CpuSet, NodeMask]) -> None:
        wanted = {one.binding for one in self._bound}
        for binding, found in [*self._originals.all().items()]:
            if binding not in wanted:
                target = self._target(binding)
                if not target.missing:
                    target.give_back(found, everything)
                self._originals.forget(binding)

    def _give(self, one: Bound, target: Target) -> None:
        if target.missing:
            self._given.pop(one.key, None)
            if one.binding.kind is BindingKind.UNIT:
                raise HostError(f"{target.missing}; its CPUs wait for it")
            if one.binding in self._originals.all():
                self._originals.forget(one.binding)  # the next one of that path is another one
            return
        settings = self._without_kill(one, target.place)
        if one.binding not in self._originals.all():
            self._originals.remember(one.binding, target.found())
        differing = target.differing(settings)
        if differing:
            target.give(settings)
            if self._given.get(one.key) == settings:
                self._repaired(one, differing)
        self._given[one.key] = settings

    def _repaired(self, one: Bound, differing: tuple[str, ...]) -> None:
        text = f"{one.binding} had drifted and was put right: {', '.join(differing)}"
        self.repairs.append((one.key[0], text))

    def _without_kill(self, one: Bound, place: CgroupDir) -> Settings:
        """What can be set now: no memory limit below what is in use, for which the kernel would kill."""
        limit = one.settings.get(MEMORY_MAX)
        used = would_kill(self._outside, place, limit.text) if limit else 0
        self.put_off.pop(one.key, None)
        if not used or limit is None:
            return one.settings
        self.put_off[one.key] = f"{one.binding}: {used} bytes are in use, memory.max is to be {limit.text}"
        return {file: setting for file, setting in one.settings.items() if file != MEMORY_MAX}

    def look_around(self) -> None:
        """Find who else may run on exclusive CPUs, in the slices that keep them for bound containers."""
        exclusive = [
            (one.name, self.places[one.key], one.exclusive) for one in self._bound if one.key in self.places
        ]
        self.strays = tuple(strays(self._outside, exclusive))

    # --- views ------------------------------------------------------------------------------

    def holds(self, bindings: Iterable[Binding]) -> bool:
        """Whether any of these is not given back yet. Raises StateError."""
        return not self._originals.all().keys().isdisjoint(bindings)

    def populated(self, key: Key) -> bool:
        """Tell whether a process lives in a bound container."""
        place = self.places.get(key)
        if place is None:
            return False
        with suppress(EnforcementError):  # it is going
            return self._outside.exists(place) and self._outside.populated(place)
        return False

    def cgroup(self, key: Key) -> str:
        """The absolute path of a bound container's cgroup; empty for a container that is not bound."""
        return f"{self._mount}/{self.places[key]}" if key in self.places else ""

    def cgroups(self) -> Mapping[Key, str]:
        """By bound container, the absolute path of its cgroup."""
        return {key: self.cgroup(key) for key in self.places}

    def kernel_view(self, key: Key) -> Mapping[str, str]:
        """What the kernel shows of a bound container."""
        return kernel_view(self._outside, self.places[key]) if self.populated(key) else {}

    def compared(self, uid: PodUid) -> Mapping[str, tuple[Compared, ...]]:
        """What is wanted of each bound container of a pod that runs, and what the kernel has."""
        return {
            one.key[1]: comparison(self._outside, self.places[one.key], one.settings)
            for one in self._bound
            if one.key[0] == uid and self.populated(one.key)
        }

    def deviations(self) -> tuple[str, ...]:
        """A sentence for each thing that a bound container has otherwise than decided."""
        failed = [
            f"{one.name}: {self.failures[one.key].message}" for one in self._bound if one.key in self.failures
        ]
        differing = [
            f"{one.name}: {self.places[one.key]} has {file.file} {file.actual or 'empty'}"
            f"{f' ({file.effective} effective)' if file.effective else ''}, wanted {file.wanted}"
            for one in self._bound
            if one.key not in self.failures and self.populated(one.key)
            for file in comparison(self._outside, self.places[one.key], one.settings)
            if not file.met
        ]
        return (*failed, *differing)

    def lacks(self) -> Mapping[Key, str]:
        """By bound container, what keeps it from being as it is to be; empty where nothing does."""
        return {one.key: self._lack(one.key) for one in self._bound}

    def _lack(self, key: Key) -> str:
        if key in self.failures:
            return self.failures[key].message
        return self.put_off.get(key, "") if key in self._given else "waits for its cgroup to appear"

    @property
    def problems(self) -> tuple[str, ...]:
        """Why bound containers are not as they are to be, as sentences."""
        return tuple(
            f"{one.name}: {self.failures[one.key].message}" for one in self._bound if one.key in self.failures
        )
