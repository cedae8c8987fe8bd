"""The manifest directory: which files are there, what is in each that changed, and following it.

Semantics of the kubelet's file source: not recursive, dot files skipped, files above 10 MB
refused. A file that cannot be read, or holds no pod, keeps its pods as they were: only a file that
is gone takes its pods with it, and an unreadable directory takes none.
"""

from __future__ import annotations

import logging
import os
import select
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from inotify_simple import INotify, flags

from agent.containermanager import ALREADY_EXISTS, MACHINE_FAULTS, ContainerManager
from agent.containermanager.bindingpolicy import MANIFEST_SOURCE
from agent.domain.pod import Pod
from agent.domain.settings import Gates
from agent.errors import NumaletError
from agent.manifest import MAX_BYTES, ManifestError, load_manifests

log = logging.getLogger(__name__)

_EVENTS: Final = flags.CLOSE_WRITE | flags.MOVED_TO | flags.MOVED_FROM | flags.DELETE | flags.ONLYDIR
_QUIET_MS: Final = 50
_MOST_BURSTS: Final = 20
"""Whoever never stops writing cannot hold up the scan for more than a second."""
_DIRECTORY: Final = ""
_WATCH: Final = "/"
"""Keys of the directory's own problems; no file has such a name."""

Stamp = tuple[int, int, int]
_UNREAD: Final[Stamp] = (0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What one scan found: pods per new or changed file, and files that are gone.

    ``problems`` is everything wrong with the directory now, whenever it was found.
    """

    loaded: Mapping[str, tuple[Pod, ...]] = field(default_factory=dict)
    gone: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class ManifestDir:
    """Watches one directory. ``fileno`` becomes readable when something changed."""

    def __init__(self, root: Path, gates: Gates) -> None:
        self.root = root
        self.gates = gates
        self._seen: dict[str, Stamp] = {}
        self._problems: dict[str, tuple[str, ...]] = {}
        self._inotify = INotify(nonblocking=True)
        self._interrupted = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        """The inotify descriptor, for a selector."""
        return int(self._inotify.fileno())

    def wait(self, seconds: float) -> None:
        """Return when something changed and the burst of changes has ended, or after ``seconds``."""
        poll = select.poll()
        poll.register(self.fileno(), select.POLLIN)
        poll.register(self._interrupted, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(seconds * 1000)}
        if self._interrupted in ready:
            os.eventfd_read(self._interrupted)
        if self.fileno() not in ready:
            return
        for _ in range(_MOST_BURSTS):
            events = self._inotify.read(timeout=_QUIET_MS)
            if not events:
                return
            for event in events:
                if event.name in self._seen:  # its stamp may be the same: clocks of file systems are coarse
                    self._seen[event.name] = _UNREAD

    def interrupt(self) -> None:
        """Let `wait` return at once, in whichever thread it is."""
        os.eventfd_write(self._interrupted, 1)

    def known(self, names: frozenset[str]) -> None:
        """Tell which files pods were admitted from before: the next scan misses those that are gone."""
        for name in names:
            self._seen.setdefault(name, _UNREAD)

    def again(self, name: str) -> None:
        """Take a file for changed, or gone, at the next scan."""
        self._seen[name] = _UNREAD

    def scan(self) -> Change:
        """Compare the directory with the last scan."""
        self._watch()
        try:
            stamps = self._stamps()
        except OSError as error:
            text = f"{self.root}: {error.strerror}: its pods stay as they are"
            self._problems[_DIRECTORY] = (text,)
            return Change(problems=self._all_problems())
        self._problems.pop(_DIRECTORY, None)
        changed = [name for name, stamp in sorted(stamps.items()) if self._seen.get(name) != stamp]
        loaded = {name: pods for name in changed if (pods := self._load(name, stamps[name]))}
        gone = tuple(sorted(self._seen.keys() - stamps.keys()))
        for name in gone:
            del self._seen[name]
            self._problems.pop(name, None)
        return Change(loaded=loaded, gone=gone, problems=self._all_problems())

    def _watch(self) -> None:
        """Watch the directory, also one that was made anew; before it is listed, so that nothing is missed."""
        self._problems.pop(_WATCH, None)
        try:
            self._inotify.add_watch(self.root, _EVENTS)
        except (FileNotFoundError, NotADirectoryError):
            pass  # listing it fails, too, and says so
        except OSError as error:  # the user's inotify watches are used up
            text = f"{self.root}: cannot be watched ({error.strerror}): changes show at the next scan"
            self._problems[_WATCH] = (text,)

    def _all_problems(self) -> tuple[str, ...]:
        return tuple(text for _, texts in sorted(self._problems.items()) for text in texts)

    def close(self) -> None:
        """Stop watching."""
        self._inotify.close()
        os.close(self._interrupted)

    def _stamps(self) -> dict[str, Stamp]:
        stamps: dict[str, Stamp] = {}
        with os.scandir(self.root) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # deleted since it was listed
                    if not entry.name.startswith(".") and entry.is_file():
                        info = entry.stat()
                        stamps[entry.name] = (info.st_ino, info.st_size, info.st_mtime_ns)
        return stamps

    def _load(self, name: str, stamp: Stamp) -> tuple[Pod, ...]:
        """The pods of a file; none where it cannot be used, which is then one of the problems."""
        try:
            with (self.root / name).open("rb") as file:
                raw = file.read(MAX_BYTES + 1)
        except FileNotFoundError:
            return ()  # deleted between listing and reading: the next scan misses it
        except OSError as error:
            self._seen.setdefault(name, _UNREAD)  # to be tried again: mending it may not show in the stamp
            self._problems[name] = (f"{name}: {error.strerror}",)
            return ()
        self._seen[name] = stamp
        try:
            pods = load_manifests(raw, name, self.gates)
        except ManifestError as error:
            self._problems[name] = tuple(str(error).split("\n"))
            return ()
        if pods:
            self._problems.pop(name, None)
        else:  # an editor empties a file before it writes it
            self._problems[name] = (f"{name}: holds no pod; pods go when their file is gone",)
        return pods


class ManifestFollower:
    """Keeps the owner's pods in line with a manifest directory. One thread calls it."""

    def __init__(self, manifests: ManifestDir, owner: ContainerManager) -> None:
        self._manifests = manifests
        self._owner = owner
        self._troubles: dict[str, tuple[str, ...]] = {}
        sources = (source for source in owner.sources() if source.startswith(MANIFEST_SOURCE))
        manifests.known(frozenset(source.removeprefix(MANIFEST_SOURCE) for source in sources))

    def sync(self) -> None:
        """Scan once and follow what changed; every problem is told once, however often it is seen."""
        change = self._manifests.scan()
        self._tell(change)
        for name in change.gone:
            self._follow_file(name, ())
        for name, pods in change.loaded.items():
            self._follow_file(name, pods)
        self._tell(change)

    def _tell(self, change: Change) -> None:
        troubles = (text for _, texts in sorted(self._troubles.items()) for text in texts)
        self._owner.manifest_problems((*change.problems, *troubles))

    def _follow_file(self, name: str, pods: tuple[Pod, ...]) -> None:
        """Bring the pods of one file in line; what fails is tried again at the next scan."""
        source = MANIFEST_SOURCE + name
        self._troubles.pop(name, None)
        try:
            for uid in sorted(self._owner.pods_of(source) - {pod.uid for pod in pods}):
                self._owner.remove(uid, None)
            clashes = [clash for pod in pods if (clash := self._follow_pod(pod, name))]
        except NumaletError as error:
            self._manifests.again(name)
            clashes = [f"{error.message} ({error.hint})" if error.hint else error.message]
        except Exception:
            log.exception("manifest: %s: internal error", name)
            return
        if clashes:
            self._troubles[name] = tuple(f"{name}: {clash}" for clash in clashes)

    def _follow_pod(self, pod: Pod, name: str) -> str:
        """Admit a pod of a file, anew if it was changed; says which other pod is in its way, if one is."""
        source = MANIFEST_SOURCE + name
        if self._owner.has_changed(pod, source):
            self._owner.remove(pod.uid, None)
        verdict = self._owner.admit(pod, source)
        if verdict.reason in MACHINE_FAULTS:
            self._manifests.again(name)
        return verdict.message if verdict.reason == ALREADY_EXISTS else ""
