"""The daemon as a process: start, idle, memory, many callers, many pods that come and go."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from os import wait4
from statistics import median

from scripts.bench.crowd import lister, scrape
from scripts.bench.pace import pace, pin, unpin
from scripts.bench.registry import Samples, benchmark
from scripts.bench.running import CGROUP, ENVIRON, ROOT, Daemon, daemon

PODS = 250
STARTS = 3 if CGROUP else 10
PATIENCE = 40.0
IDLE_SECONDS = 60 if CGROUP else 20
CHURN = 200 if CGROUP else 10_000
CHURN_PARTS = 10
SETTLED_SECONDS = 0.2
CROWDED_SECONDS = 10
CROWDED_PAUSE = 0.02


# --- start, rest, commands ------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rest:
    starts: Samples
    rss_at_ready: float
    rss: float
    idle_percent: float
    wake_ups: float
    get_pods: Samples


@cache
def _rest() -> _Rest:
    """250 pods restored several times; then a scrape, a List, and nothing at all."""
    with daemon(PODS) as running:
        starts = pace().sampled(lambda: _restarted(running), _enough, patience=PATIENCE)
        rss_at_ready = running.rss_mb()
        scrape(running)
        with lister(running) as call:
            call()
        commands = _commands("get", "pods", "--socket", str(running.work / "control.sock"))
        time.sleep(1)
        before, woken, start = running.used_ms(), running.wake_ups(), time.monotonic()
        time.sleep(IDLE_SECONDS)
        seconds = time.monotonic() - start
        return _Rest(
            starts=starts,
            rss_at_ready=rss_at_ready,
            rss=running.rss_mb(),
            idle_percent=(running.used_ms() - before) / seconds / 10,
            wake_ups=(running.wake_ups() - woken) / seconds,
            get_pods=commands,
        )


def _restarted(running: Daemon) -> float:
    """CPU milliseconds of a start."""
    running.stop()
    running.start()
    return running.cpu_ms


def _enough(values: Sequence[float]) -> bool:
    return len(values) >= STARTS


def _commands(*arguments: str) -> Samples:
    """CPU milliseconds of one command."""
    return pace().sampled(lambda: _command(*arguments), _enough, patience=PATIENCE)


def _command(*arguments: str) -> float:
    process = subprocess.Popen(
        [sys.executable, "-m", "agent", *arguments], stdout=subprocess.DEVNULL, cwd=ROOT, env=ENVIRON
    )
    _, status, usage = wait4(process.pid, 0)
    process.returncode = status
    if status:
        raise ValueError(arguments)
    return (usage.ru_utime + usage.ru_stime) * 1e3


@benchmark(aim=500)
def start_250_pods() -> Samples:
    """CPU time from the start to READY, 250 pods restored."""
    return _rest().starts


@benchmark(aim=70, unit="MB")
def rss_at_ready() -> Samples:
    """Resident memory with 250 pods, before anybody asks for anything."""
    return Samples((_rest().rss_at_ready,))


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
    return _commands("--help")


@benchmark(aim=200)
def command_get_pods() -> Samples:
    """`numalet get pods` of 250 pods."""
    return _rest().get_pods


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
            time.sleep(SETTLED_SECONDS)  # the last connection is closed by then
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
    """Growth of resident memory: the second half of them against the first, medians."""
    rss, half = _churn().rss, CHURN_PARTS // 2
    return Samples((median(rss[-half:]) - median(rss[:half]),))


@benchmark(aim=0, unit="files")
def churn_open_files_growth() -> Samples:
    """Growth of open files."""
    return Samples((_churn().files[-1] - _churn().files[0],))


@benchmark(aim=0, unit="threads")
def churn_threads_growth() -> Samples:
    """Growth of threads."""
    return Samples((_churn().threads[-1] - _churn().threads[0],))


# --- a crowd --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Crowded:
    clock: tuple[float, ...]
    """Milliseconds of each admission."""
    cpu: tuple[float, ...]
    """What the daemon worked meanwhile, for whomever."""
    errors: int
    """Of the crowd."""


@cache
def _crowded() -> _Crowded:
    """Admissions from this process, while another one is a crowd of readers, on all CPUs there are."""
    unpin()
    with daemon(PODS) as running:
        command = [sys.executable, "-m", "scripts.bench.crowd", str(running.work)]
        crowd = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, env=ENVIRON, text=True
        )
        clock, cpu = [], []
        end = time.monotonic() + CROWDED_SECONDS
        while (start := time.monotonic()) < end:
            before = running.used_ms()
            running.admit("passing")
            clock.append((time.monotonic() - start) * 1e3)
            cpu.append(running.used_ms() - before)
            running.remove("passing")
            time.sleep(CROWDED_PAUSE)
        told, _ = crowd.communicate()
        pin()
        return _Crowded(clock=tuple(clock), cpu=tuple(cpu), errors=int(told.split()[0]))


@benchmark(aim=50, of_p99=True)
def crowded_admission() -> Samples:
    """An admission on the clock: 200 clients ask for the status, 100 Lists/s, a scrape a second, pods come and go."""
    return Samples(_crowded().clock)


@benchmark(aim=None)
def crowded_admission_cpu() -> Samples:
    """CPU time of the daemon during each, its own and the crowd's: what its clock would show without others' work."""
    return Samples(_crowded().cpu)


@benchmark(aim=0, unit="errors")
def crowded_errors() -> Samples:
    """Calls of all these that failed."""
    return Samples((float(_crowded().errors),))
