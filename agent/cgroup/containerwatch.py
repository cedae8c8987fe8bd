"""Hears of containers whose last process is gone, or first one has come: inotify on ``cgroup.events``.

The kernel tells of each change of that file (cgroup-v2.rst, "Un/Populated Notification"), at most every
10 ms per cgroup: what comes and goes in between is one event. One descriptor, one watch per container;
nothing is ever polled. `DriftWatch`'s watches on directories see these events, too, but only while the file's
inode happens to be in memory (kernfs_notify looks it up); a watch on the file itself keeps it there.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from inotify_simple import INotify, flags

from agent.cgroup import layout
from agent.cgroup.layout import CgroupDir

log = logging.getLogger(__name__)

_EVENTS_FILE: Final = "cgroup.events"


class ContainerWatch:
    """Tells which containers below ``root`` changed. Not for several threads at once, `drain` aside."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._inotify = INotify(nonblocking=True)
        self._watches: dict[CgroupDir, int] = {}
        self._directories: dict[int, CgroupDir] = {}
        self._is_full = False

    def fileno(self) -> int:
        """A descriptor that is readable when something changed."""
        return int(self._inotify.fileno())

    def follow(self, directories: Iterable[CgroupDir]) -> None:
        """Watch those that are containers'; one made anew is watched anew."""
        for directory in filter(layout.container_of, directories):
            self._forget(directory)
            try:
                watch = self._inotify.add_watch(self.root / directory / _EVENTS_FILE, flags.MODIFY)
            except FileNotFoundError:
                continue  # removed meanwhile: made anew, it is followed anew
            except OSError as error:
                self._tell(directory, error)
                continue
            self._watches[directory], self._directories[watch] = watch, directory

    def _tell(self, directory: CgroupDir, error: OSError) -> None:
        if not self._is_full:
            hint = "; raise fs.inotify.max_user_watches" if error.errno == errno.ENOSPC else ""
            log.warning("containers are not followed from %s on: %s%s", directory, error.strerror, hint)
        self._is_full = True

    def forget(self, directories: Iterable[CgroupDir]) -> None:
        """Watch these no longer; they may be gone."""
        for directory in directories:
            self._forget(directory)

    def _forget(self, directory: CgroupDir) -> None:
        watch = self._watches.pop(directory, None)
        if watch is not None:
            self._directories.pop(watch, None)
            with suppress(OSError):  # the kernel has dropped it with the cgroup
                self._inotify.rm_watch(watch)

    def drain(self) -> frozenset[CgroupDir]:
        """The containers that changed since; all of them if the kernel lost count."""
        events = self._inotify.read(timeout=0)
        if any(event.mask & flags.Q_OVERFLOW for event in events):
            return frozenset(self._watches)
        known = self._directories.copy()
        return frozenset(known[event.wd] for event in events if event.wd in known)

    def close(self) -> None:
        """Give the descriptor back."""
        self._inotify.close()
