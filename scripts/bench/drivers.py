"""What a ``cgroupDriver`` costs on a real kernel: ``scripts/vm/run -- python -m scripts.bench.drivers [PODS [DRIVER]]``.

For either driver the time on the clock, what was written to cgroups, and the messages to systemd with how often
their answers were waited for. The daemon runs in the process that uses it, so that its gates can be counted at.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path
from threading import Thread
from typing import Any, Final

from agent.api.client import ControlClient
from agent.cgroup.backend import CgroupBackend
from agent.cgroup.boundwatch import BoundWatch
from agent.cgroup.cgroupfs import CgroupFs
from agent.cgroup.containerwatch import ContainerWatch
from agent.cgroup.layout import CgroupDir
from agent.cgroup.naming import SliceNames
from agent.cgroup.preflight import mount_of
from agent.cgroup.slices import SystemdCgroups
from agent.cgroup.watch import DriftWatch
from agent.config import Config
from agent.config.source import ConfigSource
from agent.containermanager.boundgates import binder_of
from agent.containermanager.cgroupgates import Place
from agent.containermanager.hostgates import host_of
from agent.containermanager.machine import Machine
from agent.daemon import Edges, serve
from agent.errors import NumaletError
from agent.log import set_up_logging
from agent.sysfs.discovery import discover
from agent.sysfs.hotplug import NoHotplug
from agent.sysfs.reader import HostSysfs
from agent.systemdbus.dbus import SystemdBus
from scripts.bench.running import manifest

ROOTS: Final = {"cgroupfs": "/sys/fs/cgroup/numaletbench", "systemd": "/sys/fs/cgroup/numaletbench.slice"}
RECONCILES: Final = 10
EXCLUSIVE: Final = 2
COUNTED: Final[Counter[str]] = Counter()
"""Since `told` began: ``messages``, ``waits`` and ``writes``."""


class CountedBus(SystemdBus):
    """A bus whose messages are counted."""

    def _calls(self, calls: Sequence[Any]) -> list[list[Any]]:
        COUNTED.update(messages=len(calls), waits=1)
        return super()._calls(calls)


class CountedFiles(CgroupFs):
    """Cgroups at which writes are counted."""

    def write(self, directory: CgroupDir, file: str, text: str) -> Mapping[str, str]:
        """See `CgroupBackend.write`."""
        COUNTED.update(writes=1)
        return super().write(directory, file, text)


class Node:
    """A daemon that is started and ended as often as one likes."""

    def __init__(self, work: Path, driver: str) -> None:
        self._file = work / "config.yaml"
        self._client = ControlClient(work / "control.sock")
        (work / "manifests").mkdir()
        config = {
            "cgroupDriver": driver,
            "cgroupRoot": ROOTS[driver],
            "stateDir": str(work / "state"),
            "staticPodPath": str(work / "manifests"),
            "controlSocket": str(work / "control.sock"),
            "podResourcesSocket": "",
            "metricsBindAddress": "",
            "cpuManagerReconcilePeriod": "1s",
        }
        self._file.write_text(json.dumps(config))

    def run(self, story: Callable[[], None]) -> None:
        """Start it in a process of its own, with a thread for ``story``, and end both."""
        process = get_context("fork").Process(target=self._run, args=(story,))
        process.start()
        process.join()
        if process.exitcode:
            sys.exit(process.exitcode)

    def _run(self, story: Callable[[], None]) -> None:
        def tell() -> None:
            try:
                story()
            finally:
                os.kill(os.getpid(), signal.SIGTERM)

        Thread(target=tell).start()
        _serve(ConfigSource(path=self._file))

    def ready(self) -> None:
        """Wait until it answers."""
        while True:
            with suppress(NumaletError, OSError):
                self._client.call("GET", "/v1/status")
                return
            time.sleep(0.01)

    def admit(self, name: str, cpus: str) -> None:
        """Hand a pod in; ``cpus`` empty: one on the node shared pool."""
        (result,) = self._client.call("POST", "/v1/pods", manifest(name, cpus))["results"]
        if result["verdict"] != "admitted":
            raise ValueError(result)

    def remove(self, name: str) -> None:
        """Delete a pod."""
        self._client.call("DELETE", f"/v1/pods/bench/{name}?grace=0")


def _serve(source: ConfigSource) -> None:
    config = source.load()
    set_up_logging("error", config.log_format.value, os.environ)
    place, root = Place.of(config), Path(config.cgroup_root)
    with (
        closing(DriftWatch(root, place.names)) as drift,
        closing(ContainerWatch(root, place.names)) as containers,
    ):
        files = CountedFiles(root, watch=drift, containers=containers, names=place.names)
        cgroups: CgroupBackend = files
        if isinstance(place.names, SliceNames):
            cgroups = SystemdCgroups(files, CountedBus(), place.names, drift)
        edges = Edges(
            hotplug=NoHotplug(),
            look=_look,
            cgroups=cgroups,
            containers=containers,
            drift=drift,
            host=host_of,
            bound=lambda config: BoundWatch(mount_of(Path(config.cgroup_root))),
            binder=binder_of,
        )
        serve(source, config, os.environ, edges)


def _look(config: Config) -> Machine:
    topology = discover(HostSysfs(Path("/")))
    return Machine.of(topology, config.settings(topology), config.reservation_arithmetic(topology))


@contextmanager
def told(what: str) -> Iterator[None]:
    """Print what the block took."""
    COUNTED.clear()
    start = time.monotonic()
    yield
    counts = ", ".join(f"{COUNTED[name]} {name}" for name in ("writes", "messages", "waits"))
    print(f"  {what}: {time.monotonic() - start:.2f} s, {counts}", flush=True)


def measure(node: Node, pods: int) -> None:
    """Pods come, stay through a start, and go."""

    def come() -> None:
        with told("the first start"):
            node.ready()
        with told(f"{pods} pods, {EXCLUSIVE} of them exclusive"):
            for number in range(pods):
                node.admit(f"standing-{number}", "1" if number < EXCLUSIVE else "")
        for kind, cpus in (("sharing", ""), ("exclusive", "1")):
            with told(f"one {kind} pod beside them"):
                node.admit("one", cpus)
            with told("it goes"):
                node.remove("one")
        time.sleep(2)
        with told(f"{RECONCILES} reconciles without drift"):
            time.sleep(RECONCILES)

    def start() -> None:
        with told("a start with them"):
            node.ready()

    def go() -> None:
        node.ready()
        with told("all go"):
            for number in range(pods):
                node.remove(f"standing-{number}")

    for story in (come, start, go):
        node.run(story)


def main() -> None:
    """Measure either driver; what is left goes with the VM."""
    pods = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    for driver in sys.argv[2:] or ROOTS:
        print(driver, flush=True)
        with tempfile.TemporaryDirectory() as work:
            measure(Node(Path(work), driver), pods)


if __name__ == "__main__":
    main()
