"""The demo: three pods, real processes, a crash, and what the kernel says; every claim is checked.

Runs as root on a host with cgroup v2, under a cgroup of its own that it removes at the end. Exits
non-zero if anything is not as told.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.api.client import ControlClient
from agent.domain.idset import CpuSet
from agent.sysfs.discovery import discover
from agent.sysfs.reader import HostSysfs

EXAMPLES = Path(__file__).parents[1] / "docs/examples"
CGROUP_ROOT = Path("/sys/fs/cgroup/numalet-demo")
METRICS = "127.0.0.1:9467"
CONFIG = """\
cpuManagerPolicy: static
memoryManagerPolicy: Static
topologyManagerPolicy: restricted
topologyManagerScope: {scope}
systemReserved: {{cpu: "1"}}
cgroupRoot: {root}
stateDir: {work}/state
staticPodPath: {work}/manifests
controlSocket: {work}/control.sock
metricsBindAddress: {metrics}
podResourcesSocket: ""
"""
BURN = "burn() {{ until [ -e {go} ]; do sleep 0.3; done; while :; do :; done; }}; for i in $(seq {n}); do burn & done; wait"
MEASURED_SECONDS = 5.0
# What a container holds; its state may go on meanwhile.
HELD = ("pod", "name", "isolation", "cpus", "memory", "cgroup")
JITTER = 1.1  # on an emulated machine the clock and the counters are read some way apart


class Story:
    """Prints headings and tables, and remembers every claim that did not hold."""

    def __init__(self) -> None:
        self.broken: list[str] = []
        self.began = time.monotonic()
        self.colours = sys.stdout.isatty()

    def chapter(self, title: str) -> None:
        """Begin a chapter."""
        mark = f"[{time.monotonic() - self.began:5.1f} s] {title}"
        print(f"\n{self._styled('1', mark)}\n{'─' * len(mark)}", flush=True)

    def say(self, text: str) -> None:
        """Print text."""
        print(text.rstrip("\n"), flush=True)

    def claim(self, text: str, *, holds: bool) -> None:
        """Say that something is so, and whether it is."""
        print(f"  {self._styled('32', '✓') if holds else self._styled('31', '✗ NOT SO:')} {text}", flush=True)
        if not holds:
            self.broken.append(text)

    def _styled(self, code: str, text: str) -> str:
        return f"\033[{code}m{text}\033[0m" if self.colours else text


class Node:
    """One numalet daemon under test, driven as a user would."""

    def __init__(self, story: Story, work: Path) -> None:
        self.story = story
        self.work = work
        self.daemon: subprocess.Popen[bytes] | None = None
        self.scrapes: list[dict[str, float]] = []
        self.log = (work / "daemon.log").open("ab")
        (work / "manifests").mkdir()
        self.environ = os.environ | {"NUMALET_SOCKET": str(work / "control.sock")}

    def start(self, scope: str) -> None:
        """Start the daemon and wait until it answers."""
        config = self.work / "config.yaml"
        config.write_text(CONFIG.format(scope=scope, root=CGROUP_ROOT, work=self.work, metrics=METRICS))
        self.daemon = subprocess.Popen(
            [sys.executable, "-m", "agent", "run", "--config", str(config)],
            env=self.environ, stderr=self.log,
        )  # fmt: skip
        deadline = time.monotonic() + 60
        while not self._answers():
            if self.daemon.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"the daemon did not start:\n{(self.work / 'daemon.log').read_text()}")
            time.sleep(0.2)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{METRICS}/healthz", timeout=2):
                return True
        except OSError:
            return False

    def end(self, number: signal.Signals) -> None:
        """Note the daemon's counters, send it a signal and wait for its end."""
        if self.daemon:
            self.scrapes.append(scrape())
            self.daemon.send_signal(number)
            self.daemon.wait(30)

    def numalet(self, *words: str, expected: int = 0) -> str:
        """Run a command as a user would, show it, and return what it printed."""
        self.story.say(f"$ numalet {' '.join(words)}")
        done = subprocess.run(
            [sys.executable, "-m", "agent", *words],
            env=self.environ, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode != expected:
            self.story.claim(
                f"exit status {expected}, not {done.returncode}: {done.stdout}{done.stderr}", holds=False
            )
        return done.stdout + done.stderr

    def ask(self, what: str) -> dict[str, Any]:
        """Ask the daemon, unseen."""
        return ControlClient(self.work / "control.sock").call("GET", f"/v1/{what}")

    def busy(self, pod: str, container: str, processes: int) -> subprocess.Popen[bytes]:
        """Start busy loops inside a container."""
        burn = BURN.format(n=processes, go=self.work / "go")
        command = ["exec", pod, container, "--", "sh", "-c", burn]
        return subprocess.Popen([sys.executable, "-m", "agent", *command], env=self.environ)


@dataclass(frozen=True, slots=True)
class Seen:
    """What the kernel says of one container."""

    pod: str
    container: str
    pids: tuple[int, ...]
    cpus: CpuSet
    mems: str
    cpu_max: str
    pool_max: str
    throttled: int
    usage: float


def look(containers: Sequence[Mapping[str, Any]]) -> list[Seen]:
    """Measure each container's CPU use for a while, then read what the kernel allows it."""
    pause(paused=False)
    time.sleep(1.5)
    before = [_sample(container) for container in containers]
    time.sleep(MEASURED_SECONDS)
    after = [_sample(container) for container in containers]
    pause(paused=True)
    return [
        _seen(container, new, (new["usage_usec"] - old["usage_usec"]) / ((now - then) * 1e6))
        for container, (old, then), (new, now) in zip(containers, before, after, strict=True)
    ]


def _sample(container: Mapping[str, Any]) -> tuple[dict[str, int], float]:
    """The counters, and the middle of the time that reading them took."""
    began = time.monotonic()
    stat = _cpu_stat(container)
    return stat, (began + time.monotonic()) / 2


def pause(*, paused: bool) -> None:
    """Freeze or thaw all processes: an emulated machine has little time for anything beside them."""
    (CGROUP_ROOT / "cgroup.freeze").write_text("1" if paused else "0")


def _seen(container: Mapping[str, Any], stat: Mapping[str, int], usage: float) -> Seen:
    directory = Path(container["cgroup"])
    pids = tuple(map(int, (directory / "cgroup.procs").read_text().split()))
    allowed = {_status(pid, "Cpus_allowed_list") for pid in pids}
    mems = {_status(pid, "Mems_allowed_list") for pid in pids}
    return Seen(
        container["pod"],
        container["name"],
        pids,
        CpuSet.parse(",".join(sorted(allowed))),
        "/".join(sorted(mems)),
        (directory / "cpu.max").read_text().strip(),
        (directory.parent / "cpu.max").read_text().strip() if directory.parent.name == "shared.pool" else "-",
        stat["nr_throttled"],
        usage,
    )


def _cpu_stat(container: Mapping[str, Any]) -> dict[str, int]:
    lines = (Path(container["cgroup"]) / "cpu.stat").read_text().splitlines()
    return {key: int(value) for key, value in (line.split() for line in lines)}


def _status(pid: int, field: str) -> str:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split(":", 1)[1].strip() for line in lines if line.startswith(field + ":"))


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns in line."""
    lines = [list(map(str, row)) for row in (headings, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  " + "  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def containers_of(node: Node) -> list[dict[str, Any]]:
    """All containers of all admitted pods."""
    return [
        {**container, "pod": pod["name"]}
        for pod in node.ask("pods")["pods"]
        if pod["state"] == "Admitted"
        for container in pod["containers"]
    ]


def tell(story: Story, node: Node) -> None:
    """The whole story."""
    story.chapter("1  The machine")
    story.say(node.numalet("topology"))

    story.chapter("2  Three pods")
    node.start("pod")
    story.say(node.numalet("apply", "-f", str(EXAMPLES / "pod-scope-mixed.yaml")))
    refusal = node.numalet("apply", "-f", str(EXAMPLES / "empty-shared-pool.yaml"), expected=1)
    story.say(refusal)
    story.claim("the pod whose shared pool would be empty is refused, with the kubelet's reason",
                holds="TopologyAffinityError" in refusal)  # fmt: skip
    story.say("\nThe third example wants container scope: stop the daemon, start it with that scope.")
    node.end(signal.SIGTERM)
    node.start("container")
    story.say(node.numalet("apply", "-f", str(EXAMPLES / "container-scope-mixed.yaml")))
    story.say(node.numalet("get", "pods"))

    story.chapter("3  What the kernel says about busy processes in them")
    start_busy_processes(node)
    containers = containers_of(node)
    seen = look(containers)
    show(story, seen)
    check_kernel(story, {one.container: one for one in seen})

    story.chapter("4  kill -9 the daemon, start it again")
    survive(story, node, containers, seen)

    story.chapter("5  Metrics and checkpoint files")
    show_books(story, node)

    story.chapter("6  Delete")
    for pod in ("pod-scope-mixed", "container-scope-mixed"):
        story.say(node.numalet("delete", pod, "--grace-period", "1"))
    check_empty(story, node)


def start_busy_processes(node: Node) -> None:
    """More busy loops in each shared container than it has CPUs for, one per CPU in the others."""
    counts = {
        ("pod-scope-mixed", "main-app"): 2,
        ("pod-scope-mixed", "metrics-sidecar"): 2,
        ("pod-scope-mixed", "logging-sidecar"): 2,
        ("container-scope-mixed", "infrastructure-sidecar"): 2,
        ("container-scope-mixed", "worker-1"): 2,
        ("container-scope-mixed", "worker-2"): 2,
    }
    for (pod, container), count in counts.items():
        node.busy(pod, container, count)
    wait_for(lambda: len(pids_below_root()) >= len(counts) + sum(counts.values()))
    (node.work / "go").touch()


def wait_for(condition: Callable[[], bool], seconds: float = 90) -> None:
    """Wait until something is so, or the time is over: the claims then tell."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.3)


def pids_below_root() -> list[str]:
    """All processes of all pods."""
    return [pid for file in CGROUP_ROOT.rglob("cgroup.procs") for pid in file.read_text().split()]


def show(story: Story, seen: Sequence[Seen]) -> None:
    """One line per container."""
    rows = (
        (s.container, len(s.pids), s.cpus, s.mems, s.cpu_max, s.pool_max, s.throttled, f"{s.usage:.2f}")
        for s in seen
    )
    headings = ("CONTAINER", "PROCESSES", "CPUS", "MEMS", "CPU.MAX", "POOL'S CPU.MAX", "THROTTLED", "USED")
    story.say(table(headings, rows))


def check_kernel(story: Story, seen: Mapping[str, Seen]) -> None:
    """The claims about isolation and limits."""
    main, infra = seen["main-app"], seen["infrastructure-sidecar"]
    sidecars = [seen["metrics-sidecar"], seen["logging-sidecar"]]
    workers = [seen["worker-1"], seen["worker-2"]]
    machine = discover(HostSysfs(Path("/")))
    nodes = list(machine.node_cpus.values())
    for one in (main, infra):
        alone = all(one.cpus.isdisjoint(other.cpus) for other in seen.values() if other is not one)
        story.claim(f"{one.container} has 2 CPUs of one NUMA node that nobody else may use: {one.cpus}",
                    holds=alone and len(one.cpus) == 2 and any(one.cpus <= n for n in nodes))  # fmt: skip
        story.claim(f"{one.container} has no quota, is never throttled and uses {one.usage:.2f} CPUs",
                    holds=one.cpu_max.startswith("max") and one.throttled == 0 and one.usage >= 2 / JITTER)  # fmt: skip
    story.claim(f"both sidecars share the other 2 CPUs of the pod: {sidecars[0].cpus}",
                holds=sidecars[0].cpus == sidecars[1].cpus and len(sidecars[0].cpus) == 2)  # fmt: skip
    if list(map(str, nodes)) == ["0-7", "8-15"] and machine.threads_per_core == 2:
        story.claim("exactly as the kubelet would on this machine: main-app 2-3, the sidecars 4-5",
                    holds=(str(main.cpus), str(sidecars[0].cpus)) == ("2-3", "4-5"))  # fmt: skip
    nobodys = machine.online - main.cpus - infra.cpus - sidecars[0].cpus
    story.claim(f"the workers run on everything that is nobody's: {nobodys}",
                holds=all(worker.cpus == nobodys for worker in workers))  # fmt: skip
    for group, name in ((sidecars, "sidecars"), (workers, "workers")):
        used = sum(one.usage for one in group)
        story.claim(f"the {name} together use {used:.2f} CPUs, no more than the 2 left of their pod's budget",
                    holds=used <= 2 * JITTER)  # fmt: skip


def survive(story: Story, node: Node, containers: Sequence[Mapping[str, Any]], seen: Sequence[Seen]) -> None:
    """A crash of the daemon is nothing to its pods."""
    node.end(signal.SIGKILL)
    story.say("daemon killed; its pods' processes:")
    alive = all(Path(f"/proc/{pid}").exists() for one in seen for pid in one.pids)
    story.claim("are all still running", holds=alive)
    node.start("container")
    after = containers_of(node)
    held = [[{key: one[key] for key in HELD} for one in both] for both in (containers, after)]
    story.claim("the restarted daemon holds the same allocations", holds=held[0] == held[1])
    now = {
        c["name"]: tuple(map(int, (Path(c["cgroup"]) / "cgroup.procs").read_text().split())) for c in after
    }
    story.claim(
        "the same processes are in the same cgroups", holds=all(now[s.container] == s.pids for s in seen)
    )
    same = all(CpuSet.parse(_status(pid, "Cpus_allowed_list")) == s.cpus for s in seen for pid in s.pids)
    story.claim("on the same CPUs", holds=same)
    main = next(one for one in look(after) if one.container == "main-app")
    story.claim(f"and still at full speed: main-app uses {main.usage:.2f} CPUs, throttled {main.throttled} times",
                holds=main.usage >= 2 / JITTER and main.throttled == 0)  # fmt: skip


def show_books(story: Story, node: Node) -> None:
    """What Prometheus scrapes and what is on disk."""
    scrapes = [*node.scrapes, scrape()]
    rows = [
        (name, *(f"{one[name]:.0f}" for one in scrapes))
        for name in sorted(scrapes[0])
        if any(one[name] for one in scrapes)
    ]
    story.say(f"{len(scrapes[0])} counters are served; those that ever moved:")
    story.say(table(("COUNTER", "1ST DAEMON", "2ND", "3RD, SINCE THE CRASH"), rows))
    assigned = 'resource_manager_container_assignments{{assignment_type="{}",resource_name="cpu"}}'
    found = [one[assigned.format(kind)] for one, kind in
             zip(scrapes, ("pod_shared", "node_exclusive", "node_exclusive"), strict=True)]  # fmt: skip
    story.claim("the first placed 2 containers in a pod's shared pool, the second 1 alone, the third none anew",
                holds=found == [2, 1, 0])  # fmt: skip
    for name in ("cpu_manager_state", "memory_manager_state"):
        text = (node.work / "state" / name).read_text()
        story.say(f"\n{name}:\n{text}")
        held = json.loads(json.loads(text)["data"])["entries"]
        story.claim(f"{name} names the pods' containers", holds="main-app" in json.dumps(held))


def scrape() -> dict[str, float]:
    """The daemon's resource_manager_* counters."""
    with urllib.request.urlopen(f"http://{METRICS}/metrics", timeout=10) as page:
        lines = page.read().decode().splitlines()
    found = (line.rsplit(" ", 1) for line in lines if line.startswith("resource_manager_"))
    return {name: float(value) for name, value in found}


def check_empty(story: Story, node: Node) -> None:
    """Everything is back where it was."""
    cpus = node.ask("cpus")["cpus"]
    story.claim("no pod is left", holds=node.ask("pods")["pods"] == [])
    story.claim(f"all {len(cpus)} CPUs are in the shared pool again",
                holds=all(cpu["owner"] == "node shared pool" for cpu in cpus))  # fmt: skip
    left = [str(p) for p in CGROUP_ROOT.rglob("pod*") if p.is_dir()]
    story.claim("no pod has a cgroup left", holds=not left)
    node.end(signal.SIGTERM)


def main() -> int:
    """Tell the story and clean up."""
    story = Story()
    work = Path(tempfile.mkdtemp(prefix="numalet-demo-"))
    node = Node(story, work)
    try:
        tell(story, node)
    finally:
        clean_up(node)
    story.claim("nothing is left of the demo's cgroup", holds=not CGROUP_ROOT.exists())
    if story.broken:
        log = (work / "daemon.log").read_text()
        story.say(f"\n{len(story.broken)} claims did not hold. The daemon's log:\n{log}")
        return 1
    shutil.rmtree(work)
    story.say(f"\nAll as told, in {time.monotonic() - story.began:.0f} s.")
    return 0


def clean_up(node: Node) -> None:
    """Leave the host as it was, whatever happened."""
    if node.daemon and node.daemon.poll() is None:
        node.daemon.kill()
        node.daemon.wait()
    if not CGROUP_ROOT.exists():
        return
    (CGROUP_ROOT / "cgroup.kill").write_text("1")
    for _ in range(50):
        try:
            for directory in sorted((p for p in CGROUP_ROOT.rglob("*") if p.is_dir()), reverse=True):
                directory.rmdir()
            CGROUP_ROOT.rmdir()
        except OSError:
            time.sleep(0.1)
        else:
            return


if __name__ == "__main__":
    sys.exit(main())
