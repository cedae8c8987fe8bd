"""hostIsolation: partition: what pods hold is cut out of the machine, and given back; else slices do it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.cgroup.fake import FakeCgroups
from agent.cgroup.layout import ROOT, CgroupDir
from agent.cgroup.partitiontrial import TRIAL, partition_obstacle
from agent.cgroup.tree import EXCLUSIVE, PARTITION
from agent.checkpoint.store import HOST_FILE, MemoryStore
from agent.config.model import HostIsolation
from agent.containermanager import ContainerManager
from agent.containermanager.events import EventKind
from agent.containermanager.hostisolation import Host
from agent.containermanager.hostpartitions import dissolve
from agent.containermanager.hoststate import PARTITIONS, SLICES, Originals
from agent.containermanager.verdict import ENFORCEMENT_ERROR, VerdictKind
from agent.domain.idset import NO_CPUS, CpuSet
from agent.domain.pod import CPU_ISOLATION, PodUid
from agent.manifest import ManifestError
from tests.containermanager.node import Node, best_effort, budgeted, limits, manifest, parsed, pod, unsound
from tests.containermanager.test_hostisolation import World

MAIN = CgroupDir("poduid-web/main")
POOL = CgroupDir("poduid-web/shared.pool")
GROUP = CgroupDir("poduid-web")


def host(world: World) -> Host:
    return world.host(HostIsolation.PARTITION, irq_affinity=False)


def partitioned(node: Node | None = None, world: World | None = None) -> tuple[Node, ContainerManager]:
    node = node or Node()
    node.host = host(world or World())
    return node, node.owner()


def with_init(name: str, init_cpu: str = "2") -> dict[str, Any]:
    """A pod whose init container runs before `main`, on CPUs that this then has."""
    document = manifest(name)
    document["spec"]["initContainers"] = [{"name": "prepare", "resources": limits(init_cpu, "1Gi")}]
    return document


def test_a_slice_is_a_partition_as_long_as_its_pod_is_there() -> None:
    node, owner = partitioned()
    owner.admit(pod("web"), "api")
    held = owner.snapshot().exclusive
    assert node.cgroups.effective_cpus(MAIN) == held
    assert node.cgroups.effective_cpus(ROOT) == node.topology.online - held
    assert node.cgroups.read(MAIN, PARTITION) == "root"
    assert not unsound(node, owner)
    assert owner.reconcile() == 0
    assert owner.snapshot().host_isolation == "partition"
    assert owner.snapshot().troubles == owner.snapshot().notices == ()
    owner.remove(PodUid("uid-web"), 0)
    assert node.cgroups.effective_cpus(ROOT) == node.topology.online
    assert node.cgroups.read(ROOT, EXCLUSIVE) == ""


def test_a_pods_shared_pool_of_its_own_is_one_and_the_nodes_is_not() -> None:
    node, owner = partitioned()
    owner.admit(parsed(budgeted("web")), "api")
    owner.admit(parsed(best_effort("guest")), "api")
    assert node.cgroups.read(POOL, PARTITION) == "root"
    assert node.cgroups.effective_cpus(POOL) | node.cgroups.effective_cpus(MAIN) == owner.snapshot().exclusive
    assert node.cgroups.read(CgroupDir("besteffort/poduid-guest/shared.pool"), PARTITION) == "member"
    assert not unsound(node, owner)
    compared = owner.compared(PodUid("uid-web"))
    assert {f"/sys/fs/cgroup/test/{one}" for one in (GROUP, MAIN)} < compared.keys()
    assert [one for files in compared.values() for one in files if not one.met] == []


def test_an_annotation_isolates_the_slices_and_not_the_pool() -> None:
    node, owner = partitioned()
    document = budgeted("web")
    document["metadata"]["annotations"] = {CPU_ISOLATION: "isolated"}
    owner.admit(parsed(document), "api")
    assert node.cgroups.read(MAIN, PARTITION) == "isolated"
    assert node.cgroups.read(POOL, PARTITION) == "root"


def test_an_annotation_that_is_not_known_is_refused_with_those_that_are() -> None:
    document = manifest("web")
    document["metadata"]["annotations"] = {CPU_ISOLATION: "yes"}
    with pytest.raises(ManifestError, match=r'cpu-isolation.*"yes".*"root", "isolated"'):
        parsed(document)


def test_the_annotation_without_partitions_is_told_to_have_no_effect() -> None:
    owner = Node().owner()
    document = manifest("web")
    document["metadata"]["annotations"] = {CPU_ISOLATION: "isolated"}
    owner.admit(parsed(document), "api")
    assert any("default/web has no effect" in notice for notice in owner.snapshot().notices)


def test_a_pod_whose_init_container_shares_cpus_is_one_partition_as_a_whole() -> None:
    node, owner = partitioned()
    owner.admit(parsed(with_init("web")), "api")
    held = owner.snapshot().exclusive
    assert node.cgroups.read(GROUP, PARTITION) == "root"
    assert node.cgroups.read(MAIN, PARTITION) == "member"
    assert node.cgroups.effective_cpus(ROOT) == node.topology.online - held
    assert owner.snapshot().notices == ()
    assert not unsound(node, owner)
    owner.remove(PodUid("uid-web"), 0)
    assert node.cgroups.effective_cpus(ROOT) == node.topology.online


def test_a_debug_container_in_such_a_pod_ends_the_partition_and_a_notice_says_so() -> None:
    node, owner = partitioned()
    owner.admit(parsed(with_init("web")), "api")
    shell = node.cgroups.spawn()
    debug = owner.containers.debug(PodUid("uid-web"), shell)
    held = owner.snapshot().exclusive
    assert node.cgroups.read(GROUP, PARTITION) == "member"
    assert node.cgroups.effective_cpus(debug).isdisjoint(held)
    (notice,) = owner.snapshot().notices
    assert f"CPUs {held} are in no cpuset partition" in notice
    node.cgroups.exit(shell)
    owner.containers.look(PodUid("uid-web"), "debug-1")
    assert node.cgroups.read(GROUP, PARTITION) == "root"
    assert owner.snapshot().notices == ()


def test_drift_is_put_right_and_told() -> None:
    node, owner = partitioned()
    owner.admit(pod("web"), "api")
    held = owner.snapshot().exclusive
    with node.cgroups.somebody_else():
        node.cgroups.write(MAIN, PARTITION, "member")
    assert owner.repair_drift() > 0
    assert node.cgroups.effective_cpus(ROOT).isdisjoint(held)
    with node.cgroups.somebody_else():
        node.cgroups.write(ROOT, EXCLUSIVE, "0")
    owner.reconcile()
    assert node.cgroups.effective_cpus(ROOT).isdisjoint(held)
    assert not unsound(node, owner)
    told = [event.text for event in owner.events.since(0) if event.kind is EventKind.DRIFT_REPAIRED]
    assert any(f"{PARTITION} was member" in text for text in told)
    assert owner.snapshot().drift_repairs[PARTITION] == 2


def test_a_partition_that_the_kernel_refuses_is_told_with_its_reason_and_refuses_the_pod() -> None:
    node, owner = partitioned()
    node.cgroups.partitions.permitted = False
    verdict = owner.admit(pod("web"), "api")
    assert (verdict.kind, verdict.reason) == (VerdictKind.REJECTED, ENFORCEMENT_ERROR)
    assert "root invalid (Enable partition not permitted)" in verdict.message
    assert "CAP_SYS_ADMIN" in verdict.remedy
    assert node.cgroups.effective_cpus(ROOT) == node.topology.online
    assert set(node.cgroups.observe().dirs) == {"", "besteffort", "burstable"}


def test_a_partition_that_becomes_invalid_is_a_failure_with_the_kernels_reason_until_it_is_mended() -> None:
    node, owner = partitioned()
    owner.admit(pod("web"), "api")
    with node.cgroups.somebody_else():
        node.cgroups.write(MAIN, PARTITION, "member")
    node.cgroups.partitions.permitted = False
    owner.reconcile()
    (failure,) = owner.snapshot().failures
    assert "root invalid (Enable partition not permitted)" in failure
    assert any(
        "root invalid (Enable partition not permitted), wanted root" in text for text in owner.deviations()
    )
    found = {one.file: one for one in owner.compared(PodUid("uid-web"))[f"/sys/fs/cgroup/test/{MAIN}"]}
    assert (found[PARTITION].met, found[PARTITION].wanted) == (False, "root")
    node.cgroups.partitions.permitted = True
    owner.reconcile()
    assert owner.snapshot().failures == owner.deviations() == ()


class TestWhereThereAreNone:
    @pytest.mark.parametrize("permitted", [True, False])
    def test_slices_take_their_place_and_the_status_says_why(self, permitted: bool) -> None:
        node, world = Node(), World()
        node.cgroups.absent = frozenset({EXCLUSIVE} if permitted else ())
        node.cgroups.partitions.permitted = permitted
        node, owner = partitioned(node, world)
        owner.admit(pod("web"), "api")
        held = owner.snapshot().exclusive
        assert all(cpus and cpus.isdisjoint(held) for cpus in world.everywhere().values())
        assert owner.snapshot().host_isolation == "slices"
        (problem,) = owner.snapshot().problems
        assert ("no cpuset.cpus.exclusive" if permitted else "Enable partition not permitted") in problem
        assert not unsound(node, owner)
        owner.remove(PodUid("uid-web"), 0)
        assert set(world.everywhere().values()) == {node.topology.online}


class TestChangingTheMode:
    def test_from_slices_the_host_gets_its_slices_back_once_partitions_are_made(self) -> None:
        node, world = Node(), World()
        node.host = world.host(HostIsolation.SLICES, irq_affinity=False)
        owner = node.owner()
        owner.admit(pod("web"), "api")
        held = owner.snapshot().exclusive
        _, owner = partitioned(node, world)
        assert node.cgroups.effective_cpus(ROOT).isdisjoint(held)
        assert set(world.everywhere().values()) == {NO_CPUS}
        assert not unsound(node, owner)

    @pytest.mark.parametrize("mode", [HostIsolation.SLICES, HostIsolation.NONE])
    def test_to_another_the_partitions_are_dissolved(self, mode: HostIsolation) -> None:
        node, world = Node(), World()
        partitioned(node, world)[1].admit(parsed(budgeted("web")), "api")
        node.host = world.host(mode, irq_affinity=False)
        owner = node.owner()
        assert node.cgroups.effective_cpus(ROOT) == node.topology.online
        assert {one.files[PARTITION] for one in node.cgroups.observe().dirs.values()} == {"member"}
        assert {one.files[EXCLUSIVE] for one in node.cgroups.observe().dirs.values()} == {""}
        assert not unsound(node, owner)

    def test_a_restart_changes_nothing_of_a_pod(self) -> None:
        node, owner = partitioned()
        owner.admit(parsed(budgeted("web")), "api")
        done = len(node.cgroups.log)
        _, owner = partitioned(node)
        assert {op.directory for op in node.cgroups.log[done:]} == {ROOT, TRIAL}
        assert owner.snapshot().host_isolation == "partition"
        assert node.cgroups.effective_cpus(ROOT) == node.topology.online - owner.snapshot().exclusive
        assert not unsound(node, owner)

    def test_a_restart_without_the_capability_goes_over_to_slices(self) -> None:
        node, world = Node(), World()
        partitioned(node, world)[1].admit(pod("web"), "api")
        node.cgroups.partitions.permitted = False
        _, owner = partitioned(node, world)
        held = owner.snapshot().exclusive
        assert owner.snapshot().host_isolation == "slices"
        assert all(cpus and cpus.isdisjoint(held) for cpus in world.everywhere().values())
        assert node.cgroups.read(MAIN, PARTITION) == "member"
        assert not unsound(node, owner)


class TestRelease:
    def test_without_a_daemon_the_partitions_can_be_dissolved_and_the_cpusets_stay(self) -> None:
        node, world = Node(), World()
        _, owner = partitioned(node, world)
        owner.admit(parsed(budgeted("web")), "api")
        held = owner.snapshot().exclusive
        originals = Originals(world.store, "boot")
        roots: list[Path] = []

        def backend(root: Path) -> FakeCgroups:
            roots.append(root)
            return node.cgroups

        for _ in range(2):
            dissolve(originals, backend)
        assert roots == [Path("/sys/fs/cgroup/test")]
        assert node.cgroups.effective_cpus(ROOT) == node.topology.online
        assert node.cgroups.effective_cpus(MAIN) | node.cgroups.effective_cpus(POOL) == held
        assert HOST_FILE not in world.store.files

    def test_a_record_from_before_there_were_partitions_is_read(self) -> None:
        store = MemoryStore()
        store.write(HOST_FILE, b'{"bootId": "boot", "slices": {"user.slice": "0-3"}, "irqs": {}}')
        originals = Originals(store, "boot")
        assert originals.of(SLICES) == {"user.slice": CpuSet.parse("0-3")}
        assert originals.of(PARTITIONS) == {}


class TestTrial:
    FREE = CpuSet.parse("0-7")

    def test_it_leaves_nothing_behind(self) -> None:
        node = Node()
        node.cgroups.prepare()
        assert partition_obstacle(node.cgroups, self.FREE) == ""
        assert set(node.cgroups.observe().dirs) == {""}
        assert node.cgroups.read(ROOT, EXCLUSIVE) == ""
        assert node.cgroups.effective_cpus(ROOT) == node.topology.online

    def test_a_cpu_that_somebody_else_claims_is_not_the_only_one_to_be_tried(self) -> None:
        node = Node()
        node.cgroups.prepare()
        node.cgroups.enable(ROOT, ("cpuset",))
        node.cgroups.make(CgroupDir("other"))
        node.cgroups.write(CgroupDir("other"), EXCLUSIVE, "6-7")
        assert partition_obstacle(node.cgroups, self.FREE) == ""

    def test_what_a_crash_in_it_leaves_behind_goes_with_the_next_start(self) -> None:
        node = Node()
        node.cgroups.prepare()
        node.cgroups.enable(ROOT, ("cpuset",))
        node.cgroups.make(TRIAL)
        for directory, file, text in (
            (TRIAL, "cpuset.cpus", "7"),
            (ROOT, EXCLUSIVE, "7"),
            (TRIAL, EXCLUSIVE, "7"),
        ):
            node.cgroups.write(directory, file, text)
        node.cgroups.write(TRIAL, PARTITION, "root")
        node.owner()
        assert TRIAL not in node.cgroups.observe().dirs
        assert node.cgroups.read(ROOT, EXCLUSIVE) == ""
        assert node.cgroups.effective_cpus(ROOT) == node.topology.online
