"""The judgement: facts of a host to a line per subject. Nothing here looks at the host."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from agent.cgroup.tree import EXCLUSIVE, REQUIRED_CONTROLLERS
from agent.config.model import HostIsolation
from agent.domain.topology import hugepages_resource
from agent.explain.english import plural
from agent.preflight.facts import HostFacts

_OPTIONAL_CONTROLLERS: Final = {
    "hugetlb": "huge pages are placed, but their limits are not enforced",
    "pids": "podPidsLimit is not enforced",
}
_VOLATILE: Final = {"tmpfs": "does not survive a reboot", "ramfs": "does not survive a reboot"}
_VOLATILE_LAYER: Final = {
    "overlay": "goes with the container it belongs to",
    "aufs": "goes with its container",
}
_SLOW_CLOCKS: Final = {"hpet", "acpi_pm", "jiffies", "refined-jiffies"}
_STATE_BYTES: Final = 16 << 20
"""Room for the records of some thousand pods."""
_IN_THE_WAY: Final = {
    "kubelet": (
        "its pods run on every CPU",
        "systemctl disable --now kubelet; numalet state import takes over what its pods hold",
    ),
    "numad": ("it moves processes and their memory between NUMA nodes", "systemctl disable --now numad"),
    "irqbalance": (
        "it moves interrupts onto exclusive CPUs",
        "systemctl disable --now irqbalance, or name them in IRQBALANCE_BANNED_CPULIST",
    ),
    "tuned": (
        "its scheduler and cpu-partitioning profiles set the affinity of processes",
        "choose a profile without isolated_cores, or systemctl disable --now tuned",
    ),
    "numalet": ("another daemon of numalet's runs", "one per host: stop it, or name its --config"),
}
_BLOCKING: Final = {"kubelet"}


class Level(Enum):
    """How a line is meant: ``fail`` is what numalet cannot keep its promises with, or start."""

    OK = "ok"
    WARNING = "warning"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One line: what was looked at, what was found, and the way out where that is no good."""

    subject: str
    level: Level
    text: str
    remedy: str = ""


def check_host(facts: HostFacts) -> tuple[Check, ...]:
    """Every check, in the order in which one would mend things; each subject has a line at least."""
    return tuple(line for check in _CHECKS for line in check(facts))


def _ok(subject: str, text: str) -> Check:
    return Check(subject, Level.OK, text)


def _warning(subject: str, text: str, remedy: str) -> Check:
    return Check(subject, Level.WARNING, text, remedy)


def _fail(subject: str, text: str, remedy: str) -> Check:
    return Check(subject, Level.FAIL, text, remedy)


def _configuration(facts: HostFacts) -> Iterator[Check]:
    found = facts.configuration
    for problem in found.problems:
        yield _fail("configuration", problem, "numalet config check says where")
    if not found.problems:
        text = f"{found.source}: reserves CPUs {found.reserved or 'none'}"
        yield _ok("configuration", text)


def _permissions(facts: HostFacts) -> Iterator[Check]:
    if facts.user:
        yield _fail(
            "permissions", f"user {facts.user} is not root", "run it with sudo, or as a system service"
        )
    elif facts.missing_capabilities:
        missing = ", ".join(facts.missing_capabilities)
        remedy = "add them to the container, or to CapabilityBoundingSet= of the unit"
        yield _fail("permissions", f"root without {missing}", remedy)
    else:
        yield _ok("permissions", "root")


def _topology(facts: HostFacts) -> Iterator[Check]:
    topology = facts.topology
    for warning in topology.warnings:
        remedy = "compare numalet topology with lscpu; firmware and hypervisors describe machines wrongly"
        yield _warning("machine", warning, remedy)
    if not topology.warnings:
        nodes = plural(len(topology.nodes), "NUMA node")
        text = f"{plural(len(topology.cpus), 'CPU')} of {plural(len(topology.cores), 'core')} on {nodes}"
        yield _ok("machine", f"{text}; Linux {facts.kernel.release}")


def _cgroups(facts: HostFacts) -> Iterator[Check]:
    found = facts.cgroups
    for problem in found.problems:
        level = Level.FAIL if problem.blocking else Level.WARNING
        yield Check("cgroups", level, problem.text, problem.remedy)
    if not found.problems:
        used = sorted(found.controllers & {*REQUIRED_CONTROLLERS, *_OPTIONAL_CONTROLLERS})
        yield _ok("cgroups", f"v2 with {', '.join(used)}; {found.root} can be used")
    for name, consequence in _OPTIONAL_CONTROLLERS.items():
        if found.controllers and name not in found.controllers:
            text = f"no {name} controller: {consequence}"
            yield _warning("cgroups", text, f"a kernel with the {name} controller, not disabled at boot")
    if found.files and "cgroup.kill" not in found.files:
        text = "no cgroup.kill: a pod that forks faster than it is killed does not end"
        yield _warning("cgroups", text, "Linux 5.14 or newer")


def _room(facts: HostFacts) -> Iterator[Check]:
    online, nodes = facts.topology.online, facts.topology.all_nodes
    narrow = False
    for path, (cpus, mems) in facts.cgroups.allowed.items():
        lacking = [
            f"{what} {missing}"
            for what, missing in (("CPUs", online - cpus), ("NUMA nodes", nodes - mems if mems else mems))
            if missing
        ]
        if lacking:
            narrow = True
            remedy = (
                "take the CPUs away from whoever claims them above or beside it, or choose another cgroupRoot"
            )
            yield _fail("cpuset", f"{path} does not let {' and '.join(lacking)} through", remedy)
    if facts.cgroups.allowed and not narrow:
        yield _ok("cpuset", "the cgroups above the root let every CPU and NUMA node through")


def _other_cpusets(facts: HostFacts) -> Iterator[Check]:
    for other in facts.cgroups.others:
        remedy = "stop what made it (a container engine, cset, systemd's AllowedCPUs=), or reserve these CPUs"
        yield _warning("other cpusets", f"{other.path} {other}", remedy)
    if facts.cgroups.controllers and not facts.cgroups.others:
        yield _ok("other cpusets", "nobody else has CPUs of their own")


def _conflicts(facts: HostFacts) -> Iterator[Check]:
    clear = True
    for name, (consequence, remedy) in _IN_THE_WAY.items():
        pids = [pid for pid in facts.processes.get(name, ()) if pid != facts.own_daemon]
        if pids:
            clear = False
            level = Level.FAIL if name in _BLOCKING else Level.WARNING
            yield Check("conflicts", level, f"{name} runs (pid {pids[0]}): {consequence}", remedy)
    if clear:
        yield _ok("conflicts", f"none of {', '.join(sorted(_IN_THE_WAY))} is in the way")


def _boot_isolation(facts: HostFacts) -> Iterator[Check]:
    kernel, reserved = facts.kernel, facts.configuration.reserved
    isolated, tickless = kernel.isolated, kernel.nohz_full | kernel.rcu_nocbs
    clear = True
    if isolated & reserved:
        clear = False
        text = f"CPUs {isolated & reserved} are reserved for the system, which isolcpus= keeps off them"
        yield _warning("boot isolation", text, "leave reservedSystemCPUs out of isolcpus=")
    elif isolated:
        clear = False
        text = f"isolcpus={isolated}: while they are in the shared pool nothing is balanced over them"
        yield _warning("boot isolation", text, "boot without isolcpus=: numalet keeps its pods apart itself")
    if tickless & reserved:
        clear = False
        text = f"CPUs {tickless & reserved} are reserved for the system and in nohz_full= or rcu_nocbs="
        yield _warning("boot isolation", text, "leave reservedSystemCPUs out of both")
    if clear:
        text = f"tickless CPUs {tickless}" if tickless else "none at boot"
        yield _ok("boot isolation", text)


def _numa_balancing(facts: HostFacts) -> Iterator[Check]:
    mode = facts.kernel.numa_balancing
    if mode not in {"", "0"} and len(facts.topology.nodes) > 1:
        text = "automatic NUMA balancing is on: it unmaps pages of exclusive containers to watch them"
        yield _warning("NUMA balancing", text, "sysctl -w kernel.numa_balancing=0, and in /etc/sysctl.d")
    else:
        yield _ok("NUMA balancing", "off, or nothing to balance")


def _huge_pages(facts: HostFacts) -> Iterator[Check]:
    sizes = [
        f"{node.hugepages[kib]} {hugepages_resource(kib)} on node {node.id}"
        for node in facts.topology.nodes
        for kib in sorted(node.hugepages)
        if node.hugepages[kib]
    ]
    used = {
        key: node.hugepages.get(key[1], 0) - free
        for node in facts.topology.nodes
        for key, free in facts.kernel.huge_pages_free.items()
        if key[0] == node.id
    }
    if facts.own_daemon is None:  # else it may be pods that use them
        for (node_id, kib), count in used.items():
            if count > 0:
                text = f"{count} {hugepages_resource(kib)} of node {node_id} are in use already"
                remedy = (
                    "reserve them (reservedMemory), or stop who uses them: grep -l huge /proc/*/numa_maps"
                )
                yield _warning("huge pages", text, remedy)
    yield _ok("huge pages", ", ".join(sizes) or "none reserved")


def _swap(facts: HostFacts) -> Iterator[Check]:
    for device in facts.kernel.swaps:
        text = f"{device}: memory of exclusive containers may be swapped out"
        yield _warning("swap", text, f"swapoff {device}, and take it out of /etc/fstab")
    if not facts.kernel.swaps:
        yield _ok("swap", "none")


def _smt(facts: HostFacts) -> Iterator[Check]:
    if facts.topology.threads_per_core == 1:
        yield _ok("SMT", "one thread per core")
    elif facts.configuration.whole_cores:
        yield _ok("SMT", f"{facts.topology.threads_per_core} threads per core, handed out as whole cores")
    else:
        text = f"{facts.topology.threads_per_core} threads per core: two pods may share one"
        yield _ok("SMT", f"{text}, unless cpuManagerPolicyOptions has full-pcpus-only")


def _speed(facts: HostFacts) -> Iterator[Check]:
    governors, clock = facts.kernel.governors, facts.kernel.clock_source
    yield _ok("frequency", f"governor {', '.join(governors)}" if governors else "not ours to govern")
    if clock in _SLOW_CLOCKS:
        text = f"clock source {clock}: each look at the time is a system call"
        yield _warning("clock", text, "find out why not tsc: dmesg | grep -i -e tsc -e clocksource")
    else:
        yield _ok("clock", clock or "not told")


def _systemd(facts: HostFacts) -> Iterator[Check]:
    if not facts.has_systemd:
        yield _warning("systemd", "systemd is not the init system", "numalet run works; units do not")
    elif facts.bus_problem:
        text = f"the system bus does not answer: {facts.bus_problem}"
        yield _warning("systemd", text, "systemctl status dbus.socket")
    else:
        yield _ok("systemd", "runs, and its bus answers")


def _isolation(facts: HostFacts) -> Iterator[Check]:
    mode = facts.configuration.isolation
    if mode is HostIsolation.NONE:
        yield _ok("isolation", "none: host processes may use exclusive CPUs, unless hostIsolation is slices")
    elif mode is HostIsolation.PARTITION and EXCLUSIVE in facts.cgroups.files:
        yield _ok("isolation", "partition: the kernel keeps host processes off exclusive CPUs")
    elif not facts.has_systemd or facts.bus_problem:
        remedy = "hostIsolation: none, or mend systemd: see above"
        yield _fail("isolation", f"hostIsolation {mode.value} needs systemd and its bus", remedy)
    elif mode is HostIsolation.PARTITION:
        text = f"partition: this kernel has no {EXCLUSIVE}, so that slices take its place"
        yield _warning("isolation", text, "Linux 6.7 or newer, or hostIsolation: slices")
    else:
        yield _ok("isolation", f"{mode.value}: host processes are kept off exclusive CPUs")


def _state_dir(facts: HostFacts) -> Iterator[Check]:
    found = facts.state_dir
    volatile = (_VOLATILE | _VOLATILE_LAYER).get(found.file_system)
    if not found.writable:
        text = f"{found.existing} is not writable" + (
            "" if found.existing == found.path else f": no {found.path}"
        )
        yield _fail("state", text, "give stateDir a place that root may write to")
    elif found.free < _STATE_BYTES:
        text = f"{found.existing} has {found.free >> 20} MiB left"
        yield _fail("state", text, "make room: without it no pod can be admitted or deleted")
    elif volatile:
        text = f"{found.path} is on {found.file_system}, which {volatile}"
        yield _warning("state", text, "give stateDir a place on a disk")
    else:
        yield _ok("state", f"{found.path} on {found.file_system or 'an unknown file system'}")


_CHECKS: Final[tuple[Callable[[HostFacts], Iterator[Check]], ...]] = (
    _configuration,
    _permissions,
    _topology,
    _cgroups,
    _room,
    _other_cpusets,
    _conflicts,
    _state_dir,
    _systemd,
    _isolation,
    _boot_isolation,
    _numa_balancing,
    _huge_pages,
    _swap,
    _smt,
    _speed,
)
