"""Gathering: a host as files below a directory."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from agent.cgroup.partition import Claim
from agent.config import Config
from agent.config.model import CgroupDriver, HostIsolation
from agent.domain.idset import CpuSet, NodeMask
from agent.domain.topology import NumaNode
from agent.preflight.facts import HostFacts
from agent.preflight.gather import Loaded, gather
from tests.cgroup.worlds import machine

CGROUP = "sys/fs/cgroup"
TOP = {
    "cgroup.controllers": "cpuset cpu memory pids",
    "cgroup.subtree_control": "cpuset cpu memory pids",
    "cpuset.cpus.effective": "0-13",
    "cpuset.mems.effective": "0-1",
}
HOST = {
    **{f"{CGROUP}/{name}": text for name, text in TOP.items()},
    f"{CGROUP}/system.slice/cgroup.procs": "",
    f"{CGROUP}/system.slice/cgroup.kill": "",
    f"{CGROUP}/system.slice/cgroup.subtree_control": "cpuset",
    f"{CGROUP}/system.slice/cpuset.cpus": "0-3",
    f"{CGROUP}/system.slice/cpuset.cpus.partition": "member",
    f"{CGROUP}/system.slice/db.service/cgroup.procs": "",
    f"{CGROUP}/system.slice/db.service/cgroup.subtree_control": "",
    f"{CGROUP}/system.slice/db.service/cpuset.cpus": "2",
    f"{CGROUP}/rt/cgroup.procs": "",
    f"{CGROUP}/rt/cgroup.subtree_control": "",
    f"{CGROUP}/rt/cpuset.cpus": "14-15",
    f"{CGROUP}/rt/cpuset.cpus.partition": "isolated",
    f"{CGROUP}/numalet/cgroup.procs": "",
    f"{CGROUP}/numalet/cpuset.cpus": "1",
    "proc/cmdline": "quiet rcu_nocbs=1-N nohz_full=2-3",
    "proc/sys/kernel/osrelease": "6.12.9\n",
    "proc/sys/kernel/numa_balancing": "1\n",
    "proc/swaps": "Filename Type Size Used Priority\n/dev/sda2 partition 1 0 -2\n",
    "proc/self/status": "Name:\tnumalet\nCapEff:\t0000000000000002\n",
    "proc/self/mountinfo": "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:9 / /var/my\\040lib rw shared:1 - tmpfs none rw\n",
    "proc/812/comm": "kubelet\n",
    "proc/813/comm": "bash\n",
    "sys/devices/system/cpu/nohz_full": "2-3\n",
    "sys/devices/system/cpu/cpufreq/policy0/scaling_governor": "powersave\n",
    "sys/devices/system/cpu/cpufreq/policy1/scaling_governor": "performance\n",
    "sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet\n",
    "sys/devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages": "5\n",
}


def host(root: Path, files: Mapping[str, str] = HOST, **config: object) -> HostFacts:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    topology = machine(16, 2)
    first, second = topology.nodes
    huge = NumaNode(id=first.id, cpus=first.cpus, memory=first.memory, hugepages={2048: 8})
    topology = type(topology)(cpus=topology.cpus, nodes=(huge, second), isolated=CpuSet.parse("15"))
    return gather(root, Loaded(Config(**config), "config.yaml"), topology, None)  # type: ignore[arg-type]


def test_cgroups_above_the_root_and_those_of_others(tmp_path: Path) -> None:
    found = host(tmp_path).cgroups
    top = tmp_path / CGROUP
    assert found.root == f"{top}/numalet"
    assert found.controllers == {"cpuset", "cpu", "memory", "pids"}
    assert "cgroup.kill" in found.files
    assert found.allowed == {str(top): (CpuSet.parse("0-13"), NodeMask.parse("0-1"))}
    assert found.others == (
        Claim(path=f"{top}/rt", kind="isolated", cpus=CpuSet.parse("14-15")),
        Claim(path=f"{top}/system.slice/db.service", kind="member", cpus=CpuSet.parse("2")),
    )


def test_settings_of_the_kernel(tmp_path: Path) -> None:
    found = host(tmp_path).kernel
    assert (found.release, found.numa_balancing, found.clock_source) == ("6.12.9", "1", "hpet")
    assert (found.isolated, found.nohz_full) == (CpuSet.parse("15"), CpuSet.parse("2-3"))
    assert found.rcu_nocbs == CpuSet.parse("1-15")
    assert found.governors == ("performance", "powersave")
    assert found.swaps == ("/dev/sda2",)
    assert found.huge_pages_free == {(0, 2048): 5}


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("quiet", ""),
        ("rcu_nocbs=all", "0-15"),
        ("rcu_nocbs=4-5 x", "4-5"),
        ("rcu_nocbs=(null)", ""),
        ("", ""),
    ],
)
def test_cpus_of_a_boot_parameter(tmp_path: Path, text: str, cpus: str) -> None:
    assert host(tmp_path, HOST | {"proc/cmdline": text}).kernel.rcu_nocbs == CpuSet.parse(cpus)


def test_who_runs_and_what_this_process_may(tmp_path: Path) -> None:
    found = host(tmp_path)
    assert found.processes == {"kubelet": (812,)}
    assert found.missing_capabilities == ("CAP_CHOWN", "CAP_KILL")
    assert not found.has_systemd


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/var/lib/numalet", "ext4"), ("/var/my lib/numalet", "tmpfs"), ("/var/my library", "ext4")],
)
def test_the_file_system_of_the_state_directory(tmp_path: Path, path: str, kind: str) -> None:
    (tmp_path / path.strip("/")).mkdir(parents=True)
    found = host(tmp_path, state_dir=path).state_dir
    assert (found.path, found.existing, found.file_system, found.writable) == (path, path, kind, True)


def test_a_state_directory_that_is_yet_to_be_made(tmp_path: Path) -> None:
    (tmp_path / "var/lib").mkdir(parents=True)
    assert host(tmp_path).state_dir.existing == "/var/lib"


def test_a_host_that_tells_nothing(tmp_path: Path) -> None:
    found = host(tmp_path, {})
    assert [problem.text for problem in found.cgroups.problems] == [
        f"no cgroup v2 hierarchy is mounted at or above {tmp_path}/{CGROUP}/numalet"
    ]
    assert (found.cgroups.allowed, found.cgroups.others, found.processes) == ({}, (), {})
    assert found.kernel.isolated == CpuSet.parse("15")
    assert (found.kernel.swaps, found.kernel.governors, found.missing_capabilities) == ((), (), ())


def test_a_configuration_that_does_not_fit_the_machine(tmp_path: Path) -> None:
    found = host(tmp_path, reserved_cpus=CpuSet.parse("0-15"))
    assert found.configuration.reserved == CpuSet.parse("0-15")
    assert host(tmp_path).configuration.reserved == CpuSet.of([0])


def test_a_cgroup_root_inside_of_what_is_confined(tmp_path: Path) -> None:
    inside = f"/{CGROUP}/system.slice/numalet.service"
    confined = host(tmp_path, cgroup_root=inside, host_isolation=HostIsolation.SLICES)
    (problem,) = confined.configuration.problems
    assert "numalet.service is inside system.slice" in problem
    assert host(tmp_path, cgroup_root=inside).configuration.problems == ()
    assert host(tmp_path, host_isolation=HostIsolation.SLICES).configuration.problems == ()


def test_a_slice_that_systemd_would_make_elsewhere(tmp_path: Path) -> None:
    def problems(root: str) -> tuple[str, ...]:
        found = host(tmp_path, cgroup_root=f"/{CGROUP}/{root}", cgroup_driver=CgroupDriver.SYSTEMD)
        return found.configuration.problems

    assert "is no slice right below" in problems("rt/numalet.slice")[0]
    assert problems("numalet.slice") == ()


def test_slices_need_a_systemd_that_answers(tmp_path: Path, bus: None) -> None:
    root = f"/{CGROUP}/numalet.slice"
    sound = host(tmp_path, cgroup_root=root, cgroup_driver=CgroupDriver.SYSTEMD)
    (tmp_path / "run/dbus/system_bus_socket").unlink()
    mute = host(tmp_path, cgroup_root=root, cgroup_driver=CgroupDriver.SYSTEMD)
    problem, *others = mute.cgroups.problems
    assert tuple(others) == sound.cgroups.problems
    assert "cgroupDriver systemd needs systemd" in problem.text
    assert host(tmp_path, cgroup_root=root).cgroups.problems == sound.cgroups.problems


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[None]:
    (tmp_path / "run/dbus").mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "run/dbus/system_bus_socket"))
        listener.listen()
        yield


@pytest.mark.usefixtures("bus")
def test_a_bus_that_answers(tmp_path: Path) -> None:
    assert host(tmp_path).bus_problem == ""


def test_a_bus_that_is_not_there(tmp_path: Path) -> None:
    assert host(tmp_path).bus_problem.endswith("system_bus_socket: No such file or directory")
