"""Hears of containers whose last process is gone, or first one has come: inotify on ``cgroup.events``.

The kernel tells of each change of that file (cgroup-v2.rst, "Un/Populated Notification"), at most every
10 ms per cgroup: what comes and goes in between is one event. One descriptor, one watch per container;
nothing is ever polled. `DriftWatch`'s watches on directories see these events, too, but only while the file's
inode happens to be in memory (kernfs_notify looks it up); a watch on the file itself keeps it there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from inotify_simple import INotify, flags

from agent.cgroup import layout
from agent.cgroup.layout import CgroupDir
from agent.cgroup.naming import PLAIN, CgroupNames

log = logging.getLogger(__name__)

_EVENTS_FILE: Final = "cgroup.events"


class ContainerWatch:
    """Tells which containers below ``root`` changed. Not for several threads at once, `drain` aside.

    Where the user's inotify instances or watches are used up, it says so once; whoever calls `drain` now
    and then is told of the containers that could not be watched, whether they changed or not.
    """

    def __init__(self, root: Path, names: CgroupNames = PLAIN) -> None:
        self.root = root
        self._names = names
        self._watches: dict[CgroupDir, int] = {}
        self._directories: dict[int, CgroupDir] = {}
        self._unwatched: set[CgroupDir] = set()
        self._inotify: INotify | None = None
        try:
            self._inotify = INotify(nonblocking=True)
        except OSError as error:
            self._tell(error, "fs.inotify.max_user_instances")

    def fileno(self) -> int:
        """A descriptor that is readable when something changed; -1: there is none."""
        return -1 if self._inotify is None else int(self._inotify.fileno())

    def follow(self, directories: Iterable[CgroupDir]) -> None:
        """Watch those that are containers'; one made anew is watched anew."""
        for directory in filter(layout.container_of, directories):
            self._forget(directory)
            if self._inotify is None:
                self._unwatched.add(directory)
            else:
                self._add(self._inotify, directory)

    def _add(self, inotify: INotify, directory: CgroupDir) -> None:
        try:
            watch = inotify.add_watch(self.root / self._names.path(directory) / _EVENTS_FILE, flags.MODIFY)
        except FileNotFoundError:
            return  # removed meanwhile: made anew, it is followed anew
        except OSError as error:
            if not self._unwatched:
                self._tell(error, "fs.inotify.max_user_watches")
            self._unwatched.add(directory)
            return
        self._watches[directory], self._directories[watch] = watch, directory

    @staticmethod
    def _tell(error: OSError, limit: str) -> None:
        log.warning(
            "containers that start and exit are noticed with the reconcile period only, for want of inotify:"
            " raise %s with sysctl: error=%s",
            limit,
            error.strerror,
        )

    def forget(self, directories: Iterable[CgroupDir]) -> None:
        """Watch these no longer; they may be gone."""
        for directory in directories:
            self._forget(directory)

    def _forget(self, directory: CgroupDir) -> None:
        self._unwatched.discard(directory)
        watch = self._watches.pop(directory, None)
        if watch is not None and self._inotify is not None:
            self._directories.pop(watch, None)
            with suppress(OSError):  # the kernel has dropped it with the cgroup
                self._inotify.rm_watch(watch)

    def drain(self) -> frozenset[CgroupDir]:
        """The containers that changed since, or may have; all of them if the kernel lost count."""
        events = [] if self._inotify is None else self._inotify.read(timeout=0)
        if any(event.mask & flags.Q_OVERFLOW for event in events):
            return frozenset((*self._watches, *self._unwatched))
        known = self._directories.copy()
        return frozenset((*(known[event.wd] for event in events if event.wd in known), *self._unwatched))

    def close(self) -> None:
        """Give the descriptor back."""
        if self._inotify is not None:
            self._inotify.close()
