"""Watching containers' cgroups: inotify tells of files of any file system, so these are ordinary ones."""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from inotify_simple import INotify

from agent.cgroup.cgroupfs import CgroupFs
from agent.cgroup.containerwatch import ContainerWatch
from agent.cgroup.layout import CgroupDir

MAIN, SIDE = CgroupDir("podu/main"), CgroupDir("burstable/podu/shared.pool/side")


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[ContainerWatch]:
    watch = ContainerWatch(tmp_path)
    yield watch
    watch.close()


def made(watch: ContainerWatch, directory: CgroupDir) -> None:
    cgroup = watch.root / directory
    cgroup.mkdir(parents=True, exist_ok=True)
    (cgroup / "cgroup.events").write_text("populated 0\n")


def change(watch: ContainerWatch, directory: CgroupDir) -> None:
    with (watch.root / directory / "cgroup.events").open("r+") as file:
        file.write("populated 1\n")


def heard(watch: ContainerWatch) -> frozenset[CgroupDir]:
    """What changed; empty if nothing did, which is never waited for."""
    return watch.drain() if select.select([watch.fileno()], [], [], 0)[0] else frozenset()


def test_it_tells_which_containers_changed(watch: ContainerWatch) -> None:
    for directory in (MAIN, SIDE):
        made(watch, directory)
    watch.follow([MAIN, SIDE])
    assert heard(watch) == frozenset()
    change(watch, SIDE)
    assert heard(watch) == {SIDE}
    change(watch, MAIN)
    change(watch, SIDE)
    change(watch, MAIN)
    assert heard(watch) == {MAIN, SIDE}
    assert heard(watch) == frozenset()


def test_only_containers_are_followed(watch: ContainerWatch) -> None:
    others = [CgroupDir("podu"), CgroupDir("podu/shared.pool"), CgroupDir("burstable"), CgroupDir("x")]
    for directory in others:
        made(watch, directory)
    watch.follow(others)
    for directory in others:
        change(watch, directory)
    assert heard(watch) == frozenset()


def test_one_that_is_gone_is_not_followed_and_one_made_anew_is(watch: ContainerWatch) -> None:
    made(watch, MAIN)
    watch.follow([MAIN])
    change(watch, MAIN)
    assert heard(watch) == {MAIN}
    (watch.root / MAIN / "cgroup.events").unlink()
    watch.forget([MAIN])
    made(watch, MAIN)
    change(watch, MAIN)
    assert heard(watch) == frozenset()
    watch.follow([MAIN])
    change(watch, MAIN)
    assert heard(watch) == {MAIN}


def test_a_container_that_vanished_is_passed_over(watch: ContainerWatch) -> None:
    made(watch, SIDE)
    watch.follow([MAIN, SIDE])
    watch.forget([MAIN])
    change(watch, SIDE)
    assert heard(watch) == {SIDE}


def test_containers_that_are_made_and_removed_here_are_followed(
    tmp_path: Path, watch: ContainerWatch
) -> None:
    fs = CgroupFs(tmp_path, containers=watch)
    (tmp_path / "podu").mkdir()
    fs.make(MAIN)  # no kernel makes its files here: it is not there yet, for us
    made(watch, MAIN)
    fs.make(MAIN)
    change(watch, MAIN)
    assert heard(watch) == {MAIN}
    (tmp_path / MAIN / "cgroup.events").unlink()
    fs.remove(MAIN)
    assert heard(watch) == frozenset()
    assert not (tmp_path / MAIN).exists()


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
def test_without_watches_it_is_said_once_and_whoever_asks_is_told_of_all(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    kernel: object,
    limit: str,
) -> None:
    monkeypatch.setattr("agent.cgroup.containerwatch.INotify", kernel)
    with closing(ContainerWatch(tmp_path)) as watch:
        watch.follow([MAIN, SIDE, CgroupDir("podu")])
        assert watch.drain() == watch.drain() == {MAIN, SIDE}
        watch.forget([SIDE])
        assert watch.drain() == {MAIN}
        assert (watch.fileno() == -1) == (kernel is _refused)
    assert caplog.text.count("with the reconcile period only") == 1
    assert f"raise fs.inotify.max_user_{limit} with sysctl" in caplog.text
