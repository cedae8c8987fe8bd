import errno
import pickle
from dataclasses import dataclass, field

import pytest

from agent.cgroup.backend import DIRECTORY, SUBTREE_CONTROL, EnforcementError, apply
from agent.cgroup.diff import deviations, diff
from agent.cgroup.fake import FakeCgroups
from agent.cgroup.layout import ROOT, CgroupDir
from agent.cgroup.tree import Wanted
from agent.domain.idset import CpuSet
from agent.domain.pod import PodUid
from agent.domain.topology import Topology
from tests.cgroup.contract import (
    ALL,
    MAIN,
    POD,
    BackendContract,
    ControllerContract,
    Host,
    PartitionContract,
    open_up,
)
from tests.cgroup.worlds import World, app, machine, pinned, pod, prepared


@dataclass
class FakeHost:
    topology: Topology = field(default_factory=lambda: machine(4, 2))
    backend: FakeCgroups = field(init=False)

    def __post_init__(self) -> None:
        self.backend = prepared(self.topology)

    def spawn(self) -> int:
        return self.backend.spawn()

    def name(self, directory: CgroupDir) -> str:
        return directory


@pytest.fixture
def host() -> FakeHost:
    return FakeHost()


@pytest.fixture
def tree(host: Host) -> Wanted:
    uid = PodUid("u")
    tenant = pod("u", app("main", pinned("2", "64Mi")), app("rest"), budget=pinned("3", "128Mi"))
    return World(
        topology=host.topology, pods={uid: tenant}, cpus={uid: {"main": CpuSet.parse("2-3")}}
    ).wanted()


class TestFake(BackendContract, ControllerContract):
    pass


def test_a_benchmark_keeps_them_from_one_process_to_the_next(tree: Wanted) -> None:
    backend = prepared(machine(4, 2))
    apply(backend, diff(tree, backend.observe()))
    again = pickle.loads(pickle.dumps(backend))  # noqa: S301 - our own
    assert again.observe() == backend.observe()


class TestFakePartitions(PartitionContract):
    pass


@pytest.mark.parametrize(
    ("file", "number"),
    [
        (DIRECTORY, errno.EBUSY),
        ("cpuset.cpus", errno.ENOSPC),
        ("cpuset.cpus", errno.EINVAL),
        ("cpuset.cpus", errno.ENODEV),
        ("cpuset.cpus", errno.ENOENT),
        ("cpuset.cpus", errno.ERANGE),
        ("cpuset.cpus", errno.EACCES),
        ("cpuset.cpus", errno.EPERM),
        ("cpuset.cpus", errno.EROFS),
        (DIRECTORY, errno.EAGAIN),
    ],
    ids=lambda value: errno.errorcode[value] if isinstance(value, int) else value or "directory",
)
def test_every_errno_says_what_it_means_and_the_way_out(host: FakeHost, file: str, number: int) -> None:
    open_up(host.backend)
    host.backend.fail(MAIN, file, number)
    with pytest.raises(EnforcementError) as caught:
        host.backend.write(MAIN, file, "0") if file else host.backend.remove(MAIN)
    assert caught.value.code == errno.errorcode[number]
    assert caught.value.hint
    host.backend.mend()
    host.backend.write(MAIN, "cpuset.cpus", "0")


def test_an_errno_nobody_expects_is_still_reported(host: FakeHost) -> None:
    host.backend.fail(ROOT, SUBTREE_CONTROL, errno.EIO)
    with pytest.raises(EnforcementError, match="Input/output error"):
        host.backend.enable(ROOT, ALL)


def test_a_populated_cgroup_does_not_take_an_empty_cpuset(host: FakeHost) -> None:
    open_up(host.backend)
    host.backend.write(MAIN, "cpuset.cpus", "0")
    host.backend.add_process(MAIN, host.spawn())
    with pytest.raises(EnforcementError, match="ENOSPC"):
        host.backend.write(MAIN, "cpuset.cpus", "")


def test_a_memory_limit_below_what_is_in_use_is_refused_before_the_kernel_kills(host: FakeHost) -> None:
    open_up(host.backend)
    host.backend.use_memory(MAIN, 1 << 20)
    with pytest.raises(EnforcementError, match="would kill") as caught:
        host.backend.write(MAIN, "memory.max", "4096")
    assert caught.value.code == "REFUSED"
    host.backend.write(MAIN, "memory.max", str(1 << 20))


def test_a_controller_taken_away_takes_its_values_with_it(host: FakeHost) -> None:
    open_up(host.backend)
    host.backend.write(POD, "cpuset.cpus", "0")
    host.backend.disable(ROOT, ("cpuset",))
    assert "cpuset.cpus" not in host.backend.observe().dirs[POD].files
    host.backend.enable(ROOT, ("cpuset",))
    assert host.backend.read(POD, "cpuset.cpus") == ""


def test_what_was_prepared_can_be_undone() -> None:
    topology = machine(4, 2)
    fake = FakeCgroups(topology.online, prepared(topology).nodes)
    done = fake.prepare()
    assert done.created
    assert {name for step in done.enabled for name in step.controllers} >= set(ALL)
    fake.restore(done)
    assert not fake.exists(ROOT)
    assert fake.observe().dirs == {}


def test_undoing_leaves_what_is_in_use(host: FakeHost) -> None:
    fake = host.backend
    fresh = FakeCgroups(fake.online, fake.nodes)
    done = fresh.prepare()
    fresh.enable(ROOT, ALL)
    fresh.make(CgroupDir("other"))
    fresh.restore(done)
    assert fresh.exists(ROOT)
    assert fresh.offer().controllers == set(ALL)


def test_a_root_that_was_removed_is_made_again(host: FakeHost, tree: Wanted) -> None:
    host.backend.remove(ROOT)
    assert host.backend.observe().dirs == {}
    apply(host.backend, diff(tree, host.backend.observe()))
    assert deviations(tree, host.backend.observe()) == ()
