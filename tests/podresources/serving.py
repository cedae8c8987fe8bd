"""A real owner whose PodResources API is served on a socket."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agent.api.podresources.server import PodResourcesServer
from agent.config import Config
from agent.containermanager.snapshot import Snapshot
from tests.containermanager.node import Node, parsed, topology
from tests.podresources.reference import Client

Json = dict[str, Any]


class Clock:
    """Time that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Hasty:
    """Time of which a second passes with every look: no limit on a rate ever bites."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


class Serving:
    def __init__(self, path: Path, config: Config | None = None) -> None:
        self.path = path
        self.node = Node(config, topology() if config else None)
        self.owner = self.node.owner()
        self.counts: Counter[tuple[str, str]] = Counter()
        self.snapshot: Callable[[], Snapshot] = self.owner.snapshot

    def count(self, name: str, version: str) -> None:
        self.counts[name, version] += 1

    def show(self) -> Snapshot:
        """What the server is shown now; a test may show it something else."""
        return self.snapshot()

    def admit(self, *documents: Json) -> None:
        for document in documents:
            self.owner.admit(parsed(document), "api")


@contextmanager
def serving(
    folder: Path, config: Config | None = None, clock: Callable[[], float] | None = None
) -> Iterator[tuple[Serving, Client]]:
    served = Serving(folder / "kubelet.sock", config)
    server = PodResourcesServer(served.path, 0o600, served.show, served.count, clock or Hasty())
    server.start()
    try:
        with Client(served.path) as client:
            yield served, client
    finally:
        server.stop()
