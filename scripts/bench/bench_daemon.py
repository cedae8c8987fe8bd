"""The daemon as a process: start, idle, memory, many callers, many pods that come and go."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from os import wait4
from threading import Event, Thread

import grpc

from agent.api.podresources.v1 import api_pb2 as v1
from scripts.bench.registry import Samples, benchmark
from scripts.bench.running import CGROUP, ENVIRON, ROOT, Daemon, daemon

PODS = 250
STARTS = 3 if CGROUP else 5
IDLE_SECONDS = 60 if CGROUP else 20
CHURN = 200 if CGROUP else 10_000
CHURN_PARTS = 10
CLIENTS = 200
CROWDED_SECONDS = 10


# --- start, rest, commands ------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rest:
    starts_cpu: tuple[float, ...]
    starts_wall: tuple[float, ...]
    rss: float
    idle_percent: float
    wake_ups: float
    get_pods: tuple[float, ...]


@cache
def _rest() -> _Rest:
    """250 pods restored several times; then a scrape, a List, and nothing at all."""
    with daemon(PODS) as running:
        cpu, wall = [], []
        for _ in range(STARTS):
            running.stop()
            running.start()
            cpu.append(running.cpu_ms)
            wall.append(running.wall_ms)
        _scrape(running)
        with _lister(running) as call:
            call()
        commands = tuple(
            _command("get", "pods", "--socket", str(running.work / "control.sock")) for _ in range(STARTS)
        )
        time.sleep(1)
        before, woken, start = running.used_ms(), running.wake_ups(), time.monotonic()
        time.sleep(IDLE_SECONDS)
        seconds = time.monotonic() - start
        return _Rest(
            starts_cpu=tuple(cpu),
            starts_wall=tuple(wall),
            rss=running.rss_mb(),
            idle_percent=(running.used_ms() - before) / seconds / 10,
            wake_ups=(running.wake_ups() - woken) / seconds,
            get_pods=commands,
        )


def _command(*arguments: str) -> float:
    """CPU milliseconds of one command."""
    process = subprocess.Popen(
        [sys.executable, "-m", "agent", *arguments], stdout=subprocess.DEVNULL, cwd=ROOT, env=ENVIRON
    )
    _, status, usage = wait4(process.pid, 0)
    process.returncode = status
    if status:
        raise ValueError(arguments)
    return (usage.ru_utime + usage.ru_stime) * 1e3


def _scrape(running: Daemon) -> int:
    with urllib.request.urlopen(running.metrics, timeout=60) as answer:  # noqa: S310 - our own
        return len(answer.read())


@contextmanager
def _lister(running: Daemon) -> Iterator[Callable[[], int]]:
    with grpc.insecure_channel(running.lister) as channel:
        call = channel.unary_unary(
            "/v1.PodResourcesLister/List",
            v1.ListPodResourcesRequest.SerializeToString,
            v1.ListPodResourcesResponse.FromString,
        )
        yield lambda: len(call(v1.ListPodResourcesRequest(), timeout=60).pod_resources)


@benchmark(aim=500)
def start_250_pods() -> Samples:
    """CPU time from the start to READY, 250 pods restored."""
    return Samples(_rest().starts_cpu)


@benchmark(aim=None)
def start_250_pods_clock() -> Samples:
    """The same on the clock."""
    return Samples(_rest().starts_wall)


@benchmark(aim=70, unit="MB")
def rss_250_pods() -> Samples:
    """Resident memory with 250 pods, after a scrape and a List over gRPC."""
    return Samples((_rest().rss,))


@benchmark(aim=0.1, unit="% CPU")
def idle_250_pods() -> Samples:
    """CPU time while nothing happens, with 250 pods."""
    return Samples((_rest().idle_percent,))


@benchmark(aim=2, unit="1/s")
def wake_ups_250_pods() -> Samples:
    """How often a thread of the idle daemon wakes up."""
    return Samples((_rest().wake_ups,))


@benchmark(aim=120)
def command_help() -> Samples:
    """`numalet --help`, CPU time of the process."""
    return Samples(tuple(_command("--help") for _ in range(STARTS)))


@benchmark(aim=200)
def command_get_pods() -> Samples:
    """`numalet get pods` of 250 pods."""
    return Samples(_rest().get_pods)


# --- churn ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Churn:
    latency: tuple[float, ...]
    """Median milliseconds of CPU time that the daemon needs for a pod to come and go, by part."""
    rss: tuple[float, ...]
    files: tuple[float, ...]
    threads: tuple[float, ...]


@cache
def _churn() -> _Churn:
    """Pods come and go one by one; memory, files and threads after each tenth of them."""
    with daemon(0) as running:
        _come_and_go(running, CHURN // CHURN_PARTS * 2)  # the list of events is full then, the allocator warm
        latency, rss, files, threads = [], [running.rss_mb()], [], []
        for _ in range(CHURN_PARTS):
            before = running.used_ms()
            _come_and_go(running, CHURN // CHURN_PARTS)
            latency.append((running.used_ms() - before) / (CHURN // CHURN_PARTS))
            rss.append(running.rss_mb())
            files.append(float(running.open_files()))
            threads.append(float(running.threads()))
        return _Churn(latency=tuple(latency), rss=tuple(rss), files=tuple(files), threads=tuple(threads))


def _come_and_go(running: Daemon, pods: int) -> None:
    for number in range(pods):
        running.admit(f"passing-{number}")
        running.remove(f"passing-{number}")


@benchmark(aim=None)
def churn_pod() -> Samples:
    """CPU time of the daemon for a pod that comes and goes; 10,000 of them in ten parts."""
    return Samples(_churn().latency)


@benchmark(aim=1.1, unit="x")
def churn_slowdown() -> Samples:
    """The last tenth of these pods against the first."""
    return Samples((_churn().latency[-1] / _churn().latency[0],))


@benchmark(aim=1, unit="MB")
def churn_rss_growth() -> Samples:
    """Growth of resident memory meanwhile."""
    return Samples((_churn().rss[-1] - _churn().rss[0],))


@benchmark(aim=0, unit="files")
def churn_open_files_growth() -> Samples:
    """Growth of open files."""
    return Samples((_churn().files[-1] - _churn().files[0],))


@benchmark(aim=0, unit="threads")
def churn_threads_growth() -> Samples:
    """Growth of threads."""
    return Samples((_churn().threads[-1] - _churn().threads[0],))


# --- a crowd --------------------------------------------------------------------------------


@dataclass(slots=True)
class _Crowd:
    """Calls of many kinds at once, until told to stop."""

    running: Daemon
    errors: list[str]
    stop: Event

    def every(self, seconds: float, call: Callable[[], object]) -> None:
        """Call again and again; what fails is noted."""
        due = time.monotonic()
        while not self.stop.wait(max(0.0, due - time.monotonic())):
            due = max(due + seconds, time.monotonic())
            try:
                call()
            except Exception as error:  # noqa: BLE001 - counted, whatever it is
                self.errors.append(repr(error))


@cache
def _crowded() -> tuple[tuple[float, ...], int]:
    """Milliseconds on the clock of each admission, and the errors of everybody."""
    with daemon(PODS) as running, _lister(running) as listing:
        crowd = _Crowd(running, [], Event())
        times: list[float] = []

        def come_and_go() -> None:
            start = time.monotonic()
            running.admit("passing")
            times.append((time.monotonic() - start) * 1e3)
            running.remove("passing")

        calls: list[tuple[float, Callable[[], object]]] = [
            *((2.0, lambda: running.client.call("GET", "/v1/status")) for _ in range(CLIENTS)),
            (0.01, listing),
            (1.0, lambda: _scrape(running)),
            (0.05, come_and_go),
        ]
        threads = [Thread(target=crowd.every, args=call) for call in calls]
        for thread in threads:
            thread.start()
        time.sleep(CROWDED_SECONDS)
        crowd.stop.set()
        for thread in threads:
            thread.join()
        return tuple(times), len(crowd.errors)


@benchmark(aim=50, of_p99=True)
def crowded_admission() -> Samples:
    """An admission on the clock: 200 clients ask for the status, 100 Lists/s, a scrape a second, pods come and go."""
    return Samples(_crowded()[0])


@benchmark(aim=0, unit="errors")
def crowded_errors() -> Samples:
    """Calls of all these that failed."""
    return Samples((float(_crowded()[1]),))
