"""A server for the tests of a module, and a place for others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.api.server import ControlServer
from tests.api.served import ROUTES


@pytest.fixture
def vacant(tmp_path: Path) -> Path:
    """Where no server listens yet."""
    return tmp_path / "run" / "control.sock"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("api") / "run" / "control.sock"


@pytest.fixture(scope="module")
def server(path: Path) -> Iterator[ControlServer]:
    server = ControlServer(path, ROUTES)
    server.start()
    yield server
    server.stop()
