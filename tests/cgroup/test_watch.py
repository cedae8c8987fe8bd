"""`DriftWatch` on plain directories, whose events are those of cgroups; the real ones are in tests/vm."""

from __future__ import annotations

import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.cgroup.layout import ROOT, CgroupDir, parent_of
from agent.cgroup.watch import DriftWatch

POD = CgroupDir("poda")


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[DriftWatch]:
    (tmp_path / POD).mkdir()
    for file in (
        "cpu.max",
        "cpuset.cpus.effective",
        "memory.events",
        "cgroup.events",
        "cgroup.subtree_control",
    ):
        (tmp_path / POD / file).touch()
    watch = DriftWatch(tmp_path)
    for directory in (ROOT, POD):
        watch.add(directory)
    yield watch
    watch.close()


def is_readable(watch: DriftWatch) -> bool:
    return bool(select.select([watch.fileno()], [], [], 0)[0])


@pytest.mark.parametrize("file", ["cpu.max", "cgroup.subtree_control"])
def test_who_writes_a_file_of_ours_is_noticed_once(watch: DriftWatch, tmp_path: Path, file: str) -> None:
    assert not is_readable(watch)
    (tmp_path / POD / file).write_text("7")
    assert is_readable(watch)
    assert watch.drain() == frozenset({POD})
    assert not is_readable(watch)
    assert watch.drain() == frozenset()


@pytest.mark.parametrize(
    ("made", "noticed"),
    [("podb", True), ("besteffort/podb", True), ("poda/main", False), ("other.service", False)],
)
def test_a_pods_cgroup_that_somebody_made_is_noticed_once_and_ours_is_not(
    watch: DriftWatch, tmp_path: Path, made: str, noticed: bool
) -> None:
    above = parent_of(CgroupDir(made))
    (tmp_path / above).mkdir(exist_ok=True)
    watch.add(above)
    watch.drain()
    (tmp_path / made).mkdir()
    assert watch.drain() == (frozenset({above}) if noticed else frozenset())
    assert not is_readable(watch)
    (tmp_path / made).rmdir()
    watch.drain()
    (tmp_path / made).mkdir()
    watch.disown(above, made.rpartition("/")[2])
    assert not is_readable(watch)
    assert watch.drain() == frozenset()


@pytest.mark.parametrize("file", ["cpuset.cpus.effective", "memory.events", "cgroup.events"])
def test_what_the_kernel_tells_by_itself_is_no_drift(watch: DriftWatch, tmp_path: Path, file: str) -> None:
    (tmp_path / POD / file).write_text("7")
    assert is_readable(watch)
    assert not watch.is_stirred()
    assert not is_readable(watch)
    assert watch.drain() == frozenset()


def test_what_stirred_it_is_told_once_and_wakes_nobody_again_until_there_is_more(
    watch: DriftWatch, tmp_path: Path
) -> None:
    (tmp_path / POD / "cpu.max").write_text("7")
    assert watch.is_stirred()
    assert not is_readable(watch)
    assert watch.drain() == frozenset({POD})
    assert not watch.is_stirred()


def test_what_we_write_is_no_drift_and_wakes_nobody(watch: DriftWatch, tmp_path: Path) -> None:
    (tmp_path / POD / "cpu.max").write_text("7")
    watch.disown(POD, "cpu.max")
    assert not is_readable(watch)
    assert watch.drain() == frozenset()


def test_somebody_who_writes_while_we_do_is_noticed(watch: DriftWatch, tmp_path: Path) -> None:
    (tmp_path / POD / "cgroup.subtree_control").write_text("7")
    (tmp_path / POD / "cpu.max").write_text("7")
    watch.disown(POD, "cpu.max")
    assert is_readable(watch)
    assert watch.drain() == frozenset({POD})
    assert not is_readable(watch)


def test_a_removed_cgroup_is_noticed_in_the_one_above_and_watched_again_when_made_anew(
    watch: DriftWatch, tmp_path: Path
) -> None:
    for file in (tmp_path / POD).iterdir():
        file.unlink()
    watch.drain()
    (tmp_path / POD).rmdir()
    assert watch.drain() == frozenset({ROOT})
    (tmp_path / POD).mkdir()
    watch.disown(ROOT, POD)
    watch.add(POD)
    (tmp_path / POD / "cpu.max").write_text("7")
    assert watch.drain() == frozenset({POD})


def test_a_cgroup_that_we_removed_is_not_missed(watch: DriftWatch, tmp_path: Path) -> None:
    for file in (tmp_path / POD).iterdir():
        file.unlink()
    (tmp_path / POD).rmdir()
    watch.forget(POD)
    watch.disown(ROOT, POD)
    assert watch.drain() == frozenset()
