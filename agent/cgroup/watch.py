"""Who else touches our cgroups: inotify on each directory of the subtree.

The file system of cgroups tells of every write through the VFS, systemd's as well as a shell's, and of
removed directories in the one above (not in themselves: kernels before 6.19 send no IN_DELETE_SELF
here); and of a pod's cgroup that somebody made. Our own writes are told, too. They are taken out of the queue between writing and reading back:
what a stranger wrote before that moment is what is read back, and what comes later is a new event.
"""

from __future__ import annotations

import logging
import os
import select
from contextlib import suppress
from pathlib import Path
from threading import RLock
from typing import Final

from inotify_simple import Event, INotify, flags

from agent.cgroup import layout
from agent.cgroup.backend import SUBTREE_CONTROL
from agent.cgroup.layout import CgroupDir, Kind
from agent.cgroup.naming import PLAIN, CgroupNames
from agent.cgroup.tree import EFFECTIVE, is_planned

log = logging.getLogger(__name__)

_EVENTS: Final = flags.MODIFY | flags.CREATE | flags.DELETE | flags.ONLYDIR
_KERNELS_OWN: Final = frozenset(EFFECTIVE.values())


class DriftWatch:
    """Watches directories below ``root``, one watch each. Safe to call from several threads.

    Where the user's inotify instances or watches are used up, it says so once and `drain` knows nothing
    until all that could not be watched is watched or gone.
    """

    def __init__(self, root: Path, names: CgroupNames = PLAIN) -> None:
        self._root = root
        self._names = names
        self._lock = RLock()
        self._of: dict[CgroupDir, int] = {}
        self._directories: dict[int, CgroupDir] = {}
        self._touched: set[CgroupDir] = set()
        self._unwatched: set[CgroupDir] = set()
        self._overflowed = False
        self._inotify: INotify | None = None
        # Readable while events wait in the queue, and while some that were taken out of it are still to be told.
        self._either = select.epoll()
        self._untold = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._either.register(self._untold, select.EPOLLIN)
        try:
            self._inotify = INotify(nonblocking=True)
        except OSError as error:
            self._tell(error, "fs.inotify.max_user_instances")
        else:
            self._either.register(self._inotify.fileno(), select.EPOLLIN)

    def fileno(self) -> int:
        """A descriptor that is readable while there is something to `drain`, or to look through.

        `is_stirred` tells which, and makes it unreadable until there is more.
        """
        return self._either.fileno()

    def add(self, directory: CgroupDir) -> None:
        """Watch a cgroup, before it is looked at: nothing is missed between the two."""
        if self._inotify is None:
            return
        with self._lock:
            self._add(self._inotify, directory)

    def _add(self, inotify: INotify, directory: CgroupDir) -> None:
        try:
            number = inotify.add_watch(self._root / self._names.path(directory), _EVENTS)
        except FileNotFoundError:
            return  # it vanished: so do its files
        except OSError as error:
            if not self._unwatched:
                self._tell(error, "fs.inotify.max_user_watches")
            self._unwatched.add(directory)
            return
        self._unwatched.discard(directory)
        if self._of.get(directory) != number:  # the first time, or it was made anew
            self.forget(directory)
            self._of[directory], self._directories[number] = number, directory

    @staticmethod
    def _tell(error: OSError, limit: str) -> None:
        log.warning(
            "changes to cgroups by other programs are noticed with the reconcile period only,"
            " for want of inotify: raise %s with sysctl: error=%s",
            limit,
            error.strerror,
        )

    def forget(self, directory: CgroupDir) -> None:
        """Watch a cgroup no more: it is gone. The kernel keeps what it had of it until then."""
        with self._lock:
            self._unwatched.discard(directory)
            number = self._of.pop(directory, None)
            if number is not None and self._inotify is not None:
                del self._directories[number]
                with suppress(OSError):  # the kernel has dropped it
                    self._inotify.rm_watch(number)

    def disown(self, directory: CgroupDir, name: str) -> None:
        """``name``, as the file system has it, in ``directory`` was written, made or removed by ourselves just now."""
        with self._lock:
            self._take(mine=(directory, name))
            if self._touched or self._overflowed:
                os.eventfd_write(self._untold, 1)

    def is_stirred(self) -> bool:
        """Look through the events that wait: whether there is something to `drain`.

        A process that came or went (``cgroup.events``), or the kernel's own figures, are nothing.
        """
        with self._lock:
            self._take(mine=None)
            self._told()
            return bool(self._touched) or self._overflowed

    def drain(self) -> frozenset[CgroupDir] | None:
        """The cgroups in which somebody else wrote, removed one, or made a pod's; None where it is not known."""
        with self._lock:
            self._take(mine=None)
            self._told()
            touched, self._touched = frozenset(self._touched), set()
            overflowed, self._overflowed = self._overflowed, False
            return None if overflowed or self._unwatched or self._inotify is None else touched

    def _told(self) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self._untold)

    def _take(self, mine: tuple[CgroupDir, str] | None) -> None:
        if self._inotify is None:
            return
        for event in self._inotify.read(timeout=0):
            directory = self._directories.get(event.wd)
            if event.mask & flags.Q_OVERFLOW:
                self._overflowed = True
            elif (
                directory is not None and (directory, event.name) != mine and self._concerns(directory, event)
            ):
                self._touched.add(directory)

    def _concerns(self, directory: CgroupDir, event: Event) -> bool:
        if event.mask & flags.DELETE:
            gone = self._in(directory, event.name)
            known = gone in self._of
            self.forget(gone)
            return known
        if event.mask & flags.CREATE:
            return layout.kind_of(self._in(directory, event.name)) is Kind.POD
        return event.name == SUBTREE_CONTROL or (is_planned(event.name) and event.name not in _KERNELS_OWN)

    def _in(self, directory: CgroupDir, name: str) -> CgroupDir:
        above = self._names.path(directory)
        return self._names.directory(f"{above}/{name}" if above else name)

    def close(self) -> None:
        """Give the descriptors back."""
        self._either.close()
        os.close(self._untold)
        if self._inotify is not None:
            self._inotify.close()
