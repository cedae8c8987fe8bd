"""The judgement of a host's facts, a table: what is different from a fit host, and the lines it brings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.cgroup.backend import Problem
from agent.cgroup.partition import Claim
from agent.config.model import HostIsolation
from agent.domain.idset import CpuSet, NodeMask
from agent.domain.topology import CoreId, Topology
from agent.preflight.checks import Level, check_host
from agent.preflight.facts import (
    CgroupFacts,
    ConfigurationFacts,
    HostFacts,
    KernelFacts,
    StateDirFacts,
)
from tests.cgroup.worlds import machine

ALL = (CpuSet.parse("0-15"), NodeMask.parse("0-1"))
FIT = HostFacts(
    configuration=ConfigurationFacts(source="config.yaml", reserved=CpuSet.of([0])),
    topology=machine(16, 2),
    cgroups=CgroupFacts(
        root="/sys/fs/cgroup/numalet",
        controllers=frozenset({"cpu", "cpuset", "memory", "hugetlb", "pids"}),
        files=frozenset({"cgroup.kill"}),
        allowed={"/sys/fs/cgroup": ALL},
    ),
    kernel=KernelFacts(release="6.12.9", numa_balancing="0", clock_source="tsc"),
    state_dir=StateDirFacts(path="/var/lib/numalet", existing="/var/lib", file_system="ext4"),
)


def changed(**parts: Any) -> HostFacts:
    """A fit host with parts changed: ``kernel={"swaps": …}``, or a value for the host's own fields."""
    values = {
        name: replace(getattr(FIT, name), **value)
        if isinstance(value, dict) and name != "processes"
        else value
        for name, value in parts.items()
    }
    return replace(FIT, **values)


def with_huge_pages() -> Topology:
    first, second = machine(16, 2).nodes
    return replace(machine(16, 2), nodes=(replace(first, hugepages={2048: 8}), second))


def with_siblings() -> Topology:
    plain = machine(16, 2)
    return replace(plain, cpus=tuple(replace(cpu, core=CoreId(cpu.id - cpu.id % 2)) for cpu in plain.cpus))


def test_a_fit_host_has_a_good_line_for_each_subject() -> None:
    found = check_host(FIT)
    assert {one.level for one in found} == {Level.OK}
    assert len({one.subject for one in found}) == len(found) == 17


UNFIT = {
    "a configuration that cannot be used": (
        changed(configuration={"problems": ("$.reservedMemory: too much", "$.x: unknown")}),
        [("fail", "configuration", "$.reservedMemory: too much"), ("fail", "configuration", "$.x: unknown")],
    ),
    "a user who is not root": (changed(user=1000), [("fail", "permissions", "user 1000 is not root")]),
    "root in a container": (
        changed(missing_capabilities=("CAP_KILL", "CAP_CHOWN")),
        [("fail", "permissions", "root without CAP_KILL, CAP_CHOWN")],
    ),
    "a machine that is not understood": (
        changed(topology=replace(machine(16, 2), warnings=("no caches are told",))),
        [("warning", "machine", "no caches are told")],
    ),
    "problems of the cgroup root": (
        changed(
            cgroups={"problems": (Problem("holds processes", ""), Problem("resets", "", blocking=False))}
        ),
        [("fail", "cgroups", "holds processes"), ("warning", "cgroups", "resets")],
    ),
    "a kernel without huge page limits": (
        changed(cgroups={"controllers": frozenset({"cpu", "cpuset", "memory", "pids"})}),
        [
            (
                "warning",
                "cgroups",
                "no hugetlb controller: huge pages are placed, but their limits are not enforced",
            )
        ],
    ),
    "a kernel before 5.14": (
        changed(cgroups={"files": frozenset({"cgroup.procs"})}),
        [("warning", "cgroups", "no cgroup.kill: a pod that forks faster than it is killed does not end")],
    ),
    "a slice above that has other CPUs": (
        changed(
            cgroups={
                "allowed": {
                    "/sys/fs/cgroup": ALL,
                    "/sys/fs/cgroup/a.slice": (CpuSet.parse("0-7"), NodeMask.parse("0")),
                }
            }
        ),
        [("fail", "cpuset", "/sys/fs/cgroup/a.slice does not let CPUs 8-15 and NUMA nodes 1 through")],
    ),
    "somebody's partition": (
        changed(cgroups={"others": (Claim(path="/x", kind="isolated", cpus=CpuSet.parse("2-3")),)}),
        [("warning", "other cpusets", "/x is a partition (isolated): 2-3")],
    ),
    "a container engine's cpuset": (
        changed(cgroups={"others": (Claim(path="/docker/1", kind="member", cpus=CpuSet.parse("4")),)}),
        [("warning", "other cpusets", "/docker/1 is bound to CPUs of its own: 4")],
    ),
    "a kubelet, and irqbalance": (
        changed(processes={"kubelet": (812, 813), "irqbalance": (600,)}),
        [
            ("fail", "conflicts", "kubelet runs (pid 812): its pods run on every CPU"),
            ("warning", "conflicts", "irqbalance runs (pid 600): it moves interrupts onto exclusive CPUs"),
        ],
    ),
    "two daemons of ours": (
        changed(processes={"numalet": (70, 71)}, own_daemon=70),
        [("warning", "conflicts", "numalet runs (pid 71): another daemon of numalet's runs")],
    ),
    "no place for state": (
        changed(state_dir={"writable": False}),
        [("fail", "state", "/var/lib is not writable: no /var/lib/numalet")],
    ),
    "a full disk": (changed(state_dir={"free": 5 << 20}), [("fail", "state", "/var/lib has 5 MiB left")]),
    "state in memory": (
        changed(state_dir={"file_system": "tmpfs"}),
        [("warning", "state", "/var/lib/numalet is on tmpfs, which does not survive a reboot")],
    ),
    "another init system": (
        changed(has_systemd=False, bus_problem="no socket"),
        [("warning", "systemd", "systemd is not the init system")],
    ),
    "isolation without systemd": (
        changed(configuration={"isolation": HostIsolation.SLICES}, has_systemd=False),
        [
            ("warning", "systemd", "systemd is not the init system"),
            ("fail", "isolation", "hostIsolation slices needs systemd and its bus"),
        ],
    ),
    "partitions on an older kernel": (
        changed(configuration={"isolation": HostIsolation.PARTITION}),
        [
            (
                "warning",
                "isolation",
                "partition: this kernel has no cpuset.cpus.exclusive, so that slices take its place",
            )
        ],
    ),
    "no system bus": (
        changed(bus_problem="/run/dbus/system_bus_socket: Connection refused"),
        [
            (
                "warning",
                "systemd",
                "the system bus does not answer: /run/dbus/system_bus_socket: Connection refused",
            )
        ],
    ),
    "isolcpus= of CPUs that are handed out": (
        changed(kernel={"isolated": CpuSet.parse("4-7")}),
        [
            (
                "warning",
                "boot isolation",
                "isolcpus=4-7: while they are in the shared pool nothing is balanced over them",
            )
        ],
    ),
    "isolcpus= and nohz_full= of reserved CPUs": (
        changed(kernel={"isolated": CpuSet.parse("0-7"), "nohz_full": CpuSet.parse("0-3")}),
        [
            (
                "warning",
                "boot isolation",
                "CPUs 0 are reserved for the system, which isolcpus= keeps off them",
            ),
            (
                "warning",
                "boot isolation",
                "CPUs 0 are reserved for the system and in nohz_full= or rcu_nocbs=",
            ),
        ],
    ),
    "automatic NUMA balancing": (
        changed(kernel={"numa_balancing": "1"}),
        [
            (
                "warning",
                "NUMA balancing",
                "automatic NUMA balancing is on: it unmaps pages of exclusive containers to watch them",
            )
        ],
    ),
    "huge pages in use": (
        changed(topology=with_huge_pages(), kernel={"huge_pages_free": {(0, 2048): 5}}),
        [("warning", "huge pages", "3 hugepages-2Mi of node 0 are in use already")],
    ),
    "swap": (
        changed(kernel={"swaps": ("/dev/sda2",)}),
        [("warning", "swap", "/dev/sda2: memory of exclusive containers may be swapped out")],
    ),
    "a slow clock": (
        changed(kernel={"clock_source": "hpet"}),
        [("warning", "clock", "clock source hpet: each look at the time is a system call")],
    ),
}


@pytest.mark.parametrize(("facts", "lines"), UNFIT.values(), ids=UNFIT.keys())
def test_what_is_no_good_is_named(facts: HostFacts, lines: list[tuple[str, str, str]]) -> None:
    bad = [one for one in check_host(facts) if one.level is not Level.OK]
    assert [(one.level.value, one.subject, one.text) for one in bad] == lines


def test_every_line_that_is_no_good_says_the_way_out() -> None:
    ours = [facts for facts, lines in UNFIT.values() if not facts.cgroups.problems]
    bad = [one for facts in ours for one in check_host(facts) if one.level is not Level.OK]
    assert [one for one in bad if not one.remedy] == []


WELL = {
    "nothing to balance on one NUMA node": (
        changed(topology=machine(16, 1), cgroups={"allowed": {}}, kernel={"numa_balancing": "1"}),
        ("NUMA balancing", "off, or nothing to balance"),
    ),
    "our pods use our huge pages": (
        changed(own_daemon=7, topology=with_huge_pages(), kernel={"huge_pages_free": {(0, 2048): 5}}),
        ("huge pages", "8 hugepages-2Mi on node 0"),
    ),
    "isolation": (
        changed(configuration={"isolation": HostIsolation.SLICES}),
        ("isolation", "slices: host processes are kept off exclusive CPUs"),
    ),
    "partitions": (
        changed(
            configuration={"isolation": HostIsolation.PARTITION},
            cgroups={"files": frozenset({"cgroup.kill", "cpuset.cpus.exclusive"})},
        ),
        ("isolation", "partition: the kernel keeps host processes off exclusive CPUs"),
    ),
    "threads": (
        changed(topology=with_siblings()),
        (
            "SMT",
            "2 threads per core: two pods may share one, unless cpuManagerPolicyOptions has full-pcpus-only",
        ),
    ),
    "threads as whole cores": (
        changed(topology=with_siblings(), configuration={"whole_cores": True}),
        ("SMT", "2 threads per core, handed out as whole cores"),
    ),
    "governors": (
        changed(kernel={"governors": ("performance", "powersave")}),
        ("frequency", "governor performance, powersave"),
    ),
    "tickless CPUs that are not reserved": (
        changed(kernel={"nohz_full": CpuSet.parse("2-15"), "rcu_nocbs": CpuSet.parse("1-15")}),
        ("boot isolation", "tickless CPUs 1-15"),
    ),
}


@pytest.mark.parametrize(("facts", "line"), WELL.values(), ids=WELL.keys())
def test_what_is_as_it_should_be_is_told(facts: HostFacts, line: tuple[str, str]) -> None:
    found = check_host(facts)
    assert {one.level for one in found} == {Level.OK}
    assert line in {(one.subject, one.text) for one in found}
