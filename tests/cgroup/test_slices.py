"""`SystemdCgroups` on fakes: the contract of every backend, and that files and unit properties agree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from agent.cgroup.backend import DIRECTORY, EnforcementError, apply
from agent.cgroup.diff import deviations, diff
from agent.cgroup.fake import FakeCgroups
from agent.cgroup.layout import ROOT, CgroupDir
from agent.cgroup.naming import SliceNames
from agent.cgroup.plan import plan
from agent.cgroup.slices import SystemdCgroups
from agent.cgroup.tree import MakeDir, Wanted
from agent.cgroup.unitproperties import properties_of
from agent.domain.idset import CpuSet, NodeMask
from agent.domain.pod import PodUid
from agent.domain.topology import Topology
from agent.systemdbus.fake import FakeSystemd
from agent.systemdbus.manager import NO_BUS
from agent.systemdbus.properties import ACTIVE_STATE, ALLOWED_CPUS, ALLOWED_MEMORY_NODES, INFINITY, Properties
from tests.cgroup.contract import ALL, MAIN, POD, POOL, BackendContract, Host, open_up
from tests.cgroup.worlds import World, app, machine, pinned, pod

NAMES = SliceNames("numalet.slice")


@dataclass
class SliceHost:
    topology: Topology = field(default_factory=lambda: machine(4, 2))
    systemd: FakeSystemd = field(default_factory=FakeSystemd)
    files: FakeCgroups = field(init=False)
    backend: SystemdCgroups = field(init=False)

    def __post_init__(self) -> None:
        self.files = FakeCgroups(self.topology.online, NodeMask.of(node.id for node in self.topology.nodes))
        self.start()

    def start(self) -> None:
        """As a daemon does, with what is there."""
        self.backend = SystemdCgroups(self.files, self.systemd, NAMES)
        self.backend.prepare()

    def spawn(self) -> int:
        return self.files.spawn()

    def name(self, directory: CgroupDir) -> str:
        return directory

    def shown(self, directory: CgroupDir) -> Properties:
        return self.systemd.properties(NAMES.unit(directory))

    def units(self) -> list[str]:
        return [unit.name for unit in self.systemd.units(["numalet*"])]

    def disagreements(self) -> list[tuple[str, str]]:
        """The files that systemd would write otherwise, by cgroup."""
        return [
            (directory, file)
            for directory, seen in self.files.observe().dirs.items()
            for file, text in seen.files.items()
            if text
            for name, value in properties_of(file, text).items()
            if self.shown(directory).get(name) not in {value, INFINITY}
        ]


@pytest.fixture
def host() -> SliceHost:
    return SliceHost()


@pytest.fixture
def tree(host: Host) -> Wanted:
    uid = PodUid("u")
    tenant = pod("u", app("main", pinned("2", "64Mi")), app("rest"), budget=pinned("3", "128Mi"))
    world = World(topology=host.topology, pods={uid: tenant}, cpus={uid: {"main": CpuSet.parse("2-3")}})
    return plan(world.facts(host.backend.offer()))


class TestSlices(BackendContract):
    pass


def test_every_cgroup_has_a_unit_and_their_values_agree(host: SliceHost, tree: Wanted) -> None:
    apply(host.backend, diff(tree, host.backend.observe()))
    assert host.units() == sorted(NAMES.unit(directory) for directory in host.files.observe().dirs)
    assert host.shown(CgroupDir("podu/main"))[ALLOWED_CPUS] == CpuSet.parse("2-3")
    assert host.disagreements() == []
    apply(host.backend, diff(Wanted(), host.backend.observe()))
    assert host.units() == ["numalet.slice"]


def test_a_pod_that_is_being_made_asks_for_every_controller_before_anything_is_written(
    host: SliceHost,
) -> None:
    open_up(host.backend)
    assert host.shown(MAIN)[ALLOWED_MEMORY_NODES] == NodeMask.of([0, 1])
    assert host.shown(MAIN)["CPUWeight"] == 100


@pytest.mark.parametrize("step", ["unit", "file", "removal"])
def test_a_crash_between_a_cgroup_and_its_unit_is_put_right_by_the_next_start(
    host: SliceHost, tree: Wanted, step: str
) -> None:
    apply(host.backend, diff(tree, host.backend.observe()))
    main = CgroupDir("podu/main")
    if step == "unit":  # somebody stopped it, or it was never started
        host.systemd.stop(NAMES.unit(main))
    elif step == "file":  # written, and systemd was not told
        host.files.write(main, "cpuset.cpus", "3")
    else:
        host.files.remove(main)
    host.start()
    assert host.units() == sorted(NAMES.unit(directory) for directory in host.files.observe().dirs)
    assert host.disagreements() == []
    apply(host.backend, diff(tree, host.backend.observe()))
    assert deviations(tree, host.backend.observe()) == ()
    assert host.disagreements() == []


def test_a_slice_that_was_there_for_a_unit_of_somebodys_asks_for_cpusets_from_the_start_on(
    host: SliceHost,
) -> None:
    host.backend.enable(ROOT, ALL)
    host.files.make(POD)
    host.systemd.start_loaded(NAMES.unit(POD))  # systemd made both, for a service with Slice=
    host.start()
    assert host.shown(POD)[ALLOWED_MEMORY_NODES] == NodeMask.of([0, 1])


@pytest.mark.parametrize("stopped", [FakeSystemd.stop, FakeSystemd.halt])
def test_a_unit_that_somebody_stopped_is_started_with_the_next_write(
    host: SliceHost, stopped: Callable[[FakeSystemd, str], None]
) -> None:
    open_up(host.backend)
    host.backend.write(MAIN, "memory.max", "8388608")
    host.backend.agree()
    stopped(host.systemd, NAMES.unit(MAIN))
    host.backend.write(MAIN, "cpuset.cpus", "1")
    host.backend.agree()
    assert host.shown(MAIN)["MemoryMax"] == 8_388_608, "it starts with what its files have"
    assert host.shown(MAIN)[ACTIVE_STATE] == "active"
    assert host.shown(MAIN)[ALLOWED_CPUS] == CpuSet.parse("1")


def test_a_slice_that_holds_none_passes_controllers_on_as_soon_as_it_holds_one(
    host: SliceHost, tree: Wanted
) -> None:
    apply(host.backend, diff(tree, host.backend.observe()))
    host.files.disable(CgroupDir("burstable"), ALL)  # as a daemon-reload does
    assert deviations(tree, host.backend.observe()) == ()
    host.backend.make(CgroupDir("burstable/pody"))
    host.backend.write(CgroupDir("burstable/pody"), "cpuset.cpus", "1")
    host.files.disable(ROOT, ("cpuset",))
    assert "the root cgroup does not give its children cpuset" in deviations(tree, host.backend.observe())


def test_the_oom_group_that_systemd_resets_is_put_back_after_a_start_too(host: SliceHost) -> None:
    open_up(host.backend)
    host.backend.write(MAIN, "memory.oom.group", "1")
    for _ in range(2):
        with host.files.somebody_else():
            host.files.write(MAIN, "memory.oom.group", "0")
        assert host.backend.changed() == frozenset({MAIN})
        assert host.backend.observe(POD).dirs[MAIN].files["memory.oom.group"] == "1"
        assert host.files.read(MAIN, "memory.oom.group") == "1"
        host.start()


def test_an_oom_group_of_somebody_elses_stays(host: SliceHost) -> None:
    open_up(host.backend)
    host.backend.write(MAIN, "memory.oom.group", "1")
    host.backend.write(MAIN, "memory.oom.group", "0")
    with host.files.somebody_else():
        host.files.write(POOL, "memory.oom.group", "1")
    host.backend.observe()
    assert (host.files.read(MAIN, "memory.oom.group"), host.files.read(POOL, "memory.oom.group")) == (
        "0",
        "1",
    )


def test_a_new_memory_limit_resets_the_oom_group_only_for_a_moment(host: SliceHost) -> None:
    open_up(host.backend)

    class AsSystemd(FakeSystemd):
        def set_properties(self, unit: str, properties: Properties) -> None:
            host.files.write(MAIN, "memory.oom.group", "0")

    backend = SystemdCgroups(host.files, AsSystemd(host.units()), NAMES)
    backend.write(MAIN, "memory.oom.group", "1")
    backend.write(MAIN, "memory.max", "8388608")
    backend.agree()
    assert host.files.read(MAIN, "memory.oom.group") == "1"


def test_a_cgroup_in_use_keeps_its_unit(host: SliceHost) -> None:
    open_up(host.backend)
    host.backend.add_process(MAIN, host.spawn())
    with pytest.raises(EnforcementError, match="EBUSY"):
        host.backend.remove(MAIN)
    assert host.shown(MAIN)[ACTIVE_STATE] == "active"


def test_other_slices_and_what_is_in_them_are_nobodys_to_stop(host: SliceHost) -> None:
    open_up(host.backend)
    others = ["numalet-other.slice", "numalet-other-podx.slice", "numalet-podx-main-job.slice"]
    for unit in others:
        host.systemd.start_transient(unit, {})
    host.start()
    assert set(others) <= set(host.units())


def test_what_systemd_makes_otherwise_is_an_error(host: SliceHost) -> None:
    open_up(host.backend)

    class Stubborn(FakeSystemd):
        def set_properties(self, unit: str, properties: Properties) -> None:
            host.files.write(MAIN, "cpu.weight", "77")

    backend = SystemdCgroups(host.files, Stubborn(host.units()), NAMES)
    backend.write(MAIN, "cpu.weight", "50")
    with pytest.raises(EnforcementError) as caught:
        backend.agree()
    assert caught.value.code == "READ-BACK"
    assert "systemctl status" in caught.value.hint
    assert MAIN in (backend.changed() or ()), "it is no more what was read back"
    assert MAIN not in (backend.changed() or ())


def test_systemd_is_told_of_many_cgroups_at_once_and_of_nothing_twice(host: SliceHost) -> None:
    open_up(host.backend)
    host.backend.agree()
    before = len(host.systemd.log)
    host.backend.write(MAIN, "cpu.weight", "50")
    host.backend.write(POOL, "cpuset.cpus", "0")
    host.backend.write(MAIN, "memory.max", "8388608")
    assert len(host.systemd.log) == before
    host.backend.agree()
    host.backend.agree()
    assert host.systemd.log[before:] == [
        ("set", NAMES.unit(MAIN), {"CPUWeight": 50, "MemoryMax": 8_388_608}),
        ("set", NAMES.unit(POOL), {ALLOWED_CPUS: CpuSet.parse("0")}),
    ]


@pytest.mark.parametrize(
    "gain",
    [
        pytest.param(lambda backend: backend.write(MAIN, "cpuset.cpus", "1-2"), id="CPUs"),
        pytest.param(lambda backend: backend.write(POD, "cpuset.cpus.exclusive", "2"), id="exclusive CPUs"),
        pytest.param(lambda backend: apply(backend, [MakeDir(CgroupDir("pody"))]), id="a cgroup"),
    ],
)
def test_nobody_gains_a_cpu_before_systemd_knows_who_has_left_it(
    host: SliceHost, gain: Callable[[SystemdCgroups], object]
) -> None:
    open_up(host.backend)
    host.backend.write(MAIN, "cpuset.cpus", "1")
    host.backend.write(POOL, "cpuset.cpus", "2-3")
    host.backend.agree()
    host.backend.write(POOL, "cpuset.cpus", "3")
    gain(host.backend)
    assert host.shown(POOL)[ALLOWED_CPUS] == CpuSet.parse("3")


def test_what_systemd_was_not_told_for_want_of_an_answer_it_is_told_next_time(host: SliceHost) -> None:
    open_up(host.backend)
    host.backend.write(MAIN, "cpuset.cpus", "1")
    host.backend.write(POOL, "cpuset.cpus", "2")
    host.systemd.broken = True
    with pytest.raises(EnforcementError, match=NO_BUS):
        host.backend.agree()
    host.systemd.broken = False
    host.backend.remove(POOL)
    before = len(host.systemd.log)
    apply(host.backend, ())
    assert host.systemd.log[before:] == [("set", NAMES.unit(MAIN), {ALLOWED_CPUS: CpuSet.parse("1")})]


def test_a_bus_that_does_not_answer_fails_the_operation_and_is_told_before_the_start(host: SliceHost) -> None:
    open_up(host.backend)
    host.systemd.broken = True
    host.backend.write(MAIN, "cpuset.cpus", "1")
    for action in (
        host.backend.agree,
        lambda: host.backend.make(CgroupDir("pody")),
        lambda: host.backend.remove(MAIN),
        host.backend.prepare,
    ):
        with pytest.raises(EnforcementError) as caught:
            action()
        assert caught.value.code == NO_BUS
        assert caught.value.hint
    (problem,) = host.backend.preflight()
    assert problem.blocking
    assert "cgroupDriver: cgroupfs" in problem.remedy


def test_a_systemd_without_cpusets_is_told_before_the_start(host: SliceHost) -> None:
    class Systemd239(FakeSystemd):
        def properties(self, unit: str) -> Properties:
            return {name: value for name, value in super().properties(unit).items() if name != ALLOWED_CPUS}

    (problem,) = SystemdCgroups(host.files, Systemd239(), NAMES).preflight()
    assert problem.blocking
    assert "AllowedCPUs (244 and newer do)" in problem.text
    assert "cgroupDriver: cgroupfs" in problem.remedy


def test_a_unit_name_that_is_too_long_names_the_way_out(host: SliceHost) -> None:
    host.backend.enable(ROOT, ALL)
    with pytest.raises(EnforcementError) as caught:
        host.backend.make(CgroupDir("pod" + "u" * 250))
    assert caught.value.file == DIRECTORY
    assert "shorter uid" in caught.value.hint


def test_a_scan_and_a_process_go_past_systemd(host: SliceHost) -> None:
    open_up(host.backend)
    before = len(host.systemd.log)
    host.backend.add_process(MAIN, host.spawn())
    host.backend.observe()
    host.backend.kill(POD)
    assert host.backend.changed() == frozenset()
    assert not host.backend.populated(POOL)
    assert len(host.systemd.log) == before


def test_what_was_prepared_can_be_undone(host: SliceHost) -> None:
    fresh = SliceHost()
    fresh.backend.restore(fresh.backend.prepare())
    assert fresh.units() == ["numalet.slice"], "it was not made by this call"
    files = FakeCgroups(host.topology.online, NodeMask.of([0, 1]))
    backend = SystemdCgroups(files, fresh.systemd, NAMES)
    fresh.systemd.stop("numalet.slice")
    backend.restore(backend.prepare())
    assert fresh.units() == []


@pytest.mark.parametrize(
    ("file", "text", "properties"),
    [
        ("cpuset.cpus", "9-11", {"AllowedCPUs": CpuSet.parse("9-11")}),
        ("cpuset.cpus", "", {"AllowedCPUs": CpuSet()}),
        ("cpuset.mems", "1", {"AllowedMemoryNodes": NodeMask.of([1])}),
        ("cpu.max", "150000 100000", {"CPUQuotaPerSecUSec": 1_500_000, "CPUQuotaPeriodUSec": 100_000}),
        ("cpu.max", "1000 100000", {"CPUQuotaPerSecUSec": 10_000, "CPUQuotaPeriodUSec": 100_000}),
        ("cpu.max", "max 100000", {"CPUQuotaPerSecUSec": INFINITY, "CPUQuotaPeriodUSec": 100_000}),
        ("cpu.weight", "39", {"CPUWeight": 39}),
        ("memory.max", "8388608", {"MemoryMax": 8_388_608}),
        ("memory.max", "max", {"MemoryMax": INFINITY}),
        ("memory.max", "0", {"MemoryMax": 1}),
        ("pids.max", "100", {"TasksMax": 100}),
        ("pids.max", "max", {"TasksMax": INFINITY}),
        ("memory.oom.group", "1", {}),
        ("hugetlb.2MB.max", "max", {}),
    ],
)
def test_a_file_is_a_property_where_systemd_writes_it(file: str, text: str, properties: Properties) -> None:
    assert properties_of(file, text) == properties
