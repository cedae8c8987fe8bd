"""The owner's pods follow the files: a real directory, a real owner, disk and kernel in memory."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.cgroup.layout import CgroupDir
from agent.containermanager import ContainerManager
from agent.domain.idset import CpuSet
from agent.domain.pod import PodUid
from agent.domain.settings import Gates
from agent.podsource import ManifestDir, ManifestFollower
from tests.containermanager.faults import Mode, faulty_node
from tests.containermanager.node import Node, admitted_names, manifest, pod, unsound
from tests.podsource.test_manifest_dir import write

Follow = Callable[[ContainerManager], ManifestFollower]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def follow(root: Path) -> Iterator[Follow]:
    """A follower of ``root``, as each start of the daemon makes one."""
    opened: list[ManifestDir] = []

    def start(owner: ContainerManager) -> ManifestFollower:
        opened.append(ManifestDir(root, Gates()))
        return ManifestFollower(opened[-1], owner)

    yield start
    for manifests in opened:
        manifests.close()


def test_pods_come_and_go_with_their_files(follow: Follow, root: Path) -> None:
    node = Node()
    owner = node.owner()
    follower = follow(owner)
    write(root / "a.yaml", manifest("a", cpu="1"), manifest("b", cpu="1"))
    write(root / "c.yaml", manifest("c", cpu="1"))
    follower.sync()
    assert admitted_names(owner) == ["a", "b", "c"]
    write(root / "a.yaml", manifest("a", cpu="1"))
    (root / "c.yaml").unlink()
    follower.sync()
    assert admitted_names(owner) == ["a"]
    assert unsound(node, owner) == []


def test_a_uid_with_processes_of_an_earlier_pod_is_taken_once_they_are_gone(
    follow: Follow, root: Path
) -> None:
    node = Node()
    old = CgroupDir("poduid-a")
    node.cgroups.prepare()
    for directory in (old, main := CgroupDir("poduid-a/before")):
        node.cgroups.make(directory)
    node.cgroups.add_process(main, node.cgroups.spawn())
    owner = node.owner()
    follower = follow(owner)
    write(root / "a.yaml", manifest("a"))
    for _ in range(2):
        follower.sync()
        assert owner.snapshot().rejected[PodUid("uid-a")].reason == "UidInUse"
    node.cgroups.kill(old)
    follower.sync()
    assert admitted_names(owner) == ["a"]
    assert unsound(node, owner) == []


def test_a_pod_whose_unit_is_not_there_yet_is_taken_once_it_is(follow: Follow, root: Path) -> None:
    node = Node()
    owner = node.owner()
    follower = follow(owner)
    document = manifest("a")
    document["metadata"]["annotations"] = {"numalet/unit.main": "db.service"}
    write(root / "a.yaml", document)
    for _ in range(2):
        follower.sync()
        assert owner.snapshot().rejected[PodUid("uid-a")].reason == "BindingError"
    node.outside.install("db.service")
    follower.sync()
    assert admitted_names(owner) == ["a"]
    (root / "a.yaml").unlink()
    follower.sync()
    assert admitted_names(owner) == []
    assert node.outside.properties("db.service")["AllowedCPUs"] == CpuSet()


def test_a_changed_spec_is_admitted_anew_under_its_uid(follow: Follow, root: Path) -> None:
    owner = Node().owner()
    follower = follow(owner)
    write(root / "a.yaml", manifest("a", cpu="1"))
    follower.sync()
    write(root / "a.yaml", manifest("a", cpu="2"))
    follower.sync()
    assert len(owner.snapshot().cpus(PodUid("uid-a"), "main")) == 2


def test_a_file_that_becomes_malformed_keeps_its_pods(
    follow: Follow, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    owner = Node().owner()
    follower = follow(owner)
    write(root / "a.yaml", manifest("a"))
    follower.sync()
    (root / "a.yaml").write_text("a: [")
    for _ in range(3):
        follower.sync()
    assert admitted_names(owner) == ["a"]
    assert len(owner.snapshot().problems) == 1
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1
    write(root / "a.yaml", manifest("a"))
    follower.sync()
    assert owner.snapshot().problems == ()


def test_a_refused_pod_stays_refused_until_its_file_changes(
    follow: Follow, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    owner = Node().owner()
    follower = follow(owner)
    write(root / "a.yaml", manifest("a", cpu="64"))
    follower.sync()
    follower.sync()
    assert list(owner.snapshot().rejected) == ["uid-a"]
    assert len([text for text in caplog.messages if "rejected" in text]) == 1
    write(root / "a.yaml", manifest("a", cpu="1"))
    follower.sync()
    assert admitted_names(owner) == ["a"]
    assert owner.snapshot().rejected == {}


def test_a_refused_pod_is_forgotten_with_its_file(follow: Follow, root: Path) -> None:
    owner = Node().owner()
    follower = follow(owner)
    write(root / "a.yaml", manifest("a", cpu="64"))
    follower.sync()
    (root / "a.yaml").unlink()
    follower.sync()
    assert owner.snapshot().rejected == {}


def test_two_files_with_one_uid_are_told_and_the_first_keeps_its_pod(
    follow: Follow, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    owner = Node().owner()
    follower = follow(owner)
    write(root / "a.yaml", manifest("a", cpu="1"))
    write(root / "b.yaml", manifest("b", cpu="2", uid="uid-a"))
    for _ in range(2):
        follower.sync()
    expected = "b.yaml: pod default/a (uid uid-a) from file:a.yaml is already admitted with another spec"
    assert owner.snapshot().problems == (expected,)
    assert caplog.messages.count(f"manifest: {expected}") == 1
    assert admitted_names(owner) == ["a"]
    (root / "b.yaml").unlink()
    follower.sync()
    assert owner.snapshot().problems == ()
    assert admitted_names(owner) == ["a"]


def test_pods_of_the_api_are_not_the_directorys(follow: Follow, root: Path) -> None:
    node = Node()
    owner = node.owner()
    owner.admit(pod("mine", cpu="1"), "api")
    write(root / "api", manifest("filed", cpu="1"))
    follow(owner).sync()
    (root / "api").unlink()
    again = node.owner()
    follow(again).sync()
    assert admitted_names(again) == ["mine"]


def test_what_happened_to_the_files_while_the_daemon_was_down_is_followed(follow: Follow, root: Path) -> None:
    node = Node()
    write(root / "gone.yaml", manifest("gone", cpu="1"))
    write(root / "same.yaml", manifest("same", cpu="1"))
    write(root / "changed.yaml", manifest("changed", cpu="1"))
    write(root / "broken.yaml", manifest("broken", cpu="1"))
    follow(node.owner()).sync()
    (root / "gone.yaml").unlink()
    (root / "broken.yaml").write_text("a: [")
    write(root / "changed.yaml", manifest("changed", cpu="2"))
    again = node.owner()
    same = again.snapshot().pods[PodUid("uid-same")].admitted_at
    follow(again).sync()
    assert admitted_names(again) == ["broken", "changed", "same"]
    assert again.snapshot().pods[PodUid("uid-same")].admitted_at == same
    assert len(again.snapshot().cpus(PodUid("uid-changed"), "main")) == 2
    assert unsound(node, again) == []


def test_a_missing_directory_takes_no_pod(follow: Follow, root: Path) -> None:
    node = Node()
    write(root / "a.yaml", manifest("a"))
    follow(node.owner()).sync()
    elsewhere = ManifestDir(root / "missing", Gates())
    again = node.owner()
    ManifestFollower(elsewhere, again).sync()
    elsewhere.close()
    assert admitted_names(again) == ["a"]
    assert "No such file or directory" in again.snapshot().problems[0]


def test_a_pod_that_could_not_be_removed_is_removed_by_a_later_scan(
    follow: Follow, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node()
    owner = node.owner()
    follower = follow(owner)
    document = manifest("a")
    document["spec"]["terminationGracePeriodSeconds"] = 0
    write(root / "a.yaml", document)
    follower.sync()
    node.cgroups.add_process(CgroupDir("poduid-a/main"), node.cgroups.spawn())
    node.cgroups.fail(CgroupDir("poduid-a"), "cgroup.kill", errno.EIO)
    (root / "a.yaml").unlink()
    for _ in range(3):
        follower.sync()
    assert admitted_names(owner) == ["a"]
    [problem] = owner.snapshot().problems
    assert problem.startswith("a.yaml: ")
    assert "cgroup.kill" in problem
    assert len([text for text in caplog.messages if "cgroup.kill" in text]) == 1
    node.cgroups.mend()
    follower.sync()
    assert admitted_names(owner) == []
    assert owner.snapshot().problems == ()


def test_a_pod_that_a_full_disk_refused_is_admitted_by_a_later_scan(follow: Follow, root: Path) -> None:
    node, fuse = faulty_node()
    owner = node.owner()
    follower = follow(owner)
    write(root / "a.yaml", manifest("a"))
    fuse.arm(0, Mode.LASTING)
    follower.sync()
    assert admitted_names(owner) == []
    fuse.disarm()
    follower.sync()
    assert admitted_names(owner) == ["a"]
    assert unsound(node, owner) == []
