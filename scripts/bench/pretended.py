"""The daemon with a made-up machine and cgroups in memory.

What `numalet run` does, less the kernel: for benchmarks on hosts without cgroup v2, and on more CPUs
than there are. The cgroups outlive it in a file beside CONFIG, as they would in a kernel.
"""

from __future__ import annotations

import os
import pickle
from pathlib import Path

from agent.cgroup.boundwatch import BoundWatch
from agent.cgroup.containerwatch import ContainerWatch
from agent.cgroup.fake import FakeCgroups
from agent.cgroup.tree import CgroupOp
from agent.cgroup.watch import DriftWatch
from agent.config import Config
from agent.config.source import ConfigSource
from agent.containermanager.hostisolation import LooseHost
from agent.containermanager.machine import Machine
from agent.daemon import Edges, serve
from agent.log import set_up_logging
from agent.sysfs.hotplug import NoHotplug
from scripts.bench.binding import unbound
from scripts.bench.machines import machine, settings


class _Nothing(list[CgroupOp]):
    """A log that keeps nothing: a kernel has none either."""

    def append(self, _op: CgroupOp, /) -> None:
        pass


def run(file: Path) -> None:
    """Run by the configuration in ``file`` until SIGTERM."""
    topology = machine(sockets=2, nodes=2, cpus=1024)

    def look(_config: Config) -> Machine:
        return Machine.of(topology, settings(), "")

    source = ConfigSource(path=file)
    config = source.load()
    set_up_logging(config.log_level.value, config.log_format.value, os.environ)
    kept = file.with_suffix(".cgroups")
    cgroups = FakeCgroups(topology.online, topology.all_nodes)
    if kept.exists():
        cgroups = pickle.loads(kept.read_bytes())  # noqa: S301 - our own
    cgroups.log = _Nothing()
    nowhere = Path(config.cgroup_root)
    edges = Edges(
        hotplug=NoHotplug(),
        look=look,
        cgroups=cgroups,
        containers=ContainerWatch(nowhere),
        drift=DriftWatch(nowhere),
        host=lambda *_: LooseHost(),
        bound=lambda _config: BoundWatch(nowhere),
        binder=lambda _config, store, _boot_id, _watch: unbound(store, nowhere),
    )
    serve(source, config, os.environ, edges)
    cgroups.log = []
    kept.write_bytes(pickle.dumps(cgroups))
