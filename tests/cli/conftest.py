"""The `numalet` command against a real control socket on a real owner, disk and kernel in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agent.api.routes import control_routes
from agent.api.server import ControlServer
from tests.cli.command import Command
from tests.containermanager.node import Node


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """One daemon for a module's tests; each removes the pods it made (see `numalet`)."""
    root = tmp_path_factory.mktemp("cli")
    owner = Node().owner()
    server = ControlServer(root / "control.sock", control_routes(owner))
    server.start()
    yield Command(owner, root)
    server.stop()


@pytest.fixture
def numalet(served: Command) -> Iterator[Command]:
    yield served
    snapshot = served.owner.snapshot()
    for uid in (*snapshot.pods, *snapshot.rejected):
        served.owner.remove(uid, 0)
