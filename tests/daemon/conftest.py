"""One daemon a test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.running import Running


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    running = Running(tmp_path)
    yield running
    if running.thread.is_alive():
        running.stop()
    running.hotplug.close()
    running.containers.close()
    running.drift.close()
    running.bound.close()
