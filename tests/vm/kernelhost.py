"""A cgroup subtree on the real kernel, for the contract that every backend keeps."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from agent.cgroup.backend import CgroupBackend
from agent.cgroup.layout import ROOT, CgroupDir
from agent.cgroup.naming import PLAIN, CgroupNames
from agent.cgroup.plan import plan
from agent.cgroup.tree import Wanted, top_down
from agent.domain.idset import CpuSet
from agent.domain.pod import PodUid
from agent.domain.topology import Topology
from tests.cgroup.worlds import World, app, machine, pinned, pod, sidecar

MOUNT: Final = Path("/sys/fs/cgroup")


@dataclass
class KernelHost:
    """`tests.cgroup.contract.Host`."""

    backend: CgroupBackend
    topology: Topology
    names: CgroupNames = PLAIN
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def spawn(self, *command: str) -> int:
        """A live process outside the subtree."""
        process = subprocess.Popen(command or ("sleep", "600"))
        self.processes.append(process)
        return process.pid

    def name(self, directory: CgroupDir) -> str:
        """What an error calls the cgroup, at the end of its path."""
        return self.names.path(directory)

    def tree(self) -> Wanted:
        """What a pod with an exclusive container and a sidecar comes to."""
        tenant = pod("u", sidecar("helper"), app("main", pinned("2", "64Mi")), budget=pinned("3", "128Mi"))
        uid = PodUid("u")
        world = World(topology=self.topology, pods={uid: tenant}, cpus={uid: {"main": CpuSet.parse("2-3")}})
        return plan(world.facts(self.backend.offer()))


@contextmanager
def prepared(backend: CgroupBackend, root: Path, names: CgroupNames = PLAIN) -> Iterator[KernelHost]:
    """A host with an empty subtree at ``root``, which is gone afterwards."""
    done = backend.prepare()
    online = CpuSet.parse((MOUNT / "cpuset.cpus.effective").read_text())
    nodes = len((MOUNT / "cpuset.mems.effective").read_text().strip().split("-"))
    host = KernelHost(backend, machine(len(online), nodes), names)
    yield host
    for process in host.processes:
        process.kill()
        process.wait()
    for directory in reversed(top_down(backend.observe().dirs)):
        if directory != ROOT:
            backend.remove(directory)
    backend.restore(done)
    assert not root.exists()
