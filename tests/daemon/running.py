"""A daemon in this process: real sockets, directory and threads; disk and kernel in memory."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent.api.client import ControlClient
from agent.cgroup.boundwatch import BoundWatch
from agent.cgroup.layout import CgroupDir
from agent.cgroup.watch import DriftWatch
from agent.config import Config
from agent.config.source import ConfigSource
from agent.config.table import dump
from agent.containermanager import ContainerManager
from agent.containermanager.machine import Machine
from agent.daemon import Daemon, Kernel
from agent.domain.topology import Topology
from agent.errors import HostError
from agent.metrics import DecisionMetrics, NodeMetrics
from agent.reload import Configuration
from agent.sysfs.hotplug import Changed
from agent.systemd import Notifier
from tests.containermanager.faults import faulty_node
from tests.containermanager.node import Node, machine_of


class Hotplug:
    """A watch whose events the test makes."""

    def __init__(self, node: Node) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK)
        self.node = node
        self.found: Machine | HostError = node.machine

    def fileno(self) -> int:
        return self.fd

    def drain(self) -> Changed:
        os.eventfd_read(self.fd)
        return frozenset({"cpu"})

    def close(self) -> None:
        os.close(self.fd)

    def look(self) -> Machine:
        if isinstance(self.found, HostError):
            raise self.found
        return self.found

    def happen(self, machine: Topology | HostError) -> None:
        self.found = self.node.plug(machine) if isinstance(machine, Topology) else machine
        os.eventfd_write(self.fd, 1)


class Containers:
    """Changes of containers' cgroups, when a test makes them."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK)
        self.changed: frozenset[CgroupDir] = frozenset()
        self.untold: frozenset[CgroupDir] = frozenset()

    def fileno(self) -> int:
        return self.fd

    def follow(self, directories: Iterable[CgroupDir]) -> None:
        """It tells of what a test says anyway."""

    def drain(self) -> frozenset[CgroupDir]:
        with suppress(BlockingIOError):
            os.eventfd_read(self.fd)
            return self.changed
        return self.untold

    def close(self) -> None:
        os.close(self.fd)

    def happen(self, *directories: str) -> None:
        self.changed = frozenset(map(CgroupDir, directories))
        os.eventfd_write(self.fd, 1)


class Running:
    """A node whose daemon runs in a thread of its own."""

    def __init__(self, root: Path) -> None:
        self.node, self.fuse = faulty_node()
        self.root = root
        self.config = Config(
            manifest_dir=str(root / "manifests"),
            control_socket=str(root / "control.sock"),
            pod_resources_socket=str(root / "kubelet.sock"),
            metrics_address=f"127.0.0.1:{free_port()}",
            manifest_scan_period=0.05,
            reconcile_period=0.05,
        )
        self.hotplug = Hotplug(self.node)
        self.containers = Containers()
        self.drift = DriftWatch(root)
        self.bound = BoundWatch(root)
        self.environ: dict[str, str] = {}
        self.file = root / "config.yaml"
        self.source = ConfigSource(path=self.file)
        (root / "manifests").mkdir()

    def daemon(self, owner: ContainerManager | None = None) -> Daemon:
        decisions = DecisionMetrics()
        owner = owner or self.node.stopped_owner(decisions.decided)
        metrics = NodeMetrics(decisions, owner.snapshot, self.node.cgroups.stat)
        notifier = Notifier(self.environ)
        configuration = Configuration(self.source, self.config, owner, self.look, notifier)
        kernel = Kernel(self.hotplug, self.hotplug.look, self.containers, self.drift, self.bound)
        return Daemon(configuration, owner, metrics, kernel, notifier)

    def look(self, config: Config) -> Machine:
        return machine_of(config, self.node.topology)

    def start(self) -> None:
        self.current = self.daemon()
        self.thread = threading.Thread(target=self._run, args=(self.current,))
        self.thread.start()
        assert self.current.ready.wait(20)

    @staticmethod
    def _run(daemon: Daemon) -> None:
        with daemon:
            daemon.run()

    def stop(self) -> None:
        self.current.stop()
        self.thread.join(20)
        assert not self.thread.is_alive()

    def configure(self, **changes: Any) -> None:
        """Write the configuration file: what runs, with changes."""
        self.file.write_text(json.dumps(dump(replace(self.config, **changes))))

    def reload(self) -> dict[str, list[str]]:
        """Reload, and the keys that changed or wait, and what was refused."""
        answer = self.client().call("POST", "/v1/reload")
        keys = {kind: [change["key"] for change in answer[kind]] for kind in ("live", "restart")}
        return {**keys, "refused": answer["refused"]}

    def client(self) -> ControlClient:
        return ControlClient(Path(self.config.control_socket))

    def page(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://{self.config.metrics_address}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def write(self, name: str, text: str) -> None:
        (self.root / "manifests" / name).write_text(text)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def eventually(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)
