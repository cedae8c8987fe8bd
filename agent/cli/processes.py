"""Moving running processes into a cgroup: which may be moved, and their descendants."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from agent.cgroup import layout
from agent.cgroup.backend import PROCS
from agent.cgroup.layout import CgroupDir, Kind
from agent.cgroup.naming import PLAIN, CgroupNames
from agent.cgroup.preflight import mount_of
from agent.errors import HostError

_PF_KTHREAD: Final = 0x00200000
"""include/linux/sched.h"""
_DEAD: Final = frozenset("ZX")
_UNIFIED: Final = "0::"
_MEANING: Final[Mapping[int, tuple[str, str]]] = {
    errno.ESRCH: ("it has ended", "see: ps -e"),
    errno.EBUSY: (
        "the cgroup passes controllers on to cgroups that were made in it",
        "remove those, or attach to another container",
    ),
    errno.ENOENT: ("the cgroup was removed", "see: numalet get pods"),
    errno.ENODEV: ("the cgroup was removed", "see: numalet get pods"),
    errno.EACCES: ("permission denied", "use root"),
    errno.EPERM: ("permission denied", "use root"),
    errno.EINVAL: (
        "the kernel does not move this process",
        "one with real-time priority needs CONFIG_RT_GROUP_SCHED off, or a share of cpu.rt_runtime_us",
    ),
    errno.EOPNOTSUPP: ("the process is in a threaded cgroup", "move it out of that first"),
    errno.EAGAIN: ("the container may have no more processes", "see pids.max of its pod"),
}


class Processes:
    """The processes of this machine as /proc shows them, and a cgroup root of numalet's."""

    def __init__(self, root: Path, proc: Path = Path("/proc"), names: CgroupNames = PLAIN) -> None:
        self._root = root
        self._names = names
        self._mount = mount_of(root)
        self._proc = proc

    def check(self, pid: int, cgroup: Path, *, force: bool) -> None:
        """Raise HostError where the process is not to be moved into ``cgroup``."""
        try:
            state, flags = self._state(pid)
            where = self._cgroup(pid)
        except (FileNotFoundError, ProcessLookupError) as error:
            raise HostError(f"there is no process {pid}", hint="see: ps -e") from error
        if pid == 1:
            raise HostError("process 1 is the machine's init", hint="name the process that does the work")
        if flags & _PF_KTHREAD:
            raise HostError(f"process {pid} is a kernel thread", hint="only user processes have a container")
        if state in _DEAD:
            raise HostError(f"process {pid} has ended: its parent has yet to take note", hint="see: ps -e")
        other, pod = self._pod_of(where), self._pod_of(cgroup)
        if other and other != pod and not force:
            hint = "to move it all the same: --force"
            raise HostError(f"process {pid} is already in another pod's cgroup, {where}", hint=hint)

    def move(self, pid: int, cgroup: Path) -> tuple[int, ...]:
        """Move one process with its threads; none is moved where it is there. Raises HostError."""
        try:
            if self._cgroup(pid) == cgroup:
                return ()
            (cgroup / PROCS).write_text(str(pid))
        except OSError as error:
            fallback = (error.strerror or "failed", "")
            meaning, hint = _MEANING.get(error.errno or 0, fallback)
            raise HostError(f"cannot move process {pid} to {cgroup}: {meaning}", hint=hint) from error
        return (pid,)

    def move_tree(self, pid: int, cgroup: Path) -> Iterator[int]:
        """Move a process, then its descendants, until no new ones are born outside. Raises HostError.

        Parents go first: what they start from then on is inside.
        """
        yield from self.move(pid, cgroup)
        tried = {pid}
        while fresh := [child for child in self.descendants(pid) if child not in tried]:
            tried.update(fresh)
            for child in fresh:
                with suppress(FileNotFoundError, ProcessLookupError):
                    if self._state(child)[0] not in _DEAD:
                        yield from self.move(child, cgroup)

    @staticmethod
    def descendants(pid: int) -> tuple[int, ...]:
        """The children of a process, their children, and so on."""
        try:
            return tuple(child.pid for child in psutil.Process(pid).children(recursive=True))
        except psutil.NoSuchProcess:
            return ()

    def _state(self, pid: int) -> tuple[str, int]:
        """State and flags: fields 3 and 9 of proc_pid_stat(5); the name before them may hold anything."""
        fields = (self._proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
        return fields[0], int(fields[6])

    def _cgroup(self, pid: int) -> Path:
        lines = (self._proc / str(pid) / "cgroup").read_text().splitlines()
        below = next((line.removeprefix(_UNIFIED) for line in lines if line.startswith(_UNIFIED)), "/")
        return self._mount / below.lstrip("/")

    def _pod_of(self, cgroup: Path) -> CgroupDir | None:
        """The pod of ours that a cgroup belongs to."""
        if not cgroup.is_relative_to(self._root):
            return None
        directory = self._names.directory(cgroup.relative_to(self._root).as_posix())
        line = (directory, *layout.ancestors(directory))
        return next((d for d in line if layout.kind_of(d) is Kind.POD), None)
