"""The containers of admitted pods as their cgroups show them, and `numalet debug`'s beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from threading import RLock
from typing import Final

from agent.cgroup import layout
from agent.cgroup.backend import CgroupBackend, EnforcementError
from agent.cgroup.layout import CgroupDir
from agent.containermanager.binder import Binder
from agent.containermanager.events import EventKind, Events
from agent.containermanager.lifecycle import has_ended, life_of, refusal, seen, told
from agent.containermanager.roster import Roster
from agent.containermanager.snapshot import AdmittedPod
from agent.domain.lifecycle import ContainerLife, ContainerState, Lives
from agent.domain.pod import Pod, PodUid
from agent.domain.qos import qos_class
from agent.errors import HostError

_USAGE: Final = "usage_usec"
_DEBUG: Final = "debug-"


@dataclass(slots=True, kw_only=True)
class Containers:
    """Lives by pod uid, from looks at cgroups. What is asked from outside the owner takes its lock."""

    lock: RLock
    roster: Roster
    leaving: set[PodUid]
    cgroups: CgroupBackend
    events: Events
    now: Callable[[], str]
    binder: Binder
    lived: Callable[[AdmittedPod, str], None]
    """Told of a pod in which a container's state changed, and of the container if it began with that."""
    enforce: Callable[[], object]
    """Brings the kernel in line; raises HostError."""
    mend: Callable[[], object]
    """The same, but what fails is a failure of the node."""
    lives: dict[PodUid, Lives] = field(default_factory=dict)

    def of(self, uid: PodUid) -> Lives:
        """The lives of a pod's containers."""
        return self.lives.get(uid, {})

    # --- from outside -----------------------------------------------------------------------

    def directories(self) -> frozenset[CgroupDir]:
        """The cgroups of the containers of all admitted pods."""
        with self.lock:
            return frozenset(
                at for entry in self.roster.admitted.values() for at in entry.directories.values()
            )

    def bound(self) -> frozenset[CgroupDir]:
        """Of these, the bound containers', in which nothing ever runs."""
        with self.lock:
            return frozenset(
                entry.directories[name]
                for entry in self.roster.admitted.values()
                for name in entry.pod.bindings
            )

    def changed(self, directories: Iterable[CgroupDir]) -> Mapping[PodUid, bool]:
        """Look at the processes of these containers again; tells of their pods whether each has ended."""
        with self.lock:
            seen_at = {at for directory in directories if (at := layout.container_of(directory))}
            staying = sorted((uid, name) for uid, name in seen_at if uid not in self.leaving)
            looked = {uid for uid, name in staying if self.look(uid, name)}
            return {uid: self.has_ended(uid) for uid in looked}

    def may_join(self, uid: PodUid, name: str) -> str:
        """Why no process may join a container of an admitted pod now; empty if one may."""
        with self.lock:
            entry = self.roster.admitted[uid]
            if name in entry.pod.bindings:
                return f"container {name} is {entry.pod.bindings[name]}: processes come into it there, not by numalet"
            self.look_at(entry)  # an init container may have ended this very moment
            return refusal(entry.pod, self.of(uid), name)

    def debug(self, uid: PodUid, pid: int) -> CgroupDir:
        """Make a cgroup for ephemeral work in an admitted pod and move ``pid`` there. Raises HostError."""
        with self.lock:
            entry = self.roster.admitted[uid]
            directory = self._add_debug(entry)
            name = directory.rpartition("/")[2]
            try:
                self.enforce()
                self.cgroups.add_process(directory, pid)
            except HostError:
                self._drop_debug(uid, name)
                self.mend()
                raise
            text = f"pod {entry.pod.full_name}: {name} runs process {pid} on the node shared pool"
            self.events.add(EventKind.DEBUG, text, entry.pod)
            return directory

    # --- looks ------------------------------------------------------------------------------

    def look(self, uid: PodUid, name: str) -> bool:
        """Note what became of a container; False if it is none of an admitted pod."""
        entry = self.roster.admitted.get(uid)
        if entry is None or name not in entry.directories:
            return False
        if name in entry.debug:
            self._look_at_debug(entry, name)
        elif entry.pod.container(name):
            self._look_at_container(entry, name)
        return True

    def look_at(self, entry: AdmittedPod) -> None:
        """Look at every container of a pod."""
        for name in entry.directories:
            self.look(entry.pod.uid, name)

    def _look_at_container(self, entry: AdmittedPod, name: str) -> None:
        uid, directory = entry.pod.uid, entry.directories[name]
        before = life_of(self.of(uid), name)
        try:
            if name in entry.pod.bindings:
                populated, has_run = self.binder.populated((uid, name)), False
            else:
                populated = self.cgroups.populated(directory)
                has_run = not populated and self._has_run(directory)
        except EnforcementError:  # somebody removed the cgroup: no process is in it
            populated = has_run = False
        life = seen(before, populated=populated, has_run=has_run, now=self.now())
        if life == before:
            return
        self.lives[uid] = {**self.of(uid), name: life}
        self.events.add(_kind_of(life), f"pod {entry.pod.full_name}: {told(name, life)}", entry.pod)
        self.lived(entry, name if before.state is ContainerState.WAITING else "")

    def _has_run(self, directory: CgroupDir) -> bool:
        """Tell whether a process was ever in the cgroup. Raises EnforcementError."""
        return self.cgroups.stat(directory).get(_USAGE, 0) > 0

    def has_ended(self, uid: PodUid) -> bool:
        """Tell whether a pod is admitted, and its work done."""
        entry = self.roster.admitted.get(uid)
        return entry is not None and has_ended(entry.pod, self.of(uid))

    # --- debug work -------------------------------------------------------------------------

    def _add_debug(self, entry: AdmittedPod) -> CgroupDir:
        name = next(name for n in count(1) if (name := f"{_DEBUG}{n}") not in entry.directories)
        self._set_debug(entry, (*entry.debug, name))
        return _debug_dir(entry.pod, name)

    def _drop_debug(self, uid: PodUid, name: str) -> None:
        entry = self.roster.admitted[uid]
        self._set_debug(entry, tuple(other for other in entry.debug if other != name))

    def adopt_debug(self) -> None:
        """Keep the debug work that an earlier daemon began, and that still runs."""
        for entry in tuple(self.roster.admitted.values()):
            with suppress(EnforcementError):  # the pod's cgroup is still to be made
                running = tuple(self._debug_running(entry))
                if running:
                    self._set_debug(entry, (*entry.debug, *running))

    def _debug_running(self, entry: AdmittedPod) -> Iterator[str]:
        for directory in self.cgroups.children(layout.pod_dir(entry.pod.uid, qos_class(entry.pod))):
            name = directory.rpartition("/")[2]
            if (
                name.startswith(_DEBUG)
                and name not in entry.directories
                and self.cgroups.populated(directory)
            ):
                yield name

    def _look_at_debug(self, entry: AdmittedPod, name: str) -> None:
        directory = entry.directories[name]
        try:
            is_over = not self.cgroups.populated(directory) and self._has_run(directory)
        except EnforcementError:  # somebody removed the cgroup
            is_over = True
        if is_over:
            self._drop_debug(entry.pod.uid, name)
            self.mend()

    def _set_debug(self, entry: AdmittedPod, debug: tuple[str, ...]) -> None:
        others = {name: at for name, at in entry.directories.items() if name not in entry.debug}
        directories = {**others, **{name: _debug_dir(entry.pod, name) for name in debug}}
        self.roster.admit(replace(entry, debug=debug, directories=directories))


def _debug_dir(pod: Pod, name: str) -> CgroupDir:
    return layout.container_dir(layout.pod_dir(pod.uid, qos_class(pod)), name)


def _kind_of(life: ContainerLife) -> EventKind:
    if life.state is ContainerState.EXITED:
        return EventKind.CONTAINER_EXITED
    return EventKind.CONTAINER_RESTARTED if life.restarts else EventKind.CONTAINER_STARTED
