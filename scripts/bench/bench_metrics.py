"""A scrape of /metrics on a node with 250 pods."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, cycle
from pathlib import Path
from tempfile import TemporaryDirectory

from agent.admission import isolation
from agent.cgroup.cgroupfs import CgroupFs
from agent.cgroup.layout import CgroupDir
from agent.containermanager import AdmittedPod, Decided, Snapshot, Stage
from agent.domain.idset import CpuSet
from agent.domain.trace import CpusGranted, Pool
from agent.metrics import DecisionMetrics, NodeMetrics
from agent.metrics.throttling import READ_AT_MOST, Stat
from scripts.bench.machines import amounts, app, empty_node, machine, pod, settings
from scripts.bench.registry import benchmark

_PODS = 250
_PROMETHEUS = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3"
_CPU_STAT = (
    "usage_usec 1\nuser_usec 1\nsystem_usec 0\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n"
    "nr_bursts 0\nburst_usec 0\n"
)
_TRACE = (CpusGranted("main", CpuSet.of((1,)), (), Pool.NODE),)


def _snapshot() -> Snapshot:
    """8 NUMA nodes with huge pages; pods of 2 CPUs, an exclusive container and one in the pod shared pool."""
    topology, chosen = machine(sockets=2, nodes=8, cpus=576, hugepages=True), settings()
    node = empty_node(topology, chosen)
    containers = app("main", amounts(1, 0.5)), app("helper")
    node.admit(pod(f"pod-{number}", *containers, budget=amounts(2, 1)) for number in range(_PODS))
    return Snapshot(
        topology=topology,
        settings=chosen,
        managers=node.managers,
        state=node.state,
        cgroup_root="",
        pods={
            uid: AdmittedPod(
                pod=held,
                source="bench",
                admitted_at="",
                trace=(),
                isolation=isolation(node.managers, node.state, held),
                directories={name: CgroupDir(f"pod{uid}/{name}") for name in ("main", "helper")},
            )
            for uid, held in node.pods.items()
        },
    )


def _scrape(stat: Stat) -> Callable[[], object]:
    """A scrape as Prometheus asks for it, in which what was counted and timed since the one before is new."""
    snapshot, decisions = _snapshot(), DecisionMetrics()
    metrics = NodeMetrics(decisions, lambda: snapshot, stat)
    pods = cycle(snapshot.pods.values())

    def scrape() -> object:
        entry = next(pods)
        for stage in Stage:
            with decisions.timed(stage):
                pass
        decisions.decided(Decided(pod=entry.pod, managers=snapshot.managers, trace=_TRACE))
        return len(metrics.page(_PROMETHEUS)[0])

    for _ in range(_PODS // READ_AT_MOST + 1):  # until every slice was read once
        scrape()
    return scrape


@benchmark(aim=10)
def scrape_250_pods() -> Callable[[], object]:
    """A page; cpu.stat is read from files on disk, which no kernel sums up over CPUs."""
    folder = TemporaryDirectory()
    for number in range(_PODS):
        cgroup = Path(folder.name) / f"poduid-pod-{number}" / "main"
        cgroup.mkdir(parents=True)
        (cgroup / "cpu.stat").write_text(_CPU_STAT)
        (cgroup / "memory.current").write_text("0\n")
    scrape = _scrape(CgroupFs(Path(folder.name)).stat)
    return lambda: (folder, scrape())


@benchmark(aim=10)
def scrape_250_throttled_pods() -> Callable[[], object]:
    """A page on which every slice that was looked at is throttled more than before, cgroups in memory."""
    times = count()
    return _scrape(lambda _: dict.fromkeys(("nr_throttled", "throttled_usec"), next(times)))
