"""What a user waits for: one pod through the control socket to disk (tmpfs, with fsync) and cgroups (fake)."""

from __future__ import annotations

import gc
import json
import logging
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from agent.api.client import ControlClient
from agent.api.routes import QUICK, control_routes
from agent.api.server import ControlServer
from agent.cgroup.backend import NOTHING
from agent.cgroup.fake import FakeCgroups
from agent.cgroup.layout import ROOT, CgroupDir, Kind
from agent.cgroup.tree import Observed
from agent.checkpoint.files import SystemFiles
from agent.checkpoint.store import CPU_FILE, MEMORY_FILE, StateDir, record_name
from agent.containermanager import ContainerManager, VerdictKind
from agent.containermanager.enforcer import READ_AT_ONCE
from agent.containermanager.machine import Machine
from agent.domain.idset import NodeMask
from agent.domain.pod import Pod, PodUid
from scripts.bench.binding import unbound
from scripts.bench.machines import amounts, app, machine, pod, settings
from scripts.bench.registry import Samples, Times, Undone, benchmark

PODS = 250
_TMPFS = Path("/dev/shm")  # noqa: S108 - a directory of our own in it
_stack = ExitStack()  # until the process ends


class CountedFiles(SystemFiles):
    """Counts the bytes that are written."""

    written = 0

    def write(self, descriptor: int, data: bytes) -> int:
        """See `SystemFiles.write`."""
        count = super().write(descriptor, data)
        self.written += count
        return count


class CountedCgroups(FakeCgroups):
    """Counts the cgroups that are read."""

    _read = 0

    def observe(self, top: CgroupDir = ROOT, leave_out: frozenset[Kind] = NOTHING) -> Observed:
        """See `CgroupBackend.observe`."""
        found = super().observe(top, leave_out)
        self._read += len(found.dirs)
        return found

    def read_by(self, work: Callable[[], object]) -> float:
        """How many ``work`` reads."""
        before = self._read
        work()
        return float(self._read - before)


@dataclass(frozen=True, slots=True)
class Daemon:
    """An owner with pods admitted, and its control socket; its files are in ``work``."""

    owner: ContainerManager
    client: ControlClient
    work: Path
    files: CountedFiles
    cgroups: CountedCgroups

    def admit(self, name: str) -> None:
        """Hand in an exclusive pod as a user does."""
        results = self.client.call("POST", "/v1/pods", _manifest(name))["results"]
        if results[0]["verdict"] != "admitted":
            raise ValueError(results)

    def remove(self, name: str) -> None:
        """Delete it again."""
        self.client.call("DELETE", f"/v1/pods/bench/{name}?grace=0")


def _manifest(name: str) -> bytes:
    both = {"cpu": "2", "memory": "256Mi"}
    document: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "bench", "uid": f"uid-{name}"},
        "spec": {"containers": [{"name": "main", "resources": {"requests": both, "limits": both}}]},
    }
    return json.dumps(document).encode()


def _exclusive(number: int) -> Pod:
    return pod(f"slice-{number}", app("main", amounts(1, 1 / 4)))


def _sharing(number: int) -> Pod:
    return pod(f"shared-{number}", app("main"))


def daemon(pods: int, make: Callable[[int], Pod] = _exclusive, cpus: int = 1024) -> Daemon:
    """Start one with ``pods`` pods on it."""
    logging.getLogger("agent").setLevel(logging.ERROR)
    topology = machine(sockets=2, nodes=2, cpus=cpus)
    work = Path(_stack.enter_context(tempfile.TemporaryDirectory(dir=_TMPFS)))
    cgroups = CountedCgroups(topology.online, NodeMask(topology.all_nodes.bits))
    files = CountedFiles()
    store = _stack.enter_context(StateDir(work / "state", files))
    owner = ContainerManager(
        machine=Machine.of(topology, settings(), ""),
        store=store,
        binder=unbound(store, work),
        cgroups=cgroups,
        cgroup_root="/sys/fs/cgroup/bench",
        boot_id="bench",
        now=lambda: "2026-01-01T00:00:00.000000Z",
    )
    owner.start()
    server = ControlServer(work / "control.sock", control_routes(owner), quick=QUICK)
    server.start()
    _stack.callback(server.stop)
    for number in range(pods):
        verdict = owner.admit(make(number), "api")
        if verdict.kind is not VerdictKind.ADMITTED:
            raise ValueError(verdict.message)
    gc.collect()
    gc.freeze()  # as a daemon does that has restored its pods
    found = Daemon(owner, ControlClient(work / "control.sock"), work, files, cgroups)
    for number in range(20):  # what is remembered of files is remembered by then
        found.admit(f"warm-{number}")
        found.remove(f"warm-{number}")
    return found


def _admission(running: Daemon) -> Undone:
    names = (f"pod-{number}" for number in count())
    admitted: list[str] = []

    def admit() -> None:
        admitted.append(next(names))
        running.admit(admitted[-1])

    return Undone(admit, lambda: running.remove(admitted.pop()))


def _removal(running: Daemon) -> Undone:
    names = (f"pod-{number}" for number in count())
    admitted = [next(names)]
    running.admit(admitted[0])

    def again() -> None:
        admitted.append(next(names))
        running.admit(admitted[-1])

    return Undone(lambda: running.remove(admitted.pop()), again)


@benchmark(aim=3, of_p99=True)
def beside_250_pods() -> Undone:
    """An exclusive pod is admitted over the control socket beside 250 exclusive ones."""
    return _admission(daemon(PODS))


@benchmark(aim=Times(1, "admission.beside_250_pods"))
def removal_beside_250_pods() -> Undone:
    """It is removed."""
    return _removal(daemon(PODS))


@benchmark(aim=None)
def beside_1000_pods() -> Undone:
    """The same admission beside 1,000."""
    return _admission(daemon(1000, cpus=4096))


@benchmark(aim=None)
def beside_250_sharing_pods() -> Undone:
    """The same admission beside 250 pods on the shared pool, of which each has to leave the CPUs."""
    return _admission(daemon(PODS, _sharing))


@benchmark(aim=2, unit="x")
def bytes_beside_1000_pods() -> Samples:
    """Bytes written to disk by an admission beside 1,000 pods, in sizes of the three files it concerns."""
    running = daemon(1000, cpus=4096)
    before = running.files.written
    running.admit("one")
    state = running.work / "state"
    concerned = state / CPU_FILE, state / MEMORY_FILE, state / record_name(PodUid("uid-one"))
    return Samples(((running.files.written - before) / sum(file.stat().st_size for file in concerned),))


@benchmark(aim=15)
def reconcile_250_pods() -> Callable[[], object]:
    """A reconcile that finds nothing to do."""
    return daemon(PODS).owner.reconcile


@benchmark(aim=0, unit="writes")
def reconcile_writes() -> Samples:
    """What 20 such reconciles write to cgroups and disk."""
    running = daemon(PODS)
    before = running.files.written, len(running.cgroups.log)
    for _ in range(20):
        running.owner.reconcile()
    written = running.files.written - before[0] + len(running.cgroups.log) - before[1]
    return Samples((float(written),))


@benchmark(aim=READ_AT_ONCE * 3, unit="reads")
def reconcile_reads() -> Samples:
    """The cgroups that each of these reads; a pod has up to three."""
    running = daemon(PODS)
    return Samples(tuple(running.cgroups.read_by(running.owner.reconcile) for _ in range(20)))
