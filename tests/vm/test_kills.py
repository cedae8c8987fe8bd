"""`kill -9` of the daemon at random moments under load: nobody in a pod notices, nothing is lost or left over.

``NUMALET_KILLS`` and ``NUMALET_SEED`` in the environment say how often, and at which moments.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from agent.api.client import ControlError
from agent.cgroup.layout import group_of
from agent.domain.idset import CpuSet
from tests.vm.node import NUMALET, Json, Node, allowed, best_effort, exclusive, held, is_alive, mixed, running
from tests.vm.zygote import Forked

KILLS = int(os.environ.get("NUMALET_KILLS") or 8)
SEED = int(os.environ.get("NUMALET_SEED") or random.SystemRandom().randrange(1 << 32))
pytestmark = [pytest.mark.vm, pytest.mark.timeout(600 + 60 * KILLS)]

MOST_PODS = 4
LONG = 600.0
"""Seconds for a start: hundreds of them meet many a busy moment of the host."""
DELETIONS = 0.4
KILLED_IN_START = 0.25
BUSY = "while :; do i=0; while [ $i -lt 1000 ]; do i=$((i+1)); done; sleep 1; done"
"""Works a little, so that emulated CPUs are left for the daemon."""


@dataclass
class Load:
    """Admits and deletes pods until the daemon dies, and remembers what it was told.

    ``held`` are acknowledged pods, with what they were given if that is known; ``unsure`` is the pod whose
    request got no answer; ``busy`` are the processes in each pod by container.
    """

    node: Node
    choice: random.Random
    held: dict[str, Json | None] = field(default_factory=dict)
    busy: dict[str, dict[str, subprocess.Popen[bytes]]] = field(default_factory=dict)
    ended: list[subprocess.Popen[bytes]] = field(default_factory=list)
    unsure: str = ""
    number: int = 0
    deletions: int = 0
    wrong: str = ""

    def run(self) -> None:
        try:
            while True:
                self.step()
        except ControlError as error:
            if error.status:  # an answer, not the daemon's death
                self.wrong = str(error)
        except AssertionError as error:
            self.wrong = str(error)

    def step(self) -> None:
        if self.held and (len(self.held) >= MOST_PODS or self.choice.random() < DELETIONS):
            self.delete(self.choice.choice(sorted(self.held)))
        else:
            self.number += 1
            self.admit(self.choice.choice([exclusive, mixed, best_effort])(f"p{self.number}"))

    def admit(self, pod: Json) -> None:
        name = self.unsure = pod["metadata"]["name"]
        (verdict,) = self.node.apply(pod)
        self.unsure = ""
        if verdict["verdict"] == "admitted":
            self.held[name], self.busy[name] = None, {}
            self.held[name] = lasting(self.node.pods()[name])
            for container in pod["spec"]["containers"]:
                process = self.node.spawn(name, container["name"], "sh", "-c", BUSY)
                self.busy[name][container["name"]] = process

    def delete(self, name: str) -> None:
        self.unsure = name
        del self.held[name]
        processes = self.busy.pop(name).values()
        self.node.delete(name)
        self.unsure = ""
        self.ended += processes
        self.deletions += 1


def lasting(pod: Json) -> Json:
    """What must not change of a pod while others come and go."""
    shares = [{**c, "cpus": "shared"} if c["isolation"] == "host" else c for c in pod["containers"]]
    return held({**pod, "containers": shares})


def check(node: Node, load: Load) -> None:
    """The daemon that was started after a kill has everything, and nothing else is there."""
    assert load.wrong == ""
    pods = {name: pod for name, pod in node.pods().items() if pod["state"] == "Admitted"}
    assert load.held.keys() <= pods.keys() <= load.held.keys() | {load.unsure}
    for name, pod in pods.items():
        assert load.held.get(name) is None or load.held[name] == lasting(pod)
    slices = [CpuSet.parse(pod["cpus"] or "") or own_cpus(pod) for pod in pods.values()]
    assert sum(map(len, slices)) == len(CpuSet.parse(node.status()["cpus"]["exclusive"]))
    for name in load.held:
        cpus = {container["name"]: container["cpus"] for container in pods[name]["containers"]}
        for container, process in load.busy[name].items():
            assert process.poll() is None, f"{name}/{container} lost its process"
            assert str(allowed(process.pid)) == cpus[container]
    assert not any(is_alive(process.pid) for process in load.ended)
    assert node.cgroups() == sorted({pod_cgroup(node, pod) for pod in pods.values()})
    assert node.client.call("GET", "/v1/deviations")["deviations"] == []
    assert node.status()["problems"] == []
    assert node.page("/readyz") == (200, "ok\n")
    if load.unsure in pods:  # admitted unheard, or not deleted; its processes may be gone or not
        load.busy[load.unsure] = {}
    load.held = {name: lasting(pod) for name, pod in pods.items()}
    load.unsure = ""


def own_cpus(pod: Json) -> CpuSet:
    """The CPUs that single containers of a pod hold."""
    held = CpuSet()
    for container in pod["containers"]:
        if container["isolation"] == "container":
            held |= CpuSet.parse(container["cpus"])
    return held


def pod_cgroup(node: Node, pod: Json) -> str:
    inside = Path(pod["containers"][0]["cgroup"]).relative_to(node.root)
    return group_of(node.names.directory(str(inside)))


def say(text: str) -> None:
    """Tell of the progress, where pytest lets it through."""
    sys.stderr.write(f"{text}\n")


def kill_in_start(node: Node, choice: random.Random) -> None:
    """Start the daemon and kill it before long."""
    with node.log.open("ab") as log:
        daemon = Forked(("run", "--config", str(node.config_file())), dict(os.environ), stderr=log.fileno())
    time.sleep(choice.uniform(0, 2))
    daemon.kill()
    daemon.wait()


def test_random_kills_under_load_lose_nothing_and_leave_nothing(tmp_path: Path) -> None:
    choice = random.Random(SEED)  # noqa: S311 - a history that can be repeated
    say(f"NUMALET_SEED={SEED} NUMALET_KILLS={KILLS}")
    with running(tmp_path) as node:
        load = Load(node, choice)
        in_start = 0
        for kill in range(KILLS):
            worker = threading.Thread(target=load.run)
            worker.start()
            time.sleep(choice.uniform(0.2, 2))
            assert node.end(signal.SIGKILL) == -9
            worker.join()
            if choice.random() < KILLED_IN_START:
                in_start += 1
                kill_in_start(node, choice)
            node.start(LONG)
            check(node, load)
            say(f"kill {kill + 1}: {len(load.held)} pods, {load.number} asked for")
        done = subprocess.run(
            [*NUMALET, "verify", "--socket", str(node.client.path)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout) == (0, "the kernel has what was decided\n")
        say(f"{KILLS} kills, and {in_start} while starting; {load.number} asked, {load.deletions} deleted")
        for name in sorted(load.held):
            node.delete(name)
        assert (node.pods(), node.cgroups()) == ({}, [])
        assert node.status()["cpus"]["exclusive"] == ""
