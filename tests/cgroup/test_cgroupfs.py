"""`CgroupFs` and `preflight` on plain files; what only a kernel can show is in tests/vm."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.cgroup.backend import EnforcementError, Prepared
from agent.cgroup.cgroupfs import CgroupFs
from agent.cgroup.layout import ROOT, CgroupDir
from agent.cgroup.preflight import mount_of, preflight
from agent.errors import HostError

CONTROLLERS = "cpuset cpu io memory hugetlb pids"


def cgroup(path: Path, **files: str) -> Path:
    """A directory with the core files of a cgroup; ``files`` by name, dots as underscores."""
    path.mkdir(exist_ok=True)
    core = {
        "cgroup.controllers": CONTROLLERS,
        "cgroup.subtree_control": "cpuset cpu memory",
        "cgroup.procs": "",
        "cgroup.type": "domain",
        "cgroup.events": "populated 0\nfrozen 0",
    }
    for name, text in (core | {name.replace("_", "."): text for name, text in files.items()}).items():
        (path / name.replace("subtree.control", "subtree_control")).write_text(f"{text}\n")
    return path


@pytest.fixture
def mount(tmp_path: Path) -> Path:
    return cgroup(tmp_path / "fs")


@pytest.fixture
def root(mount: Path) -> Path:
    return cgroup(mount / "numalet")


@pytest.mark.parametrize("name", ["..", "../fs", "podx/../..", "/etc", "podx//main", ".", "podx/.."])
def test_no_name_leads_outside_the_root(root: Path, name: str) -> None:
    cgroup(root / "podx")
    fs = CgroupFs(root)
    for action in (fs.make, fs.remove, fs.procs, fs.kill, fs.exists):
        with pytest.raises(EnforcementError) as caught:
            action(CgroupDir(name))
        assert caught.value.code == "REFUSED"


@pytest.mark.parametrize("file", ["../cgroup.procs", "/etc/passwd", ".."])
def test_no_file_name_leads_outside_the_cgroup(root: Path, file: str) -> None:
    with pytest.raises(EnforcementError, match="not a name"):
        CgroupFs(root).write(ROOT, file, "1")


def test_symbolic_links_are_not_followed(root: Path, tmp_path: Path) -> None:
    cgroup(tmp_path / "outside", cpu_weight="100")
    (root / "podx").symlink_to(tmp_path / "outside")
    (root / "cpu.weight").symlink_to(tmp_path / "outside" / "cpu.weight")
    fs = CgroupFs(root)
    for directory in (CgroupDir("podx"), ROOT):
        with pytest.raises(EnforcementError):
            fs.write(directory, "cpu.weight", "7")
    assert (tmp_path / "outside" / "cpu.weight").read_text() == "100\n"
    (tmp_path / "link").symlink_to(root)
    with pytest.raises(EnforcementError, match=r"ELOOP|ENOTDIR"):
        CgroupFs(tmp_path / "link").procs(ROOT)


def test_a_scan_reads_planned_files_only_and_stays_out_of_other_subtrees(root: Path) -> None:
    cgroup(
        root / "podx",
        cpuset_cpus="0-3",
        cpu_max="max 100000",
        cpu_pressure="some",
        cgroup_events="populated 1",
    )
    cgroup(root / "podx" / "main")
    cgroup(root / "podx" / "main" / "nested", cpu_weight="1")
    cgroup(root / "other.service")
    cgroup(root / "other.service" / "below")
    seen = CgroupFs(root).observe().dirs
    assert set(seen) == {"", "podx", "podx/main", "podx/main/nested", "other.service"}
    assert seen[CgroupDir("podx")].files == {"cpuset.cpus": "0-3", "cpu.max": "max 100000"}
    assert seen[CgroupDir("podx")].populated
    assert seen[CgroupDir("podx")].subtree == {"cpuset", "cpu", "memory"}
    assert seen[CgroupDir("podx/main/nested")].files == {}


def test_f3_who_has_the_cpus_is_named_where_the_kernel_gives_others(mount: Path, root: Path) -> None:
    """As the kernel shows it: the set is as written, what it comes to is what the partitions left."""
    for name, cpus, kind in (("rt", "2-3", "root"), ("other", "5", "isolated"), ("docker", "2", "member")):
        cgroup(mount / name, cpuset_cpus=cpus, cpuset_cpus_partition=kind)
    cgroup(root / "podx", cpuset_cpus="1", cpuset_cpus_effective="0-1,4", cpuset_cpus_partition="member")
    with pytest.raises(EnforcementError) as caught:
        CgroupFs(root).write(CgroupDir("podx"), "cpuset.cpus", "1-2")
    assert caught.value.message == (
        f"cannot write '1-2' to {root}/podx/cpuset.cpus: cpuset.cpus.effective is '0-1,4';"
        f" {mount}/rt is a partition (root): 2-3 (READ-BACK)"
    )


def test_f3_who_keeps_a_partition_from_being_one_is_named(mount: Path, root: Path) -> None:
    """Also a slice of systemd's that would have no CPU left; one that has others is in nobody's way."""
    for name, cpus in (("narrow.slice", "2"), ("system.slice", "0-3"), ("docker", "2-5"), ("elsewhere", "0")):
        cgroup(mount / name, cpuset_cpus=cpus, cpuset_cpus_partition="member")
    cgroup(root / "podx", cpuset_cpus="2-3", cpuset_cpus_effective="3", cpuset_cpus_partition="member")
    with pytest.raises(EnforcementError) as caught:
        CgroupFs(root).write(CgroupDir("podx"), "cpuset.cpus.partition", "root")
    told = caught.value.message.split("; ")[1:]
    assert told == [
        f"{mount}/docker is bound to CPUs of its own: 2-5",
        f"{mount}/narrow.slice is bound to CPUs of its own: 2 (READ-BACK)",
    ]


def test_a_root_that_does_not_exist_is_an_empty_scan(mount: Path) -> None:
    assert CgroupFs(mount / "none").observe().dirs == {}


def test_preparing_makes_the_root_and_undoing_removes_it(mount: Path) -> None:
    root = mount / "a" / "numalet"
    cgroup(root.parent, cgroup_subtree_control="")
    done = CgroupFs(root).prepare()
    assert [step.path for step in done.enabled] == [str(mount), str(root.parent)]
    assert [step.controllers for step in done.enabled] == [
        ("hugetlb", "pids"),
        ("cpu", "cpuset", "memory", "hugetlb", "pids"),
    ]
    assert done.created == (str(root),)
    assert (mount / "cgroup.subtree_control").read_text() == "+hugetlb +pids"
    CgroupFs(root).restore(done)
    assert not root.exists()
    assert (root.parent / "cgroup.subtree_control").read_text() == "-cpu -cpuset -memory -hugetlb -pids"


def test_undoing_leaves_a_root_that_is_in_use(root: Path) -> None:
    CgroupFs(root).restore(Prepared(created=(str(root),)))
    assert root.exists()


def test_one_agent_at_a_time_has_the_root(mount: Path, root: Path) -> None:
    cgroup(mount, cgroup_subtree_control=CONTROLLERS)
    first, second = CgroupFs(root), CgroupFs(root)
    done = first.prepare()
    assert first.prepare() == Prepared(), "preparing again is fine"
    with pytest.raises(HostError, match=f"{root} is in use by another numalet") as caught:
        second.prepare()
    assert "--cgroup-root" in caught.value.hint
    first.restore(done)
    second.restore(second.prepare())


def test_a_root_that_was_removed_is_made_and_claimed_again(mount: Path) -> None:
    cgroup(mount, cgroup_subtree_control=CONTROLLERS)
    fs = CgroupFs(mount / "new")
    done = fs.prepare()
    fs.root.rmdir()
    fs.make(ROOT)
    with pytest.raises(HostError, match="in use"):
        CgroupFs(fs.root).prepare()
    fs.restore(done)
    assert not fs.root.exists()


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def test_without_cgroup_kill_each_process_is_killed_and_pid_0_is_spared(
    root: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    cgroup(root / "podx", cgroup_events="populated 1", cgroup_procs="0")
    cgroup(root / "podx" / "main", cgroup_procs=f"{sleeper.pid}")
    with pytest.raises(EnforcementError, match=f"processes {sleeper.pid} do not die within 0.02 s"):
        CgroupFs(root, patience=0.02).kill(CgroupDir("podx"))  # plain files stay populated
    assert sleeper.wait(10) == -9


def test_statistics_leave_out_what_is_not_offered(root: Path) -> None:
    cgroup(root / "podx", cpu_stat="usage_usec 5\nnr_throttled 2")
    cgroup(root / "pody", memory_current="4096")
    fs = CgroupFs(root)
    assert fs.stat(CgroupDir("podx")) == {"usage_usec": 5, "nr_throttled": 2}
    assert fs.stat(CgroupDir("pody")) == {"memory.current": 4096}


def test_a_controller_that_does_not_show_up_is_an_error(root: Path) -> None:
    os.chmod(root / "cgroup.subtree_control", 0o600)  # noqa: PTH101 - plain files keep what is written
    with pytest.raises(EnforcementError) as caught:
        CgroupFs(root).enable(ROOT, ("cpu",))
    assert caught.value.code == "READ-BACK"


def test_a_directory_that_is_not_empty_is_tried_again_and_then_reported(root: Path) -> None:
    cgroup(root / "podx")
    with pytest.raises(EnforcementError) as caught:
        CgroupFs(root).remove(CgroupDir("podx"))
    assert caught.value.code == errno.errorcode[errno.ENOTEMPTY]


def test_the_mount_is_the_top_of_the_hierarchy(mount: Path, root: Path, tmp_path: Path) -> None:
    assert mount_of(root) == mount_of(mount) == mount
    assert mount_of(root / "not" / "yet") == mount
    with pytest.raises(HostError) as caught:
        mount_of(tmp_path)
    assert "unified" in caught.value.hint


def blocking(root: Path) -> list[str]:
    return [problem.text for problem in preflight(root) if problem.blocking]


def test_a_good_host_has_no_problem(root: Path) -> None:
    assert preflight(root) == ()


def test_a_root_yet_to_be_made_is_fine(mount: Path) -> None:
    assert preflight(mount / "new") == ()


def test_a_host_without_cgroup_v2_is_refused_with_a_remedy(tmp_path: Path) -> None:
    (problem,) = preflight(tmp_path / "numalet")
    assert "no cgroup v2" in problem.text
    assert "unified" in problem.remedy


def test_the_top_of_the_hierarchy_is_no_root(mount: Path) -> None:
    (problem,) = preflight(mount)
    assert str(mount / "numalet") in problem.remedy


def test_a_controller_that_the_kernel_lacks_is_named(mount: Path, root: Path) -> None:
    cgroup(mount, cgroup_controllers="cpuset cpu io", cgroup_subtree_control="cpuset cpu")
    (text,) = blocking(root)
    assert "memory controller" in text


def test_processes_in_a_cgroup_that_must_pass_controllers_on_are_a_problem(root: Path) -> None:
    cgroup(root, cgroup_procs="42", cgroup_subtree_control="cpu")
    (text,) = blocking(root)
    assert "holds processes" in text
    assert "cpuset, memory" in text


def test_a_threaded_cgroup_is_a_problem(root: Path) -> None:
    cgroup(root, cgroup_type="threaded")
    (text,) = blocking(root)
    assert "threaded" in text


def test_enabling_cpuset_for_everybody_is_a_warning(mount: Path, root: Path) -> None:
    cgroup(mount, cgroup_subtree_control="cpu memory")
    (problem,) = preflight(root)
    assert not problem.blocking
    assert "CPUAffinity" in problem.text


def test_a_root_that_cannot_be_written_is_a_problem(root: Path) -> None:
    (root / "cgroup.subtree_control").unlink()
    (text,) = blocking(root)
    assert "not writable" in text
