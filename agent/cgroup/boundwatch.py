"""Hears of cgroups outside of our subtree that containers are bound to: made, removed, written, populated.

inotify on every cgroup on the way there, the last one's files, and its ``cgroup.events`` (see
`ContainerWatch`). What we write there ourselves is told, too: a look that finds nothing to do is cheap.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from inotify_simple import Event, INotify, flags

from agent.cgroup.bound import BOUND_FILES
from agent.cgroup.layout import CgroupDir, ancestors

log = logging.getLogger(__name__)

_EVENTS_FILE: Final = "cgroup.events"
_ON_THE_WAY: Final = flags.CREATE | flags.DELETE | flags.ONLYDIR
_FILES: Final = frozenset(BOUND_FILES)


class BoundWatch:
    """Watches cgroups below ``mount``. Not for several threads at once, `drain` aside.

    Where the user's inotify instances or watches are used up, it says so once: changes are then noticed
    with the reconcile period.
    """

    def __init__(self, mount: Path) -> None:
        self._mount = mount
        self._of: dict[Path, int] = {}
        self._awaited: dict[int, frozenset[str]] = {}
        """By watch, the names that matter in it; those of `_FILES` and files without a name always do."""
        self._told = False
        self._inotify: INotify | None = None
        try:
            self._inotify = INotify(nonblocking=True)
        except OSError as error:
            self._tell(error, "fs.inotify.max_user_instances")

    def fileno(self) -> int:
        """A descriptor that is readable when something may have changed; -1: there is none."""
        return -1 if self._inotify is None else int(self._inotify.fileno())

    def follow(self, places: Iterable[CgroupDir]) -> None:
        """Watch these, and no others any more; whether they are there or not, and before they are looked at."""
        if self._inotify is None:
            return
        awaited: dict[Path, set[str]] = {}
        for place in places:
            line = [*ancestors(place)][::-1]
            for above, below in zip([CgroupDir(""), *line], [*line, place], strict=True):
                awaited.setdefault(self._mount / above, set()).add(below.rpartition("/")[2])
            awaited.setdefault(self._mount / place, set())
        self._watch(self._inotify, awaited)

    def _watch(self, inotify: INotify, awaited: dict[Path, set[str]]) -> None:
        of: dict[Path, int] = {}
        for directory, names in awaited.items():  # parents first: what is made meanwhile is told, or there
            for path, mask in _watched(directory, last=not names):
                number = self._add(inotify, path, mask)
                if number is not None:
                    of[path] = number
                    self._awaited[number] = frozenset(names)
        for number in self._of.values():
            if number not in of.values():
                self._forget(inotify, number)
        self._of = of

    def _add(self, inotify: INotify, path: Path, mask: int) -> int | None:
        try:
            return int(inotify.add_watch(path, mask))
        except FileNotFoundError:
            return None
        except OSError as error:
            self._tell(error, "fs.inotify.max_user_watches")
            return None

    def _forget(self, inotify: INotify, number: int) -> None:
        self._awaited.pop(number, None)
        try:
            inotify.rm_watch(number)
        except OSError:  # the kernel has dropped it with the cgroup
            return

    def _tell(self, error: OSError, limit: str) -> None:
        if not self._told:
            self._told = True
            log.warning(
                "bound units and cgroups that change are noticed with the reconcile period only,"
                " for want of inotify: raise %s with sysctl: error=%s",
                limit,
                error.strerror,
            )

    def drain(self) -> bool:
        """Whether anything happened since that concerns what is watched."""
        events = [] if self._inotify is None else self._inotify.read(timeout=0)
        return any(map(self._concerns, events))

    def _concerns(self, event: Event) -> bool:
        if event.mask & flags.Q_OVERFLOW:
            return True
        if event.mask & flags.IGNORED:
            return False
        return not event.name or event.name in _FILES or event.name in self._awaited.get(event.wd, ())

    def close(self) -> None:
        """Give the descriptor back."""
        if self._inotify is not None:
            self._inotify.close()


def _watched(directory: Path, *, last: bool) -> Iterator[tuple[Path, int]]:
    """What to watch of a cgroup on the way, or of the ``last`` one."""
    if last:
        yield directory, flags.MODIFY | flags.ONLYDIR
        yield directory / _EVENTS_FILE, flags.MODIFY
    else:
        yield directory, _ON_THE_WAY
