"""What every `CgroupBackend` does: the same tests run on the fake and, in the VM, on the real kernel."""

from __future__ import annotations

from contextlib import suppress
from typing import Protocol

import pytest

from agent.cgroup.backend import ApplyError, CgroupBackend, EnforcementError, apply
from agent.cgroup.diff import deviations, diff
from agent.cgroup.layout import ROOT, CgroupDir
from agent.cgroup.tree import CgroupOp, EnableControllers, MakeDir, RemoveDir, Wanted, Write
from agent.domain.idset import CpuSet
from agent.domain.topology import Topology

POD, MAIN, POOL = CgroupDir("podx"), CgroupDir("podx/main"), CgroupDir("podx/shared.pool")
OTHER = CgroupDir("pody")
ALL = ("cpu", "cpuset", "memory")


class Host(Protocol):
    """A machine with at least CPUs 0-3 and a prepared, empty subtree."""

    backend: CgroupBackend
    topology: Topology

    def spawn(self) -> int:
        """A live process outside the subtree."""

    def name(self, directory: CgroupDir) -> str:
        """What an error calls the cgroup, at the end of its path."""


def open_up(backend: CgroupBackend) -> None:
    """A pod cgroup with a container and a pool, controllers enabled down to them."""
    backend.enable(ROOT, ALL)
    backend.make(POD)
    backend.enable(POD, ALL)
    backend.make(MAIN)
    backend.make(POOL)


class BackendContract:
    """Subclasses give the fixture ``host``."""

    def test_making_twice_and_removing_twice_are_fine(self, host: Host) -> None:
        backend = host.backend
        for _ in range(2):
            backend.make(POD)
        assert backend.exists(POD)
        for _ in range(2):
            backend.remove(POD)
        assert not backend.exists(POD)

    def test_a_cgroup_needs_its_parent(self, host: Host) -> None:
        with pytest.raises(EnforcementError) as caught:
            host.backend.make(MAIN)
        assert caught.value.code == "ENOENT"
        assert caught.value.hint

    def test_a_set_that_the_parent_does_not_have_is_refused_after_reading_back(self, host: Host) -> None:
        backend = host.backend
        open_up(backend)
        backend.write(POD, "cpuset.cpus", "0-1")
        with pytest.raises(EnforcementError) as caught:
            backend.write(MAIN, "cpuset.cpus", "1-2")
        assert caught.value.code == "READ-BACK"
        assert "cpuset.cpus.effective is '1'" in caught.value.message

    def test_a_parent_may_shrink_below_its_child_and_only_the_effective_set_follows(self, host: Host) -> None:
        backend = host.backend
        open_up(backend)
        backend.write(POD, "cpuset.cpus", "0-3")
        backend.write(MAIN, "cpuset.cpus", "2-3")
        backend.write(POD, "cpuset.cpus", "0-2")
        assert backend.read(MAIN, "cpuset.cpus") == "2-3"
        assert backend.read(MAIN, "cpuset.cpus.effective") == "2"

    def test_an_unset_cpuset_means_all_of_the_parents(self, host: Host) -> None:
        backend = host.backend
        open_up(backend)
        backend.write(POD, "cpuset.cpus", "1-2")
        assert backend.read(MAIN, "cpuset.cpus") == ""
        assert backend.read(MAIN, "cpuset.cpus.effective") == "1-2"

    def test_a_cpuset_with_processes_below_is_widened_but_not_unset_and_they_get_theirs_back(
        self, host: Host
    ) -> None:
        backend = host.backend
        open_up(backend)
        backend.write(MAIN, "cpuset.cpus", "2-3")
        backend.add_process(MAIN, host.spawn())
        backend.write(ROOT, "cpuset.cpus", "0-1")
        assert backend.read(MAIN, "cpuset.cpus") == "2-3"
        assert backend.read(MAIN, "cpuset.cpus.effective") == "0-1"
        with pytest.raises(EnforcementError) as caught:
            backend.write(ROOT, "cpuset.cpus", "\n")
        assert caught.value.code == "ENOSPC"
        backend.write(ROOT, "cpuset.cpus", str(host.topology.online))
        assert backend.read(MAIN, "cpuset.cpus.effective") == "2-3"

    @pytest.mark.parametrize(
        ("file", "text", "codes"),
        [
            ("cpuset.cpus", "zero", {"EINVAL"}),
            ("cpuset.cpus", "65000", {"ERANGE", "EINVAL"}),
            ("cpu.max", "999 100000", {"EINVAL"}),
            ("cpu.max", "never 100000", {"EINVAL"}),
            ("cpu.weight", "0", {"ERANGE"}),
            ("cpu.weight", "10001", {"ERANGE"}),
            ("memory.max", "much", {"EINVAL"}),
            ("memory.oom.group", "2", {"EINVAL"}),
        ],
    )
    def test_a_bad_value_gets_the_kernels_errno_and_a_way_out(
        self, host: Host, file: str, text: str, codes: set[str]
    ) -> None:
        open_up(host.backend)
        with pytest.raises(EnforcementError) as caught:
            host.backend.write(MAIN, file, text)
        assert caught.value.code in codes
        assert caught.value.path.endswith(host.name(MAIN))
        assert text in caught.value.message
        assert caught.value.hint

    @pytest.mark.parametrize(
        ("file", "text", "shown"),
        [
            ("cpu.max", "150000 100000", "150000 100000"),
            ("cpu.max", "max 100000", "max 100000"),
            ("cpu.weight", "303", "303"),
            ("memory.max", "8388608", "8388608"),
            ("memory.max", "max", "max"),
            ("memory.oom.group", "1", "1"),
            ("cpuset.mems", "0", "0"),
            ("cpuset.cpus", "0,1,3", "0-1,3"),
        ],
    )
    def test_a_good_value_is_shown_as_written(self, host: Host, file: str, text: str, shown: str) -> None:
        open_up(host.backend)
        host.backend.write(MAIN, file, text)
        assert host.backend.read(MAIN, file) == shown

    def test_memory_limits_are_rounded_down_to_pages(self, host: Host) -> None:
        open_up(host.backend)
        page = host.backend.offer().page_size
        host.backend.write(MAIN, "memory.max", str(2048 * page + 1))
        assert host.backend.read(MAIN, "memory.max") == str(2048 * page)

    def test_a_process_lives_in_a_leaf_only(self, host: Host) -> None:
        backend = host.backend
        open_up(backend)
        pid = host.spawn()
        with pytest.raises(EnforcementError) as caught:
            backend.add_process(POD, pid)
        assert caught.value.code == "EBUSY"
        assert "internal processes" in caught.value.message
        backend.add_process(MAIN, pid)
        assert backend.procs(MAIN) == (pid,)
        assert backend.populated(POD)
        assert not backend.populated(POOL)

    def test_a_cgroup_with_processes_does_not_pass_memory_on(self, host: Host) -> None:
        backend = host.backend
        open_up(backend)
        backend.add_process(MAIN, host.spawn())
        with pytest.raises(EnforcementError) as caught:
            backend.enable(MAIN, ALL)
        assert caught.value.code == "EBUSY"
        assert "child cgroup" in caught.value.hint

    def test_controllers_of_threads_may_be_passed_on_beside_processes(self, host: Host) -> None:
        backend = host.backend
        open_up(backend)
        backend.add_process(MAIN, host.spawn())
        backend.enable(MAIN, ("cpu", "cpuset"))
        assert backend.observe().dirs[MAIN].subtree == {"cpu", "cpuset"}
        backend.add_process(MAIN, host.spawn())

    def test_a_process_that_is_not_there_cannot_join(self, host: Host) -> None:
        open_up(host.backend)
        with pytest.raises(EnforcementError) as caught:
            host.backend.add_process(MAIN, 4_194_303)
        assert caught.value.code == "ESRCH"

    def test_a_cgroup_in_use_is_not_removed_until_its_processes_are_killed(self, host: Host) -> None:
        backend = host.backend
        open_up(backend)
        backend.add_process(MAIN, host.spawn())
        for directory in (POD, MAIN):
            with pytest.raises(EnforcementError) as caught:
                backend.remove(directory)
            assert caught.value.code == "EBUSY"
        backend.kill(POD)
        assert not backend.populated(POD)
        for directory in (MAIN, POOL, POD):
            backend.remove(directory)
        assert list(backend.observe().dirs) == [ROOT]

    def test_children_are_told_by_name(self, host: Host) -> None:
        with pytest.raises(EnforcementError, match="does not exist"):
            host.backend.children(POD)
        open_up(host.backend)
        assert host.backend.children(POD) == (MAIN, POOL)
        assert host.backend.children(MAIN) == ()

    def test_killing_an_empty_cgroup_is_fine(self, host: Host) -> None:
        host.backend.make(POD)
        host.backend.kill(POD)
        assert host.backend.exists(POD)

    def test_a_scan_shows_planned_files_and_what_is_populated(self, host: Host) -> None:
        backend = host.backend
        open_up(backend)
        backend.write(MAIN, "cpuset.cpus", "2")
        backend.add_process(MAIN, host.spawn())
        seen = backend.observe().dirs
        assert set(seen) == {ROOT, POD, MAIN, POOL}
        assert seen[MAIN].files["cpuset.cpus"] == seen[MAIN].files["cpuset.cpus.effective"] == "2"
        assert seen[MAIN].populated
        assert seen[POD].populated
        assert not seen[POOL].populated
        assert {"cpu.max", "cpu.weight", "memory.max", "cpuset.mems"} <= seen[POOL].files.keys()
        assert "cgroup.procs" not in seen[POOL].files

    def test_statistics_name_what_is_offered(self, host: Host) -> None:
        open_up(host.backend)
        stat = host.backend.stat(MAIN)
        assert stat["nr_throttled"] == 0
        assert stat["usage_usec"] >= 0
        assert stat["memory.current"] >= 0

    def test_reading_what_is_not_there_says_so(self, host: Host) -> None:
        with pytest.raises(EnforcementError) as caught:
            host.backend.read(MAIN, "cpuset.cpus")
        assert caught.value.code == "ENOENT"
        with pytest.raises(EnforcementError):
            host.backend.procs(MAIN)

    def test_the_kernel_offers_what_plans_need(self, host: Host) -> None:
        offer = host.backend.offer()
        assert set(ALL) <= offer.controllers
        assert {"cpuset.cpus", "cpuset.mems", "cpu.max", "cpu.weight", "memory.max"} <= offer.files
        assert offer.page_size >= 4096

    def test_preparing_again_changes_nothing(self, host: Host) -> None:
        again = host.backend.prepare()
        assert again.enabled == ()
        assert again.created == ()

    def test_a_prepared_host_has_no_blocking_problem(self, host: Host) -> None:
        assert [problem for problem in host.backend.preflight() if problem.blocking] == []

    def test_applying_stops_at_the_first_failure_and_says_what_was_done(self, host: Host) -> None:
        bad = Write(POD, "cpu.weight", "0")
        ops: tuple[CgroupOp, ...] = (EnableControllers(ROOT, ALL), MakeDir(POD), bad, MakeDir(MAIN))
        with pytest.raises(ApplyError) as caught:
            apply(host.backend, ops)
        assert caught.value.op == bad
        assert caught.value.done == ops[:2]
        assert caught.value.cause.code == "ERANGE"
        assert not host.backend.exists(MAIN)

    def test_a_populated_tree_can_be_removed_once_it_was_killed(self, host: Host) -> None:
        open_up(host.backend)
        host.backend.add_process(MAIN, host.spawn())
        host.backend.kill(POD)
        apply(host.backend, (RemoveDir(MAIN), RemoveDir(POOL), RemoveDir(POD)))
        assert not host.backend.exists(POD)

    def test_a_planned_tree_is_reached_and_then_there_is_nothing_left_to_do(
        self, host: Host, tree: Wanted
    ) -> None:
        backend = host.backend
        apply(backend, diff(tree, backend.observe()))
        assert diff(tree, backend.observe()) == ()
        assert deviations(tree, backend.observe()) == ()
        nothing = Wanted()
        apply(backend, diff(nothing, backend.observe()))
        assert list(backend.observe().dirs) == [ROOT]


class PartitionContract:
    """Of a kernel that has remote partitions. Subclasses give the fixture ``host``."""

    def test_a_partition_takes_its_cpus_from_every_other_cgroup(self, host: Host) -> None:
        backend = host.backend
        partitioned(backend)
        backend.make(OTHER)
        backend.write(OTHER, "cpuset.cpus", "0-2")
        backend.write(MAIN, "cpuset.cpus.partition", "root")
        assert cpus_of(backend, MAIN) == CpuSet.parse("2-3")
        assert cpus_of(backend, ROOT) == cpus_of(backend, POD) == host.topology.online - CpuSet.parse("2-3")
        assert cpus_of(backend, OTHER) == CpuSet.parse("0-1")
        backend.write(MAIN, "cpuset.cpus.partition", "isolated")
        backend.write(MAIN, "cpuset.cpus.partition", "member")
        assert cpus_of(backend, ROOT) == host.topology.online
        assert cpus_of(backend, OTHER) == CpuSet.parse("0-2")

    def test_the_set_of_a_partition_changes_in_place(self, host: Host) -> None:
        backend = host.backend
        make_partition(backend, "2-3")
        backend.write(POD, "cpuset.cpus", "1-3")
        for directory in (ROOT, POD, MAIN):
            backend.write(directory, "cpuset.cpus.exclusive", "1-3")
        assert cpus_of(backend, ROOT) == host.topology.online - CpuSet.parse("1-3")
        backend.write(MAIN, "cpuset.cpus", "1-3")
        assert cpus_of(backend, MAIN) == CpuSet.parse("1-3")
        for directory in (MAIN, POD, ROOT):
            backend.write(directory, "cpuset.cpus.exclusive", "1-2")
            assert cpus_of(backend, ROOT) == host.topology.online - CpuSet.parse("1-2")
        backend.write(MAIN, "cpuset.cpus", "1-2")
        assert cpus_of(backend, MAIN) == CpuSet.parse("1-2")
        assert backend.read(MAIN, "cpuset.cpus.partition") == "root"

    def test_what_is_above_a_partition_may_be_written_as_before(self, host: Host) -> None:
        backend = host.backend
        partitioned(backend)
        backend.write(MAIN, "cpuset.cpus.partition", "root")
        backend.write(POD, "cpuset.cpus", "1-3")
        assert cpus_of(backend, POD) == CpuSet.parse("1")
        backend.write(POD, "cpuset.cpus", "2-3")
        assert cpus_of(backend, MAIN) == CpuSet.parse("2-3")

    def test_a_partition_that_is_dissolved_and_removed_leaves_nothing_behind(self, host: Host) -> None:
        backend = host.backend
        partitioned(backend)
        backend.write(MAIN, "cpuset.cpus.partition", "root")
        backend.write(MAIN, "cpuset.cpus.partition", "member")
        backend.remove(MAIN)
        assert cpus_of(backend, ROOT) == host.topology.online
        backend.write(POD, "cpuset.cpus.exclusive", "")
        assert backend.read(POD, "cpuset.cpus.exclusive") == ""

    def test_cpus_that_are_not_handed_down_make_no_partition(self, host: Host) -> None:
        backend = host.backend
        partitioned(backend)
        backend.write(ROOT, "cpuset.cpus.exclusive", "")
        with pytest.raises(EnforcementError) as caught:
            backend.write(MAIN, "cpuset.cpus.partition", "root")
        assert caught.value.code == "READ-BACK"
        assert "root invalid (Invalid cpu list in cpuset.cpus.exclusive)" in caught.value.message
        assert caught.value.hint

    def test_cpus_that_are_not_handed_down_any_more_end_a_partition(self, host: Host) -> None:
        backend = host.backend
        partitioned(backend)
        backend.write(MAIN, "cpuset.cpus.partition", "root")
        # Not the empty set: Linux 6.12 would lose the CPUs, nobody has them until the next boot.
        backend.write(ROOT, "cpuset.cpus.exclusive", "0")
        assert backend.read(MAIN, "cpuset.cpus.partition") == "member"
        assert cpus_of(backend, ROOT) == host.topology.online
        backend.write(ROOT, "cpuset.cpus.exclusive", "2-3")
        backend.write(MAIN, "cpuset.cpus.partition", "root")
        backend.write(MAIN, "cpuset.cpus.exclusive", "")
        assert "root invalid" in backend.read(MAIN, "cpuset.cpus.partition")
        assert cpus_of(backend, ROOT) == host.topology.online

    def test_siblings_have_no_exclusive_cpu_in_common(self, host: Host) -> None:
        backend = host.backend
        partitioned(backend)
        backend.write(POOL, "cpuset.cpus", "3")
        with pytest.raises(EnforcementError) as caught:
            backend.write(MAIN, "cpuset.cpus.partition", "root")
        assert "Cpu list in cpuset.cpus not exclusive" in caught.value.message
        for file in ("cpuset.cpus.partition", "cpuset.cpus.exclusive"):
            backend.write(MAIN, file, "member" if file.endswith("partition") else "")
        with pytest.raises(EnforcementError) as caught:
            backend.write(MAIN, "cpuset.cpus.exclusive", "2-3")
        assert caught.value.code == "EINVAL"

    def test_a_sibling_that_asks_for_its_cpus_ends_a_partition_and_it_is_made_again(self, host: Host) -> None:
        backend = host.backend
        partitioned(backend)
        backend.write(MAIN, "cpuset.cpus.partition", "root")
        with suppress(EnforcementError):  # taken, but not granted
            backend.write(POOL, "cpuset.cpus", "2-3")
        assert "root invalid" in backend.read(MAIN, "cpuset.cpus.partition")
        backend.remove(POOL)
        backend.write(MAIN, "cpuset.cpus.partition", "member")
        backend.write(MAIN, "cpuset.cpus.exclusive", "")
        backend.write(MAIN, "cpuset.cpus.exclusive", "2-3")
        backend.write(MAIN, "cpuset.cpus.partition", "root")
        assert cpus_of(backend, MAIN) == CpuSet.parse("2-3")
        assert cpus_of(backend, ROOT) == host.topology.online - CpuSet.parse("2-3")

    def test_the_last_cpus_of_the_machine_make_no_partition(self, host: Host) -> None:
        backend = host.backend
        # EINVAL for the set itself where a cgroup beside ours has one: it would be left without any CPU
        with pytest.raises(EnforcementError, match=r"root invalid|cpuset\.cpus\.exclusive: .*\(EINVAL\)"):
            make_partition(backend, str(host.topology.online))

    def test_a_kind_that_there_is_not_is_refused(self, host: Host) -> None:
        partitioned(host.backend)
        with pytest.raises(EnforcementError) as caught:
            host.backend.write(MAIN, "cpuset.cpus.partition", "exclusive")
        assert caught.value.code == "EINVAL"


def make_partition(backend: CgroupBackend, cpus: str) -> None:
    """A partition in `MAIN`."""
    partitioned(backend, cpus)
    backend.write(MAIN, "cpuset.cpus.partition", "root")


def partitioned(backend: CgroupBackend, cpus: str = "2-3") -> None:
    """`open_up`, and everything that a partition in `MAIN` needs."""
    open_up(backend)
    for directory in (POD, MAIN):
        backend.write(directory, "cpuset.cpus", cpus)
    for directory in (ROOT, POD, MAIN):
        backend.write(directory, "cpuset.cpus.exclusive", cpus)


def cpus_of(backend: CgroupBackend, directory: CgroupDir) -> CpuSet:
    """Where processes in the cgroup may run."""
    return CpuSet.parse(backend.read(directory, "cpuset.cpus.effective"))


class ControllerContract:
    """What holds where nobody but us enables controllers; systemd enables them for its units. Gives ``host``, too."""

    def test_files_exist_only_where_the_parent_passes_the_controller_on(self, host: Host) -> None:
        backend = host.backend
        backend.make(POD)
        with pytest.raises(EnforcementError) as caught:
            backend.write(POD, "cpuset.cpus", "0-1")
        assert (caught.value.file, caught.value.value, caught.value.code) == ("cpuset.cpus", "0-1", "ENOENT")
        assert "subtree_control" in caught.value.hint
        backend.enable(ROOT, ALL)
        backend.write(POD, "cpuset.cpus", "0-1")
        assert backend.read(POD, "cpuset.cpus") == "0-1"
        assert backend.read(POD, "cpuset.cpus.effective") == "0-1"

    def test_controllers_are_enabled_top_down_only(self, host: Host) -> None:
        backend = host.backend
        backend.make(POD)
        with pytest.raises(EnforcementError) as caught:
            backend.enable(POD, ("cpuset",))
        assert caught.value.code == "ENOENT"
        backend.enable(ROOT, ("cpuset",))
        backend.enable(POD, ("cpuset",))
        backend.enable(POD, ("cpuset",))
        assert backend.observe().dirs[POD].subtree == {"cpuset"}
