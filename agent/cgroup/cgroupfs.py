"""A cgroup v2 subtree on the real kernel.

Every path is opened step by step from the root's descriptor without following symbolic links, so
nothing outside the root can be reached whatever a name says.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import resource
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from agent.cgroup import layout
from agent.cgroup.backend import (
    DIRECTORY,
    NOTHING,
    PROCS,
    READ_BACK,
    REFUSED,
    SUBTREE_CONTROL,
    Enabled,
    EnforcementError,
    Explained,
    Prepared,
    Problem,
    check_read_back,
    check_usage,
)
from agent.cgroup.claims import blamed
from agent.cgroup.containerwatch import ContainerWatch
from agent.cgroup.layout import ROOT, CgroupDir, Kind
from agent.cgroup.naming import PLAIN, CgroupNames
from agent.cgroup.preflight import mount_of, preflight
from agent.cgroup.tree import (
    CPUS,
    MEMORY_MAX,
    OPTIONAL_CONTROLLERS,
    REQUIRED_CONTROLLERS,
    KernelOffer,
    Observed,
    ObservedDir,
    is_planned,
)
from agent.cgroup.watch import DriftWatch
from agent.errors import HostError

_CONTROLLERS: Final = "cgroup.controllers"
_EVENTS: Final = "cgroup.events"
_KILL: Final = "cgroup.kill"
_MEMORY_CURRENT: Final = "memory.current"
_CPU_STAT: Final = "cpu.stat"
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@:\\-]*", re.ASCII)
_READ_LIMIT: Final = 1 << 22
_RETRIES: Final = 10
_PAUSE: Final = 0.01


class CgroupFs:
    """`CgroupBackend` for the cgroup at ``root``; waits at most ``patience`` seconds for processes to die.

    Without ``watch`` it is not known who else writes there. ``containers`` follows the containers'
    cgroups that are made here.
    """

    def __init__(
        self,
        root: Path,
        *,
        patience: float = 5.0,
        watch: DriftWatch | None = None,
        containers: ContainerWatch | None = None,
        names: CgroupNames = PLAIN,
    ) -> None:
        self.root = root
        self._names = names
        self._watch = watch
        self._containers = containers
        self._patience = patience
        self._page = resource.getpagesize()
        self._claim: int | None = None

    def preflight(self) -> tuple[Problem, ...]:
        """See `CgroupBackend.preflight`."""
        return preflight(self.root)

    def prepare(self) -> Prepared:
        """See `CgroupBackend.prepare`."""
        mount = mount_of(self.root)
        offered = (mount / _CONTROLLERS).read_text().split()
        wanted = [name for name in (*REQUIRED_CONTROLLERS, *OPTIONAL_CONTROLLERS) if name in offered]
        enabled, created = [], []
        here = mount
        for name in self.root.relative_to(mount).parts:
            missing = self._missing(here, wanted)
            if missing:
                _switch(here, "+", missing)
                enabled.append(Enabled(str(here), missing))
            here /= name
            if not here.is_dir():
                with Explained(str(here), DIRECTORY):
                    here.mkdir(mode=0o755)
                created.append(str(here))
        self._claim_root()
        return Prepared(enabled=tuple(enabled), created=tuple(created))

    def _claim_root(self) -> None:
        """Lock the root against other agents, which would take our cgroups for theirs to remove.

        The kernel lets go of the lock when the process ends, however it ends.
        """
        if self._claim is not None:
            return
        with Explained(str(self.root), DIRECTORY):
            fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(fd)
            raise HostError(
                f"cgroup root {self.root} is in use by another numalet",
                hint="stop that one, or give this one another cgroupRoot (--cgroup-root)",
            ) from error
        self._claim = fd

    def _let_go(self) -> None:
        if self._claim is not None:
            os.close(self._claim)
            self._claim = None

    @staticmethod
    def _missing(cgroup: Path, wanted: Sequence[str]) -> tuple[str, ...]:
        with Explained(str(cgroup), SUBTREE_CONTROL):
            present = (cgroup / SUBTREE_CONTROL).read_text().split()
        return tuple(name for name in wanted if name not in present)

    def restore(self, prepared: Prepared) -> None:
        """See `CgroupBackend.restore`."""
        self._let_go()
        for path in reversed(prepared.created):
            with suppress(OSError):  # not empty: somebody else moved in
                Path(path).rmdir()
        for step in reversed(prepared.enabled):
            with suppress(EnforcementError):  # busy: somebody else uses it by now
                _switch(Path(step.path), "-", step.controllers)

    def offer(self) -> KernelOffer:
        """See `CgroupBackend.offer`."""
        with self._open(ROOT, DIRECTORY) as fd:
            files = frozenset(file for file in os.listdir(fd) if is_planned(file))  # noqa: PTH208 - a descriptor, not a path
        controllers = frozenset(self.read(ROOT, _CONTROLLERS).split())
        return KernelOffer(controllers=controllers, files=files, page_size=self._page)

    def observe(self, top: CgroupDir = ROOT, leave_out: frozenset[Kind] = NOTHING) -> Observed:
        """See `CgroupBackend.observe`. A cgroup that vanishes during the scan is left out."""
        dirs: dict[CgroupDir, ObservedDir] = {}
        closed = leave_out | {Kind.FOREIGN}
        if not self.exists(top):
            return Observed()
        there = self._names.path(top)
        with self._open(top, DIRECTORY) as start:
            for path, below, files, fd in os.fwalk(".", dir_fd=start):
                inside = path.removeprefix(".").removeprefix("/")
                directory = self._names.directory("/".join(filter(None, (there, inside))))
                kind = layout.kind_of(directory)
                if kind in closed:
                    below.clear()
                if kind in closed or kind is Kind.NESTED:
                    dirs[directory] = ObservedDir()
                    continue
                self._watched(directory)
                with suppress(OSError):
                    dirs[directory] = _observed(fd, files)
        return Observed(dirs=dirs)

    def changed(self) -> frozenset[CgroupDir] | None:
        """See `CgroupBackend.changed`."""
        return None if self._watch is None else self._watch.drain()

    def exists(self, directory: CgroupDir) -> bool:
        """See `CgroupBackend.exists`."""
        try:
            with self._open(directory, DIRECTORY):
                return True
        except EnforcementError as error:
            if error.code in {"ENOENT", "ENODEV"}:
                return False
            raise

    def children(self, directory: CgroupDir) -> tuple[CgroupDir, ...]:
        """See `CgroupBackend.children`. One whose name we would not open is left out."""
        with self._open(directory, DIRECTORY) as fd, os.scandir(fd) as entries:
            found = [one.name for one in entries if one.is_dir(follow_symlinks=False)]
        above = self._names.path(directory)
        paths = (f"{above}/{name}" if above else name for name in sorted(found) if _NAME.fullmatch(name))
        return tuple(map(self._names.directory, paths))

    def make(self, directory: CgroupDir) -> None:
        """See `CgroupBackend.make`. A root that somebody removed is prepared again."""
        if directory == ROOT:
            self._let_go()
            self.prepare()
            self._watched(ROOT)
            return
        parent, name = self._split(directory)
        shown = self._shown(directory)
        with self._open(parent, DIRECTORY) as fd, Explained(shown, DIRECTORY):
            with suppress(FileExistsError):
                os.mkdir(name, 0o755, dir_fd=fd)
            self._disown(parent, name)
        self._watched(directory)
        if self._containers is not None:
            self._containers.follow((directory,))

    def _watched(self, directory: CgroupDir) -> None:
        if self._watch is not None:
            self._watch.add(directory)

    def remove(self, directory: CgroupDir) -> None:
        """See `CgroupBackend.remove`. Retries for a moment: dying processes linger."""
        parent, name = self._split(directory)
        shown = self._shown(directory)
        if self.exists(directory):
            with (
                self._open(parent, DIRECTORY) as fd,
                Explained(shown, DIRECTORY),
                suppress(FileNotFoundError),
            ):
                _patiently(lambda: os.rmdir(name, dir_fd=fd))
        if self._watch is not None:
            self._watch.forget(directory)
            self._watch.disown(parent, name)
        if self._containers is not None:
            self._containers.forget((directory,))

    def _disown(self, directory: CgroupDir, name: str) -> None:
        """What we wrote or made a moment ago, we did ourselves; before it is read back (see `DriftWatch`)."""
        if self._watch is not None:
            self._watch.disown(directory, name)

    def read(self, directory: CgroupDir, file: str) -> str:
        """See `CgroupBackend.read`."""
        with self._open(directory, file) as fd, Explained(self._shown(directory), file):
            return _read(fd, file)

    def write(self, directory: CgroupDir, file: str, text: str) -> Mapping[str, str]:
        """See `CgroupBackend.write`. An error names the cgroups of others that have the CPUs."""
        try:
            return self._write(directory, file, text)
        except EnforcementError as error:
            raise blamed(error, self.root, lambda: self.read(directory, CPUS)) from error

    def _write(self, directory: CgroupDir, file: str, text: str) -> Mapping[str, str]:
        shown = self._shown(directory)
        with self._open(directory, file, text) as fd:
            if file == MEMORY_MAX:
                with Explained(shown, _MEMORY_CURRENT):
                    check_usage(shown, text, int(_read(fd, _MEMORY_CURRENT)))
            with Explained(shown, file, text):
                try:
                    _write(fd, file, text)
                finally:  # a refused write is an event, too: it began by truncating the file
                    self._disown(directory, file)
                return check_read_back(shown, file, text, lambda name: _read(fd, name), self._page)

    def agree(self) -> None:
        """See `CgroupBackend.agree`. There is nobody to tell."""

    def enable(self, directory: CgroupDir, controllers: Sequence[str]) -> None:
        """See `CgroupBackend.enable`."""
        text = " ".join(f"+{name}" for name in controllers)
        shown = self._shown(directory)
        with self._open(directory, SUBTREE_CONTROL) as fd, Explained(shown, SUBTREE_CONTROL, text):
            try:
                _patiently(lambda: _write(fd, SUBTREE_CONTROL, text))
            finally:
                self._disown(directory, SUBTREE_CONTROL)
            found = _read(fd, SUBTREE_CONTROL)
        if not set(controllers) <= set(found.split()):
            meaning = f"the kernel shows {found!r}"
            raise EnforcementError(shown, SUBTREE_CONTROL, text, READ_BACK, meaning, "")

    def procs(self, directory: CgroupDir) -> tuple[int, ...]:
        """See `CgroupBackend.procs`. A process outside our pid namespace is shown as 0."""
        return tuple(sorted(map(int, self.read(directory, PROCS).split())))

    def add_process(self, directory: CgroupDir, pid: int) -> None:
        """See `CgroupBackend.add_process`."""
        with self._open(directory, PROCS, str(pid)) as fd, Explained(self._shown(directory), PROCS, str(pid)):
            _write(fd, PROCS, str(pid))

    def populated(self, directory: CgroupDir) -> bool:
        """See `CgroupBackend.populated`."""
        return _flat_keyed(self.read(directory, _EVENTS)).get("populated") == 1

    def kill(self, directory: CgroupDir) -> None:
        """See `CgroupBackend.kill`."""
        deadline = time.monotonic() + self._patience
        while self.populated(directory):
            self._kill_once(directory)
            if time.monotonic() > deadline:
                left = ", ".join(map(str, self._procs_below(directory))) or "unknown"
                meaning = f"processes {left} do not die within {self._patience:g} s"
                hint = "a process in uninterruptible sleep waits for a device or file server"
                raise EnforcementError(self._shown(directory), _KILL, "1", "EBUSY", meaning, hint)
            time.sleep(_PAUSE)

    def _kill_once(self, directory: CgroupDir) -> None:
        with self._open(directory, _KILL, "1") as fd, Explained(self._shown(directory), _KILL, "1"):
            try:
                _write(fd, _KILL, "1")
            except FileNotFoundError:  # before Linux 5.14
                for pid in self._procs_below(directory):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)

    def _procs_below(self, directory: CgroupDir) -> list[int]:
        """Processes we can name, in the cgroup and below; never 0, which would be our own group."""
        pids: list[int] = []
        with self._open(directory, PROCS) as top:
            for *_, fd in os.fwalk(".", dir_fd=top):
                with suppress(OSError):
                    pids.extend(pid for pid in map(int, _read(fd, PROCS).split()) if pid > 0)
        return sorted(pids)

    def stat(self, directory: CgroupDir) -> Mapping[str, int]:
        """See `CgroupBackend.stat`."""
        stat: dict[str, int] = {}
        with self._open(directory, _CPU_STAT) as fd:
            with suppress(FileNotFoundError):
                stat.update(_flat_keyed(_read(fd, _CPU_STAT)))
            with suppress(FileNotFoundError):
                stat[_MEMORY_CURRENT] = int(_read(fd, _MEMORY_CURRENT))
        return stat

    def _shown(self, directory: CgroupDir) -> str:
        return f"{self.root}/{self._names.path(directory)}" if directory else str(self.root)

    def _split(self, directory: CgroupDir) -> tuple[CgroupDir, str]:
        """The cgroup above, and the name in it."""
        names = self._names.path(directory).split("/")
        for name in names:
            self._check_name(directory, name)
        return layout.parent_of(directory), names[-1]

    def _check_name(self, directory: CgroupDir, name: str) -> None:
        if not _NAME.fullmatch(name):
            meaning = f"{name!r} is not a name inside our subtree"
            raise EnforcementError(self._shown(directory), DIRECTORY, "", REFUSED, meaning, "")

    @contextmanager
    def _open(self, directory: CgroupDir, file: str, value: str = "") -> Iterator[int]:
        """A descriptor of the cgroup; errors of opening it speak of ``file`` and ``value``."""
        if file:
            self._check_name(directory, file)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        with Explained(self._shown(directory), file, value):
            fd = os.open(self.root, flags)
        try:
            for name in self._names.path(directory).split("/") if directory else ():
                self._check_name(directory, name)
                with Explained(self._shown(directory), file, value):
                    below = os.open(name, flags, dir_fd=fd)
                os.close(fd)
                fd = below
            yield fd
        finally:
            os.close(fd)


def _observed(fd: int, files: Sequence[str]) -> ObservedDir:
    return ObservedDir(
        files={file: _read(fd, file) for file in sorted(files) if is_planned(file)},
        subtree=frozenset(_read(fd, SUBTREE_CONTROL).split()),
        populated=_flat_keyed(_read(fd, _EVENTS)).get("populated") == 1,
    )


def _read(fd: int, file: str) -> str:
    """At most `_READ_LIMIT` bytes of a file in the directory ``fd``, without the last newline."""
    handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
    with os.fdopen(handle, "rb", buffering=0) as stream:
        content = b""
        while len(content) < _READ_LIMIT and (more := stream.read(65_536)):
            content += more
    return content.decode().rstrip("\n")


def _write(fd: int, file: str, text: str) -> None:
    handle = os.open(file, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
    with os.fdopen(handle, "wb", buffering=0) as stream:
        stream.write(text.encode() or b"\n")  # the kernel takes nothing for nothing written


def _switch(cgroup: Path, sign: str, controllers: Sequence[str]) -> None:
    text = " ".join(f"{sign}{name}" for name in controllers)
    with Explained(str(cgroup), SUBTREE_CONTROL, text):
        (cgroup / SUBTREE_CONTROL).write_text(text)


def _flat_keyed(text: str) -> dict[str, int]:
    pairs = (line.split() for line in text.splitlines())
    return {key: int(value) for key, value in pairs}


def _patiently(action: Callable[[], None]) -> None:
    """Run ``action``, again while it is EBUSY for a few pauses: a cgroup drains asynchronously."""
    for _ in range(_RETRIES):
        try:
            return action()
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
        time.sleep(_PAUSE)
    return action()
