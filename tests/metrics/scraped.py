"""A node with its metrics: a real owner decides, a scrape shows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agent.config import Config
from agent.containermanager import ContainerManager
from agent.domain.topology import Topology
from agent.metrics import DecisionMetrics, NodeMetrics
from tests.containermanager.node import Node, parsed

SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? ([\d.eE+-]+|NaN)$", re.MULTILINE)


class Scraped:
    """A node without pods."""

    def __init__(self, config: Config | None = None, machine: Topology | None = None) -> None:
        self.node = Node(config, machine)
        self.start()

    def start(self) -> None:
        """A daemon starts on the node, with counters at zero."""
        self.decisions = DecisionMetrics()
        self.owner: ContainerManager = self.node.stopped_owner(
            self.decisions.decided, timed=self.decisions.timed
        )
        self.owner.start()
        self.metrics = NodeMetrics(self.decisions, self.owner.snapshot, self.node.cgroups.stat)

    def admit(self, *documents: dict[str, Any]) -> None:
        for document in documents:
            self.owner.admit(parsed(document), "api")

    def page(self, accept: str = "text/plain") -> str:
        return self.metrics.page(accept)[0].decode()

    def series(self, name: str) -> Mapping[str, float]:
        """The values of one metric by label values, as ``"0 memory"``, in the order of the label names."""
        return {
            " ".join(re.findall(r'="([^"]*)"', labels)): float(value)
            for found, labels, value in SAMPLE.findall(self.page())
            if found == name
        }

    def counted(self, name: str) -> Mapping[str, float]:
        """Those that differ from zero."""
        return {labels: value for labels, value in self.series(name).items() if value}
