"""What the host tells: machine, versions, state files, cgroups, journal. All is only read."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Final

import agent
from agent import __version__
from agent.bundle.contents import Contents
from agent.bundle.redaction import kernel_command_line, manifest
from agent.checkpoint.podrecord import decode_record, encode_record
from agent.checkpoint.store import NODE_FILES, PODS
from agent.errors import NumaletError, StateError
from agent.sysfs.reader import SysfsReader
from agent.sysfs.recorded import encode_recording, record

UNIT: Final = "numalet"
JOURNAL_LINES: Final = 10_000
JOURNAL_SECONDS: Final = 20
MAX_CGROUPS: Final = 20_000
MAX_VALUE: Final = 64 << 10
MAX_PROCESSES: Final = 20_000
_READABLE: Final = 0o444
"""Some files of cgroups are only written: cgroup.kill, memory.reclaim."""
_TASKS: Final = {"cgroup.procs", "cgroup.threads"}
_ALLOWED: Final = ("Cpus_allowed_list", "Mems_allowed_list")

Json = dict[str, Any]


def gather_machine(into: Contents, reader: SysfsReader) -> None:
    """A recording, which every command with --machine reads."""
    with into.lacking("machine.json"):
        recording = encode_recording(record(reader, "machine"))
        into.add("machine.json", "the machine: a recording, as numalet record makes it", recording)


def gather_versions(into: Contents, root: Path) -> None:
    """Software, kernel and how it was started."""
    found: Json = {
        "numalet": __version__,
        "python": platform.python_version(),
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "packages": _packages(),
        "euid": os.geteuid(),
    }
    for key, path in (
        ("os", "etc/os-release"),
        ("mounts", "proc/self/mounts"),
        ("commandLine", "proc/cmdline"),
    ):
        with into.lacking(path):
            found[key] = (root / path).read_text(encoding="utf-8", errors="replace")
    found["mounts"] = [line for line in found.get("mounts", "").splitlines() if " cgroup" in line]
    found["commandLine"] = kernel_command_line(found.get("commandLine", ""))
    into.add_json(
        "versions.json", "numalet, Python, packages, kernel and its command line, cgroup mounts", found
    )


def _packages() -> dict[str, str]:
    """What is installed where numalet's own code is; nothing where that is no installation."""
    place = str(Path(agent.__file__).parents[1])
    return dict(sorted((found.name, found.version) for found in distributions(path=[place])))


def gather_state(into: Contents, root: Path) -> None:
    """The state directory: checkpoints as they are, pod records without what might be secret."""
    with into.lacking("state"):
        names = sorted(path.name for path in root.iterdir())
        into.add_json("state/listing.json", f"names, sizes and times in {root}", dict(_listing(root)))
        for name in names:
            if name.startswith(NODE_FILES) and (root / name).is_file():
                with into.lacking(f"state/{name}"):
                    into.add(f"state/{name}", "a state file, as it is", (root / name).read_bytes())
        if PODS in names:
            _records(into, root / PODS)


def _listing(root: Path) -> Iterator[tuple[str, Json]]:
    for path in sorted(root.rglob("*")):
        stat = path.lstat()
        yield (
            str(path.relative_to(root)),
            {"bytes": stat.st_size, "mode": oct(stat.st_mode), "mtime": stat.st_mtime},
        )


def _records(into: Contents, directory: Path) -> None:
    for path in sorted(directory.glob("[!.]*.json")):
        name = f"state/{PODS}/{path.name}"
        with into.lacking(name):
            into.add(name, "a pod record, its manifest redacted", _redacted(path.read_bytes()))


def _redacted(raw: bytes) -> bytes:
    """The record with its manifest redacted, and what a newer numalet added left out. Raises StateError."""
    try:
        held = decode_record(raw)
    except StateError as error:
        raise NumaletError(f"{error.message}: left out, as it cannot be redacted", hint=error.hint) from error
    return encode_record(replace(held, manifest=manifest(held.manifest), unknown={}))


def gather_cgroups(into: Contents, root: Path, proc: Path) -> None:
    """Every file of every cgroup from ``root`` down, and what its processes are allowed."""
    above = {
        str(parent): _files(parent) for parent in root.parents if (parent / "cgroup.controllers").exists()
    }
    beside = {
        str(path): _value(path) for parent in above for path in sorted(Path(parent).glob("*/cpuset.cpus*"))
    }
    about = f"files of the cgroups above {root}, and the CPUs of those beside them"
    into.add_json("cgroups-above.json", about, {**above, "beside": beside})
    with into.lacking("cgroups.json"):
        root.stat()  # an OSError says what is wrong with it; os.walk tells of none
        found: dict[str, Json] = {}
        tasks: dict[str, list[str]] = {}
        for number, (directory, below, _) in enumerate(os.walk(root)):
            if number >= MAX_CGROUPS:
                into.lack("cgroups.json", f"there are more than {MAX_CGROUPS} cgroups: the rest is left out")
                break
            below.sort()
            place = os.path.relpath(directory, root)
            with suppress(FileNotFoundError):  # it went meanwhile
                found[place] = _files(Path(directory))
                tasks[place] = _value(Path(directory, "cgroup.procs")).split()
        into.add_json(
            "cgroups.json", f"files of each cgroup below {root}", {"root": str(root), "cgroups": found}
        )
        into.add_json(
            "processes.json", "processes by cgroup, and where they may run", _processes(tasks, proc)
        )


def _files(cgroup: Path) -> Json:
    entries = (entry for entry in os.scandir(cgroup) if entry.is_file(follow_symlinks=False))
    names = [entry.name for entry in entries if entry.stat().st_mode & _READABLE]
    return {name: _value(cgroup / name) for name in sorted(names) if name not in _TASKS}


def _value(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MAX_VALUE).decode("utf-8", "replace").rstrip("\n")
    except OSError as error:
        return f"<{error.strerror}>"


def _processes(tasks: dict[str, list[str]], proc: Path) -> Json:
    left, found = MAX_PROCESSES, Json()
    for place, pids in tasks.items():
        told = [pid for pid in pids if pid.isdigit()][:left]
        left -= len(told)
        found[place] = {pid: _allowed(_value(proc / pid / "status")) for pid in told}
    return found


def _allowed(status: str) -> Json:
    fields = (line.partition(":") for line in status.splitlines())
    return {name: value.strip() for name, _, value in fields if name in _ALLOWED}


def gather_journal(into: Contents) -> None:
    """The last lines of the unit's journal."""
    program = shutil.which("journalctl")
    if program is None:
        into.lack("journal.txt", "there is no journalctl")
        return
    command = [program, "-u", UNIT, "-n", str(JOURNAL_LINES), "--no-pager", "-q", "-o", "short-iso-precise"]
    with into.lacking("journal.txt"):
        try:
            done = subprocess.run(  # noqa: S603 - a program of the system, and no word of it from outside
                command, capture_output=True, check=False, timeout=JOURNAL_SECONDS, stdin=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired:
            into.lack("journal.txt", f"journalctl gave no answer within {JOURNAL_SECONDS} s")
            return
        if not done.stdout:
            said = done.stderr.decode("utf-8", "replace").strip()
            into.lack("journal.txt", said or f"the journal has no lines of {UNIT}.service (or try as root)")
            return
        into.add_text("journal.txt", f"the last {JOURNAL_LINES} lines of the unit {UNIT}", done.stdout)
