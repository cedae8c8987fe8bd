"""The look at the host: reads, and writes nothing. Every path hangs from a root directory."""

from __future__ import annotations

import os
import re
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from agent.cgroup.backend import PROCS, Problem
from agent.cgroup.claims import claims
from agent.cgroup.preflight import mount_of, preflight
from agent.config.check import machine_problems
from agent.config.model import CgroupDriver, Config
from agent.containermanager.cgroupgates import check_slice
from agent.containermanager.hostisolation import check_place
from agent.cpumanager.policy import new_cpu_manager
from agent.domain.idset import NO_CPUS, CpuSet, NodeMask
from agent.domain.topology import Topology
from agent.errors import ConfigError, HostError
from agent.preflight.facts import (
    CgroupFacts,
    ConfigurationFacts,
    HostFacts,
    KernelFacts,
    StateDirFacts,
)
from agent.sysfs.reader import ABSENT, HostSysfs

_PROGRAMS: Final = {"numad", "irqbalance", "tuned", "kubelet", "numalet"}
_CAPABILITIES: Final = {"CAP_CHOWN": 0, "CAP_DAC_OVERRIDE": 1, "CAP_KILL": 5}
"""What the daemon needs, by their bits in CapEff (linux/capability.h)."""
_SYSTEM_BUS: Final = "run/dbus/system_bus_socket"
_BUS_SECONDS: Final = 1.0
_RCU_NOCBS: Final = re.compile(r"(?:^|\s)rcu_nocbs=(\S+)")
_ESCAPED: Final = re.compile(r"\\(\d{3})")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration and where it is from; ``problem`` says why it could not be read, then it is the default."""

    config: Config
    source: str
    problem: str = ""


def gather(root: Path, loaded: Loaded, topology: Topology, own_daemon: int | None) -> HostFacts:
    """Look at the host below ``root``; what cannot be read counts as not told."""
    sysfs = HostSysfs(root)
    bus_problem = _bus_problem(root / _SYSTEM_BUS)
    config, cgroup_root = loaded.config, root / loaded.config.cgroup_root.lstrip("/")
    return HostFacts(
        configuration=_configuration(loaded, topology, _misplaced(config, cgroup_root)),
        topology=topology,
        cgroups=_cgroups(cgroup_root, _without_systemd(config, bus_problem)),
        kernel=_kernel(sysfs, topology),
        state_dir=_state_dir(root, Path(config.state_dir), sysfs),
        user=os.geteuid(),
        missing_capabilities=_missing_capabilities(sysfs),
        processes=_processes(sysfs),
        own_daemon=own_daemon,
        has_systemd=(root / "run/systemd/system").is_dir(),
        bus_problem=bus_problem,
    )


def _configuration(loaded: Loaded, topology: Topology, misplaced: tuple[str, ...]) -> ConfigurationFacts:
    config = loaded.config
    try:
        reserved = new_cpu_manager(config.settings(topology), topology).reserved
    except ConfigError:
        reserved = config.reserved_cpus or NO_CPUS
    found = [f"{place}: {text}" for place, text in machine_problems(config, topology)]
    return ConfigurationFacts(
        source=loaded.source,
        problems=(loaded.problem,) if loaded.problem else (*found, *misplaced),
        reserved=reserved,
        isolation=config.host_isolation,
        whole_cores=config.cpu_options.get("full-pcpus-only") == "true",
    )


def _misplaced(config: Config, cgroup_root: Path) -> tuple[str, ...]:
    """What is wrong with the place of the cgroup root, beside what is confined and as a slice."""
    root = PurePosixPath(cgroup_root)
    try:
        mount = PurePosixPath(mount_of(cgroup_root))
        if config.cgroup_driver is CgroupDriver.SYSTEMD:
            check_slice(root, mount)
        check_place(config.host_isolation, root, mount)
    except ConfigError as error:
        return (f"{error.message} ({error.hint})",)
    except HostError:
        return ()  # the check of the cgroups says so
    return ()


def _without_systemd(config: Config, bus_problem: str) -> tuple[Problem, ...]:
    if config.cgroup_driver is CgroupDriver.CGROUPFS or not bus_problem:
        return ()
    text = f"cgroupDriver systemd needs systemd and its bus: {bus_problem}"
    return (Problem(text, "cgroupDriver: cgroupfs, or mend systemd"),)


def _cgroups(root: Path, more: tuple[Problem, ...]) -> CgroupFacts:
    problems = (*more, *preflight(root))
    try:
        mount = mount_of(root)
    except HostError:
        return CgroupFacts(root=str(root), problems=problems)
    above = [path for path in reversed(root.parents) if path.is_relative_to(mount) and path.is_dir()]
    allowed = {str(path): sets for path in above if (sets := _effective(path))}
    return CgroupFacts(
        root=str(root),
        problems=problems,
        controllers=frozenset(_text(mount / "cgroup.controllers").split()),
        files=_files_below(mount),
        allowed=allowed,
        others=tuple(claims(mount, root)),
    )


def _effective(cgroup: Path) -> tuple[CpuSet, NodeMask] | None:
    cpus = _text(cgroup / "cpuset.cpus.effective")
    return (CpuSet.parse(cpus), NodeMask.parse(_text(cgroup / "cpuset.mems.effective"))) if cpus else None


def _files_below(mount: Path) -> frozenset[str]:
    """The files of a cgroup below the top, which lacks many; the union over those there are."""
    with suppress(OSError):
        children = [path for path in mount.iterdir() if (path / PROCS).exists()]
        return frozenset(file.name for path in children for file in path.iterdir() if file.is_file())
    return frozenset()


def _kernel(sysfs: HostSysfs, topology: Topology) -> KernelFacts:
    cpu = "sys/devices/system/cpu"
    governors = {
        _read(sysfs, f"{cpu}/cpufreq/{policy}/scaling_governor") for policy in sysfs.list(f"{cpu}/cpufreq")
    }
    callbacks = _RCU_NOCBS.search(_read(sysfs, "proc/cmdline"))
    return KernelFacts(
        release=_read(sysfs, "proc/sys/kernel/osrelease"),
        numa_balancing=_read(sysfs, "proc/sys/kernel/numa_balancing"),
        isolated=topology.isolated,
        nohz_full=_cpus(_read(sysfs, f"{cpu}/nohz_full"), topology),
        rcu_nocbs=_cpus(callbacks[1] if callbacks else "", topology),
        governors=tuple(sorted(governors - {""})),
        clock_source=_read(sysfs, "sys/devices/system/clocksource/clocksource0/current_clocksource"),
        swaps=tuple(line.split()[0] for line in _read(sysfs, "proc/swaps").splitlines()[1:]),
        huge_pages_free=_free_huge_pages(sysfs, topology),
    )


def _free_huge_pages(sysfs: HostSysfs, topology: Topology) -> dict[tuple[int, int], int]:
    free: dict[tuple[int, int], int] = {}
    for node in topology.nodes:
        for kib in node.hugepages:
            folder = f"sys/devices/system/node/node{node.id}/hugepages/hugepages-{kib}kB"
            count = sysfs.read(f"{folder}/free_hugepages")
            if count is not ABSENT:
                free[node.id, kib] = int(count)
    return free


def _cpus(text: str, topology: Topology) -> CpuSet:
    """A list as boot parameters have it: also ``all``, ``N`` (the last one), and ``(null)`` for none."""
    last = max(topology.online | topology.offline, default=0)
    with suppress(ValueError):
        return topology.online if text == "all" else CpuSet.parse(text.replace("N", str(last)))
    return NO_CPUS


def _missing_capabilities(sysfs: HostSysfs) -> tuple[str, ...]:
    found = re.search(r"^CapEff:\s*(\w+)", _read(sysfs, "proc/self/status"), re.MULTILINE)
    held = int(found[1], 16) if found else -1
    return tuple(name for name, bit in _CAPABILITIES.items() if not held >> bit & 1)


def _processes(sysfs: HostSysfs) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    own = {os.getpid(), os.getppid()}
    for pid in sorted(int(name) for name in sysfs.list("proc") if name.isdigit()):
        name = _read(sysfs, f"proc/{pid}/comm")
        if name in _PROGRAMS and pid not in own:
            found[name] = (*found.get(name, ()), pid)
    return found


def _bus_problem(path: Path) -> str:
    try:
        with socket.socket(socket.AF_UNIX) as bus:
            bus.settimeout(_BUS_SECONDS)
            bus.connect(str(path))
    except OSError as error:
        return f"{path}: {error.strerror or error}"
    return ""


def _state_dir(root: Path, path: Path, sysfs: HostSysfs) -> StateDirFacts:
    below = root / str(path).lstrip("/")
    existing = next(one for one in (below, *below.parents) if one.is_dir())
    usage = os.statvfs(existing)
    shown = Path("/") / existing.relative_to(root)
    return StateDirFacts(
        path=str(path),
        existing=str(shown),
        file_system=_file_system(shown, _read(sysfs, "proc/self/mountinfo")),
        writable=os.access(existing, os.W_OK) and not usage.f_flag & os.ST_RDONLY,
        free=usage.f_bavail * usage.f_frsize,
    )


def _file_system(path: Path, mountinfo: str) -> str:
    """The type of what is mounted where ``path`` is: the longest mount point, of equal ones the last (proc(5))."""
    longest, kind = -1, ""
    for line in mountinfo.splitlines():
        fields, _, source = line.partition(" - ")
        point = _ESCAPED.sub(lambda code: chr(int(code[1], 8)), fields.split()[4])
        if path.is_relative_to(point) and len(point) >= longest:
            longest, kind = len(point), source.split()[0]
    return kind


def _read(sysfs: HostSysfs, path: str) -> str:
    text = sysfs.read(path)
    return "" if text is ABSENT else text


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
