"""The gate to cgroup v2: what a backend does, how its failures read, and running a plan on it."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Protocol, assert_never

from agent.cgroup.layout import ROOT, CgroupDir, Kind
from agent.cgroup.partition import is_granted
from agent.cgroup.tree import (
    CPUS,
    CPUS_EFFECTIVE,
    EFFECTIVE,
    EXCLUSIVE,
    HUGETLB,
    MEMBER,
    MEMORY_MAX,
    MEMS,
    PARTITION,
    CgroupOp,
    EnableControllers,
    KernelOffer,
    MakeDir,
    Observed,
    RemoveDir,
    Write,
    cpus_in,
)
from agent.cgroup.units import Unlimited, parse_hugetlb_size, parse_limit
from agent.errors import HostError

SUBTREE_CONTROL: Final = "cgroup.subtree_control"
PROCS: Final = "cgroup.procs"
DIRECTORY: Final = ""
"""The ``file`` of an error about making or removing a cgroup."""
READ_BACK: Final = "READ-BACK"
"""The ``code`` of an error about a value that the kernel took but does not show."""
REFUSED: Final = "REFUSED"
"""The ``code`` of an error about a write that was not even tried."""
NOTHING: Final[frozenset[Kind]] = frozenset()

_MEANING: Final[Mapping[int, tuple[str, str]]] = {
    errno.EBUSY: ("the cgroup is in use", "stop the processes in it and remove the cgroups below it"),
    errno.ENOSPC: (
        "processes in the cgroup would have no CPU or NUMA node left",
        "move the processes away first, or give the cgroup at least one CPU",
    ),
    errno.EINVAL: (
        "the kernel does not take this value here",
        "look for a sibling cgroup that claims the same CPUs (cpuset.cpus.exclusive, cpuset.cpus.partition)",
    ),
    errno.ENODEV: ("the cgroup was removed meanwhile", "nothing to do: the next reconcile makes it again"),
    errno.ENOENT: (
        "the cgroup or this file of it does not exist",
        "enable the file's controller in cgroup.subtree_control of every cgroup above",
    ),
    errno.ERANGE: ("the value is outside what the kernel accepts", "see cgroup-v2.rst for the range"),
    errno.EACCES: (
        "permission denied",
        "run as root, or let systemd delegate the subtree: Delegate=cpuset cpu memory hugetlb pids",
    ),
    errno.EROFS: (
        "the cgroup file system is mounted read-only",
        "in a container, give it a writable cgroup namespace",
    ),
    errno.ENOTDIR: ("a file or a symbolic link is in the way", "give the path of a cgroup"),
    errno.ESRCH: ("there is no such process", "it ended meanwhile"),
    errno.EAGAIN: ("the kernel's limit of cgroups is reached", "raise cgroup.max.descendants above"),
    errno.ELOOP: ("the path leads over a symbolic link", "give the real path as the cgroup root"),
}
_MEANING_OF_FILE: Final[Mapping[tuple[str, int], tuple[str, str]]] = {
    (SUBTREE_CONTROL, errno.EBUSY): (
        "a cgroup with processes cannot pass controllers on (no internal processes)",
        "move its processes into a child cgroup",
    ),
    (SUBTREE_CONTROL, errno.ENOENT): (
        "a controller is not available here",
        "enable it in every cgroup above; one bound to cgroup v1 or disabled at boot is not to be had",
    ),
    (PROCS, errno.EBUSY): (
        "a cgroup that passes controllers on cannot hold processes (no internal processes)",
        "join a container's own cgroup, a leaf",
    ),
}


_STRANGER_HINT: Final = "another program writes here, too: find it, e.g. systemd after daemon-reload"
_PARTITION_HINT: Final = (
    "no other cgroup may claim these CPUs in cpuset.cpus.exclusive, nor one beside it in cpuset.cpus, and"
    " CAP_SYS_ADMIN is needed; docs/isolation.md has more"
)


class EnforcementError(HostError):
    """One cgroup operation failed. ``code`` is the errno's name, `READ_BACK` or `REFUSED`."""

    def __init__(self, path: str, file: str, value: str, code: str, meaning: str, hint: str) -> None:
        where = f"{path}/{file}" if file else path
        what = f"cannot write {value!r} to {where}" if value else f"cannot use {where}"
        super().__init__(f"{what}: {meaning} ({code})", hint=hint)
        self.path = path
        self.file = file
        self.value = value
        self.code = code
        self._meaning = meaning

    def because(self, reason: str) -> EnforcementError:
        """The same with a reason that was looked up afterwards."""
        return EnforcementError(
            self.path, self.file, self.value, self.code, f"{self._meaning}; {reason}", self.hint
        )


class ApplyError(HostError):
    """A plan stopped at ``op`` after ``done``; ``cause`` says why."""

    def __init__(self, op: CgroupOp, done: tuple[CgroupOp, ...], cause: EnforcementError) -> None:
        super().__init__(cause.message, hint=cause.hint)
        self.op = op
        self.done = done
        self.cause = cause


@dataclass(frozen=True, slots=True)
class Enabled:
    """Controllers that `CgroupBackend.prepare` enabled in the cgroup at ``path``."""

    path: str
    controllers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What `CgroupBackend.prepare` changed above our subtree, so that it can be undone."""

    enabled: tuple[Enabled, ...] = ()
    created: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Problem:
    """Something about the host. A ``blocking`` one must be mended before anything is written."""

    text: str
    remedy: str
    blocking: bool = True


class CgroupBackend(Protocol):
    """A cgroup v2 subtree. Every method raises `EnforcementError`; nothing outside the root is touched."""

    def preflight(self) -> tuple[Problem, ...]:
        """What stands in the way of enforcing here; writes nothing."""

    def prepare(self) -> Prepared:
        """Make the root, enable all controllers above it, top-down, and claim it until `restore`.

        Changes only what must change. Raises HostError where another agent has claimed the root.
        """

    def restore(self, prepared: Prepared) -> None:
        """Undo `prepare`, bottom-up, as far as nobody else uses it by now."""

    def offer(self) -> KernelOffer:
        """What the kernel offers in our subtree, after `prepare`."""

    def observe(self, top: CgroupDir = ROOT, leave_out: frozenset[Kind] = NOTHING) -> Observed:
        """Scan the cgroup ``top`` and all below it once; nothing is found where it does not exist.

        Of a kind in ``leave_out`` only the directory is told, not what is in it.
        """

    def changed(self) -> frozenset[CgroupDir] | None:
        """Where somebody else wrote, or removed a cgroup, since the last call.

        None: it is not known, any cgroup may have changed.
        """

    def exists(self, directory: CgroupDir) -> bool:
        """Tell whether the cgroup exists."""

    def children(self, directory: CgroupDir) -> tuple[CgroupDir, ...]:
        """The cgroups right below, by name."""

    def make(self, directory: CgroupDir) -> None:
        """Create a cgroup; one that is there already is fine."""

    def remove(self, directory: CgroupDir) -> None:
        """Remove an empty cgroup; one that is gone already is fine."""

    def read(self, directory: CgroupDir, file: str) -> str:
        """A file's content without the last newline."""

    def write(self, directory: CgroupDir, file: str, text: str) -> Mapping[str, str]:
        """Write a file and read it back; a cpuset must be effective, too. Returns the files as read."""

    def agree(self) -> None:
        """Return when all that was written holds for whoever else writes there, too.

        What he does not take is told again with the next call.
        """

    def enable(self, directory: CgroupDir, controllers: Sequence[str]) -> None:
        """Give the cgroup's children these controllers."""

    def procs(self, directory: CgroupDir) -> tuple[int, ...]:
        """The processes in the cgroup itself, ascending."""

    def add_process(self, directory: CgroupDir, pid: int) -> None:
        """Move a process into the cgroup."""

    def populated(self, directory: CgroupDir) -> bool:
        """Tell whether a process lives in the cgroup or below it."""

    def kill(self, directory: CgroupDir) -> None:
        """Kill every process in the cgroup and below it; return when none is left."""

    def stat(self, directory: CgroupDir) -> Mapping[str, int]:
        """``cpu.stat`` (times in µs) and ``memory.current`` (bytes), as far as they are offered."""


def _unheard(_op: CgroupOp, _files: Mapping[str, str]) -> None:
    pass


def apply(
    backend: CgroupBackend,
    ops: Sequence[CgroupOp],
    seen: Callable[[CgroupOp, Mapping[str, str]], None] = _unheard,
) -> Mapping[CgroupDir, EnforcementError]:
    """Run ``ops`` in order; stop at the first that fails with `ApplyError`.

    Cgroups come and go among others on whose files all agree; EnforcementError where they do not. A memory
    limit below what is in use is put off, not written: it must not hold up the others. Returned are the
    cgroups whose limit that is, and why. ``seen`` is told of each operation that is done, with the files that
    were read back. To undo a part, plan the earlier tree again and apply its difference to what is there now.
    """
    put_off: dict[CgroupDir, EnforcementError] = {}
    for done, op in enumerate(ops):
        if not isinstance(op, Write):
            backend.agree()
        try:
            files = _run(backend, op)
        except EnforcementError as error:
            if (error.code, error.file) != (REFUSED, MEMORY_MAX):
                raise ApplyError(op, tuple(ops[:done]), error) from error
            put_off[op.directory] = error
        else:
            seen(op, files)
    backend.agree()
    return put_off


def _run(backend: CgroupBackend, op: CgroupOp) -> Mapping[str, str]:
    match op:
        case Write(directory, file, text):
            return backend.write(directory, file, text)
        case MakeDir(directory):
            backend.make(directory)
        case EnableControllers(directory, controllers):
            backend.enable(directory, controllers)
        case RemoveDir(directory):
            backend.remove(directory)
        case _:
            assert_never(op)
    return {}


class Explained:
    """A block whose OSError becomes an `EnforcementError` that says what it means."""

    __slots__ = ("_file", "_path", "_value")

    def __init__(self, path: str, file: str, value: str = "") -> None:
        self._path = path
        self._file = file
        self._value = value

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, OSError):
            return
        number = errno.EACCES if error.errno == errno.EPERM else error.errno or 0
        fallback = (error.strerror or "failed", "")
        meaning, hint = _MEANING_OF_FILE.get((self._file, number)) or _MEANING.get(number, fallback)
        code = errno.errorcode.get(error.errno or 0, "UNKNOWN")
        raise EnforcementError(self._path, self._file, self._value, code, meaning, hint) from error


def check_usage(path: str, text: str, current: int) -> None:
    """Refuse a ``memory.max`` below what is in use: cgroup v2 would kill processes at once."""
    if text.isdigit() and int(text) < current:
        meaning = f"{current} bytes are in use, so the kernel would kill processes"
        hint = "stop the container first, or let memory.reclaim free its caches"
        raise EnforcementError(path, MEMORY_MAX, text, REFUSED, meaning, hint)


def check_read_back(
    path: str, file: str, text: str, read: Callable[[str], str], page: int
) -> Mapping[str, str]:
    """Compare what was written with what the kernel shows; a cpuset must be effective, too.

    Returns what it shows, by file.
    """
    found = read(file)
    if not _is_same(file, text, found, page):
        hint = _PARTITION_HINT if file == PARTITION else _STRANGER_HINT
        raise EnforcementError(path, file, text, READ_BACK, f"the kernel shows {found!r}", hint)
    if file == PARTITION:
        return _check_partition(path, {file: found, CPUS: read(CPUS), CPUS_EFFECTIVE: read(CPUS_EFFECTIVE)})
    if file == EXCLUSIVE:  # what partitions below had may be back
        return {file: found, CPUS_EFFECTIVE: read(CPUS_EFFECTIVE)}
    effective = EFFECTIVE.get(file)
    if effective is None:
        return {file: found}
    given = read(effective)
    shown = {file: found, effective: given}
    if given != found and not is_granted(file, found, shown | _handed_down(file, read)):
        meaning = f"{effective} is {given!r}"
        hint = "a cgroup above does not have them all, or one went offline; nothing may run elsewhere"
        raise EnforcementError(path, file, text, READ_BACK, meaning, hint)
    return shown


def _handed_down(file: str, read: Callable[[str], str]) -> dict[str, str]:
    """What tells of CPUs that partitions below have cut out of a cgroup; nothing where there can be none."""
    with suppress(OSError):  # before Linux 6.7
        return {name: read(name) for name in (EXCLUSIVE, PARTITION) if file == CPUS}
    return {}


def _check_partition(path: str, shown: Mapping[str, str]) -> Mapping[str, str]:
    if shown[PARTITION] != MEMBER and not is_granted(CPUS, shown[CPUS], shown):
        meaning = f"{CPUS_EFFECTIVE} is {shown[CPUS_EFFECTIVE]!r}, not {shown[CPUS]!r}"
        raise EnforcementError(path, PARTITION, shown[PARTITION], READ_BACK, meaning, _PARTITION_HINT)
    return shown


def _is_same(file: str, text: str, found: str, page: int) -> bool:
    if found == text:
        return True
    if file in {CPUS, MEMS}:
        return cpus_in(found) == cpus_in(text) and bool(found)
    if file == EXCLUSIVE:
        return cpus_in(found) == cpus_in(text)
    if file == MEMORY_MAX or file.startswith(HUGETLB):
        unit = page if file == MEMORY_MAX else parse_hugetlb_size(file.split(".")[1])
        limit = parse_limit(text)
        return not isinstance(limit, Unlimited) and found == str(limit // unit * unit)
    return False
