"""Fixtures of the tests that need a real kernel."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.vm.installed import BEFORE_BOOT
from tests.vm.node import Node, running, wait_until


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of tests that belong to a boot, choose those of this one."""
    number = 2 if BEFORE_BOOT.exists() else 1
    others = [item for item in items if any(mark.args != (number,) for mark in item.iter_markers("boot"))]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if item not in others]


@pytest.fixture(scope="session")
def long_running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A daemon that sees a new manifest by inotify or not at all, and drift within 2 s."""
    config = {"fileCheckFrequency": "1h", "cpuManagerReconcilePeriod": "2s"}
    with running(tmp_path_factory.mktemp("node"), **config) as node:
        yield node


@pytest.fixture
def node(long_running: Node) -> Iterator[Node]:
    """A running daemon without pods: emulated CPUs take seconds to start one, so tests share it."""
    logged = long_running.log.stat().st_size
    yield long_running
    sys.stderr.write(long_running.log.read_bytes()[logged:].decode())  # shown where a test failed
    for file in long_running.manifests.iterdir():
        file.unlink()
    for name, pod in long_running.pods().items():
        if pod["source"] == "api":
            long_running.delete(name)
    wait_until(lambda: not long_running.pods(), "the pods are gone")
