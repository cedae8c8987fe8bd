"""A daemon on the real kernel, in a cgroup root of its own, driven over its control socket."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from agent.api.client import ControlClient
from agent.cgroup.layout import CgroupDir, Kind, kind_of
from agent.cgroup.naming import CgroupNames, names_by
from agent.checkpoint.podrecord import decode_record, encode_record
from agent.domain.idset import CpuSet
from tests.vm import zygote
from tests.vm.zygote import Forked

Json = dict[str, Any]

MOUNT = Path("/sys/fs/cgroup")
PATIENCE = 180.0
"""Seconds; emulated CPUs are slow, and the lane itself keeps the host busy with two machines at once."""
NUMALET = (sys.executable, "-m", "agent")
DRIVER = os.environ.get("NUMALET_CGROUP_DRIVER") or "cgroupfs"
"""Of each node that says nothing of its own: ``NUMALET_CGROUP_DRIVER=systemd scripts/vm-lane``."""
DEFAULT_ROOT = MOUNT / ("numalet.slice" if DRIVER == "systemd" else "numalet")
"""Where the pods of a daemon are that is told no other place."""
_ROOTS = {"cgroupfs": "numalet-test-{}", "systemd": "numaletnode{}.slice"}
_NUMBERS = count()


class Node:
    """One `numalet run`: its directories are in ``work``; keyword arguments are configuration fields."""

    def __init__(self, work: Path, **config: object) -> None:
        self.work = work
        self.root = MOUNT / _ROOTS[DRIVER].format(next(_NUMBERS))
        self.state = work / "state"
        self.manifests = work / "manifests"
        self.manifests.mkdir()
        self.log = work / "daemon.log"
        self.config = {
            "cgroupDriver": "cgroupfs" if "cgroupRoot" in config else DRIVER,
            "cgroupRoot": str(self.root),
            "stateDir": str(self.state),
            "staticPodPath": str(self.manifests),
            "controlSocket": str(work / "control.sock"),
            "metricsBindAddress": f"127.0.0.1:{free_port()}",
            **config,
        }
        self.client = ControlClient(Path(str(self.config["controlSocket"])))
        self.daemon: subprocess.Popen[bytes] | Forked | None = None
        self.processes: list[subprocess.Popen[bytes]] = []

    def config_file(self, **changes: object) -> Path:
        """The configuration, with changes, as a file (JSON is YAML)."""
        file = self.work / "config.yaml"
        file.write_text(json.dumps(self.config | changes))
        return file

    def start(self, patience: float = PATIENCE) -> None:
        """Start the daemon, from where it has imported itself; return when it says that it is ready."""
        self._start(Forked, patience)

    def start_anew(self) -> None:
        """Start the daemon as one does, where the start is the subject."""
        self._start(_program, PATIENCE)

    def _start(self, launch: Callable[..., subprocess.Popen[bytes] | Forked], patience: float) -> None:
        address = self.work / "notify"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear, self.log.open("ab") as log:
            ear.bind(str(address))
            ear.settimeout(0.5)
            command = ("run", "--config", str(self.config_file()))
            environ = os.environ | {"NOTIFY_SOCKET": str(address)}
            self.daemon = launch(command, environ, stderr=log.fileno())
            try:
                wait_until(lambda: self._says_ready(ear), "the daemon is ready", patience)
            finally:
                address.unlink()

    def _says_ready(self, ear: socket.socket) -> bool:
        assert self.daemon is not None
        assert self.daemon.poll() is None, self.log.read_text()
        with suppress(TimeoutError):
            return b"READY=1" in ear.recv(4096)
        return False

    def end(self, number: signal.Signals) -> int:
        """Send the daemon a signal and return its exit status."""
        assert self.daemon is not None
        self.daemon.send_signal(number)
        return self.daemon.wait(PATIENCE)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let the daemon do nothing in the block."""
        assert self.daemon is not None
        self.daemon.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.daemon.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Leave nothing behind: daemon, processes, cgroups."""
        for process in self.processes:
            process.kill()
            process.wait()
        if self.daemon is not None:
            self.daemon.kill()
            self.daemon.wait()
        remove_cgroup(self.root)
        if self.log.exists():
            sys.stderr.write(self.log.read_text())  # shown where a test failed

    @property
    def names(self) -> CgroupNames:
        """How the cgroups are called."""
        return names_by(str(self.config["cgroupDriver"]), str(self.root))

    def at(self, directory: str) -> Path:
        """A cgroup of the layout, as ``poduid-web/main``, whatever the driver calls it."""
        return self.root / self.names.path(CgroupDir(directory))

    # --- what a user does -------------------------------------------------------------------

    def apply(self, *pods: Json) -> list[Json]:
        """Hand pods in; the verdicts."""
        results: list[Json] = self.client.call("POST", "/v1/pods", manifest(*pods).encode())["results"]
        return results

    def admit(self, pod: Json) -> Json:
        """Hand a pod in that must be admitted; what it holds."""
        (verdict,) = self.apply(pod)
        assert verdict["verdict"] == "admitted", verdict
        return self.pod(pod["metadata"]["name"])

    def delete(self, name: str, grace: float = 0) -> None:
        """Delete a pod and wait for its end."""
        self.client.call("DELETE", f"/v1/pods/default/{name}?grace={grace}")

    def pods(self) -> dict[str, Json]:
        """All known pods by name."""
        return {pod["name"]: pod for pod in self.client.call("GET", "/v1/pods")["pods"]}

    def state_of(self, name: str) -> str:
        """A pod's state; empty while none of the name is known, as between two of them."""
        return str(self.pods().get(name, {}).get("state", ""))

    def pod(self, name: str) -> Json:
        """One pod with its trace."""
        return self.client.call("GET", f"/v1/pods/default/{name}")

    def status(self) -> Json:
        """`numalet get`'s status."""
        return self.client.call("GET", "/v1/status")

    def cgroup(self, pod: str, container: str) -> Path:
        """The directory of a container's cgroup."""
        (found,) = (c for c in self.pods()[pod]["containers"] if c["name"] == container)
        return Path(found["cgroup"])

    def spawn(self, pod: str, container: str, *command: str) -> subprocess.Popen[bytes]:
        """Run a command in a container, with nothing of numalet's in between; returns when it is in.

        The process tells: the kernel lists it in the cgroup a moment before its CPUs are set.
        """
        cgroup = self.cgroup(pod, container)
        join = f'echo $$ >{cgroup}/cgroup.procs && echo joined && exec "$@" >&2'
        words = ("sh", "-c", join, "sh", *(command or ("sleep", "600")))
        process = subprocess.Popen(words, stdout=subprocess.PIPE)
        self.processes.append(process)
        assert process.stdout is not None
        with process.stdout as told:
            assert told.read(1), f"{command} is not in {cgroup}"
        return process

    def outside(self, *command: str) -> subprocess.Popen[bytes]:
        """Run a command in no container."""
        process = subprocess.Popen(command)
        self.processes.append(process)
        return process

    def page(self, path: str) -> tuple[int, str]:
        """A page of the TCP face: status and text."""
        try:
            with urllib.request.urlopen(f"http://{self.config['metricsBindAddress']}{path}") as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def cgroups(self) -> list[str]:
        """All pods' cgroups there are, as the layout calls them."""
        paths = (str(path.relative_to(self.root)) for path in self.root.rglob("*") if path.is_dir())
        return sorted(found for found in map(self.names.directory, paths) if kind_of(found) is Kind.POD)

    def files(self) -> Mapping[str, bytes]:
        """What is stored of allocations: nothing of what containers do meanwhile, nor what is just being written."""
        passing = (".tmp", "lock")
        files = (p for p in self.state.rglob("*") if not p.name.endswith(passing) and p.is_file())
        return {str(path.relative_to(self.state)): _stored(path) for path in files}


def _program(words: tuple[str, ...], environ: dict[str, str], *, stderr: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*NUMALET, *words], env=environ, stderr=stderr)


def numalet(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command, as a fork of the program that has imported itself."""
    return zygote.run(*map(str, words), timeout=PATIENCE)


def _stored(path: Path) -> bytes:
    if path.parent.name != "pods":
        return path.read_bytes()
    return encode_record(replace(decode_record(path.read_bytes()), lives={}, minor=0))


def held(pod: Json) -> Json:
    """What a pod was given: not what its containers do meanwhile."""
    containers = [
        {key: value for key, value in container.items() if key not in ("state", "since", "restarts")}
        for container in pod["containers"]
    ]
    return {**pod, "containers": containers, "ready": ""}


@contextmanager
def running(work: Path, **config: object) -> Iterator[Node]:
    """A node whose daemon runs, and that leaves nothing behind."""
    node = Node(work, **config)
    try:
        node.start()
        yield node
    finally:
        node.close()


# --- manifests ------------------------------------------------------------------------------


def manifest(*pods: Json) -> str:
    """Pods as a manifest file (JSON is YAML)."""
    return "\n---\n".join(map(json.dumps, pods))


def amounts(cpu: str, memory: str, **more: str) -> Json:
    """Requests equal to limits."""
    stated = {"cpu": cpu, "memory": memory, **{name.replace("_", "-"): text for name, text in more.items()}}
    return {"requests": stated, "limits": stated}


def container(name: str, resources: Json | None = None, **fields: object) -> Json:
    """A container that states no more than it is told."""
    return {"name": name, "image": "none", "resources": resources or {}, **fields}


def pod(name: str, *containers: Json, **spec: object) -> Json:
    """A pod."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {"containers": list(containers), **spec},
    }


def mixed(name: str, slice_cpus: str = "2") -> Json:
    """A budget of 4 CPUs, a slice of them, and a container in the pod shared pool."""
    main = container("main", amounts(slice_cpus, "256Mi"))
    return pod(name, main, container("side"), resources=amounts("4", "512Mi"))


def exclusive(name: str, cpus: str = "2") -> Json:
    """One container with CPUs of its own."""
    return pod(name, container("main", amounts(cpus, "64Mi")))


def best_effort(name: str) -> Json:
    """One container that states nothing."""
    return pod(name, container("main"))


# --- what the kernel says -------------------------------------------------------------------


def allowed(pid: int) -> CpuSet:
    """The CPUs a process may run on."""
    return CpuSet.parse(process_status(pid)["Cpus_allowed_list"])


def process_status(pid: int) -> dict[str, str]:
    """/proc/PID/status."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {key: value.strip() for key, value in (line.split(":", 1) for line in lines)}


def is_command(pid: int, name: str) -> bool:
    """Whether a process has become a command, and has joined the cgroup that it was to join before."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return text_of(Path(f"/proc/{pid}/comm")) == name
    return False


def is_alive(pid: int) -> bool:
    """Whether the process runs: a zombie does not."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return not process_status(pid)["State"].startswith("Z")
    return False


def pids_in(cgroup: Path) -> list[int]:
    """The processes of a cgroup."""
    return sorted(map(int, (cgroup / "cgroup.procs").read_text().split()))


def text_of(file: Path) -> str:
    """A kernel file without its newline."""
    return file.read_text().strip()


def wait_until(
    condition: Callable[[], bool], what: str, seconds: float = PATIENCE, *, every: float = 0.3
) -> None:
    """Wait until something is so; fail, saying what was not, after ``seconds``.

    It is asked ``every`` so many seconds, and more often at first: on emulated CPUs each question keeps from
    working those who are waited for.
    """
    deadline, pause = time.monotonic() + seconds, min(every, 0.02)
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(pause)
        pause = min(every, 1.5 * pause)


def remove_cgroup(root: Path) -> None:
    """Kill everything in a cgroup and below it, and remove it; with a slice go the units that were in it."""
    if root.exists():
        (root / "cgroup.kill").write_text("1")
        wait_until(lambda: "populated 0" in (root / "cgroup.events").read_text(), f"{root} is empty")
        for directory in sorted((path for path in root.rglob("*") if path.is_dir()), reverse=True):
            directory.rmdir()
        root.rmdir()
    if root.suffix == ".slice":
        subprocess.run(["systemctl", "stop", root.name], check=True)


def free_port() -> int:
    """A TCP port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
