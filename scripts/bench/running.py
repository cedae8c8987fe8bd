"""A daemon in a process of its own, and what that process uses.

Cgroups are in memory, unless ``NUMALET_BENCH_CGROUP`` names a directory of a cgroup v2 hierarchy: then it is
`numalet run` itself, below that directory.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agent.api.client import ControlClient

CGROUP: Final = os.environ.get("NUMALET_BENCH_CGROUP", "")
EXCLUSIVE_PODS: Final = 2 if CGROUP else 250
"""A real machine has only so many CPUs."""
ROOT: Final = Path(__file__).parents[2]
ENVIRON: Final = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | {
    "PYTHONPYCACHEPREFIX": str(ROOT / "build" / "bytecode")
}
"""Of processes that start as installed ones do: with their bytecode."""
_PATIENCE_SECONDS: Final = 300.0
_TMPFS = Path("/dev/shm")  # noqa: S108 - a directory of our own in it


@dataclass(slots=True)
class Daemon:
    """`numalet run`, or the same with cgroups in memory; its files are in ``work``."""

    work: Path
    process: subprocess.Popen[bytes] | None = None
    cpu_ms: float = 0.0
    """From its start to READY."""

    @property
    def client(self) -> ControlClient:
        """A client of its control socket."""
        return ControlClient(self.work / "control.sock")

    @property
    def lister(self) -> str:
        """The target of its PodResources socket."""
        return f"unix:{self.work}/lister.sock"

    @property
    def metrics(self) -> str:
        """The URL that Prometheus scrapes."""
        return f"http://127.0.0.1:{(self.work / 'port').read_text()}/metrics"

    @property
    def pid(self) -> int:
        """Of the process that runs."""
        assert self.process is not None  # noqa: S101 - it was started
        return self.process.pid

    def start(self) -> None:
        """Return when it says READY."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        (self.work / "port").write_text(str(port))
        (self.work / "manifests").mkdir(exist_ok=True)
        config = {
            "cgroupRoot": f"{CGROUP}/numalet-bench" if CGROUP else "/none",
            "stateDir": str(self.work / "state"),
            "staticPodPath": str(self.work / "manifests"),
            "controlSocket": str(self.work / "control.sock"),
            "podResourcesSocket": str(self.work / "lister.sock"),
            "metricsBindAddress": f"127.0.0.1:{port}",
        }
        file = self.work / "config.yaml"
        file.write_text(json.dumps(config))
        command = ["-m", "agent", "run", "--config"] if CGROUP else ["-m", "scripts.bench.kernelless"]
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear, (self.work / "log").open("ab") as log:
            ear.bind(f"\0{self.work}")
            ear.settimeout(_PATIENCE_SECONDS)
            environ = ENVIRON | {"NOTIFY_SOCKET": f"@{self.work}"}
            self.process = subprocess.Popen(
                [sys.executable, *command, str(file)], env=environ, stderr=log, cwd=ROOT
            )
            while b"READY=1" not in ear.recv(4096):
                pass
            self.cpu_ms = self.used_ms()

    def used_ms(self) -> float:
        """CPU time of all its threads so far."""
        return time.clock_gettime_ns(~self.pid << 3 | 2) / 1e6  # clock_getcpuclockid(3)

    def stop(self) -> None:
        """End it; pods stay. Raises ValueError, with the end of its log, where it did not end well."""
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            status = self.process.wait()
            self.process = None
            if status:
                raise ValueError((self.work / "log").read_text(encoding="utf-8")[-2000:])

    def fill(self, pods: int) -> None:
        """Admit that many pods, as many of them exclusive as the machine can take."""
        for number in range(pods):
            self.admit(f"standing-{number}", "1" if number < EXCLUSIVE_PODS else "")

    def admit(self, name: str, cpus: str = "1") -> None:
        """Hand in a pod; ``cpus`` empty: one on the node shared pool."""
        (result,) = self.client.call("POST", "/v1/pods", manifest(name, cpus))["results"]
        if result["verdict"] != "admitted":
            raise ValueError(result)

    def remove(self, name: str) -> None:
        """Delete a pod."""
        self.client.call("DELETE", f"/v1/pods/bench/{name}?grace=0")

    def rss_mb(self) -> float:
        """Resident memory, shared libraries included."""
        return self._status(self.pid)["VmRSS"] / 1024

    def threads(self) -> int:
        """How many there are."""
        return self._status(self.pid)["Threads"]

    def open_files(self) -> int:
        """How many there are."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))  # noqa: PTH208 - Path would do the same and more

    def wake_ups(self) -> int:
        """How often any thread began to run after it had waited."""
        tasks = os.listdir(f"/proc/{self.pid}/task")  # noqa: PTH208
        return sum(self._status(int(task))["voluntary_ctxt_switches"] for task in tasks)

    @staticmethod
    def _status(task: int) -> dict[str, int]:
        lines = Path(f"/proc/{task}/status").read_text(encoding="utf-8").splitlines()
        words = (line.replace(":", "").split() for line in lines)
        return {found[0]: int(found[1]) for found in words if len(found) > 1 and found[1].isdigit()}


def manifest(name: str, cpus: str) -> bytes:
    """A pod with one container, as a manifest."""
    stated = {"cpu": cpus, "memory": "16Mi"}
    document: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "bench", "uid": f"uid-{name}"},
        "spec": {
            "containers": [
                {"name": "main", "resources": {"requests": stated, "limits": stated} if cpus else {}}
            ]
        },
    }
    return json.dumps(document).encode()


@contextmanager
def daemon(pods: int) -> Iterator[Daemon]:
    """One that was started, with ``pods`` pods."""
    with tempfile.TemporaryDirectory(dir=_TMPFS) as work:
        found = Daemon(Path(work))
        try:
            found.start()
            found.fill(pods)
            yield found
        finally:
            found.stop()
            _remove_cgroups()


def _remove_cgroups() -> None:
    root = Path(CGROUP, "numalet-bench")
    if CGROUP and root.exists():
        for directory in sorted((path for path in root.rglob("*") if path.is_dir()), reverse=True):
            directory.rmdir()
        root.rmdir()
