"""Who hears of what happens to cgroups outside of our subtree; directories stand for cgroups."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from inotify_simple import INotify

from agent.cgroup.boundwatch import BoundWatch
from agent.cgroup.layout import CgroupDir

PLACE = CgroupDir("db.slice/db.service")


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[BoundWatch]:
    watch = BoundWatch(tmp_path)
    yield watch
    watch.close()


def made(mount: Path) -> Path:
    cgroup = mount / PLACE
    cgroup.mkdir(parents=True)
    for file in ("cgroup.events", "cpuset.cpus", "memory.high"):
        (cgroup / file).touch()
    return cgroup


def test_each_step_of_a_cgroup_that_comes_and_goes_is_told(watch: BoundWatch, tmp_path: Path) -> None:
    watch.follow([PLACE])
    assert not watch.drain()
    (tmp_path / "other.slice").mkdir()
    assert not watch.drain()
    (tmp_path / "db.slice").mkdir()
    assert watch.drain()
    watch.follow([PLACE])
    (tmp_path / PLACE).mkdir()
    assert watch.drain()
    watch.follow([PLACE])
    (tmp_path / PLACE).rmdir()
    assert watch.drain()
    watch.follow([PLACE])
    (tmp_path / PLACE).mkdir()
    assert watch.drain()


def test_what_is_made_all_at_once_is_told(watch: BoundWatch, tmp_path: Path) -> None:
    watch.follow([PLACE])
    made(tmp_path)
    assert watch.drain()


def test_writes_that_concern_us_and_processes_are_told(watch: BoundWatch, tmp_path: Path) -> None:
    cgroup = made(tmp_path)
    watch.follow([PLACE])
    watch.drain()
    (cgroup / "memory.high").write_text("1")
    assert not watch.drain()
    (cgroup / "cpuset.cpus").write_text("1")
    assert watch.drain()
    (cgroup / "cgroup.events").write_text("populated 1")
    assert watch.drain()
    assert not watch.drain()


def test_what_is_followed_no_more_is_not_told(watch: BoundWatch, tmp_path: Path) -> None:
    cgroup = made(tmp_path)
    watch.follow([PLACE])
    watch.follow([])
    watch.drain()
    (cgroup / "cpuset.cpus").write_text("1")
    assert not watch.drain()


def _no_more(*_: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _full(**options: bool) -> INotify:
    """A kernel with no more watches for this user."""
    inotify = INotify(**options)
    inotify.add_watch = _no_more
    return inotify


def _refused(**_: object) -> INotify:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@pytest.mark.parametrize(("kernel", "limit"), [(_full, "watches"), (_refused, "instances")])
def test_without_watches_it_is_said_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    kernel: object,
    limit: str,
) -> None:
    monkeypatch.setattr("agent.cgroup.boundwatch.INotify", kernel)
    with closing(BoundWatch(tmp_path)) as watch:
        for _ in range(2):
            watch.follow([PLACE])
            assert not watch.drain()
        assert (watch.fileno() == -1) == (kernel is _refused)
    assert caplog.text.count("with the reconcile period only") == 1
    assert f"raise fs.inotify.max_user_{limit} with sysctl" in caplog.text
