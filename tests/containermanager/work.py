"""Processes in the containers of one pod."""

from __future__ import annotations

from typing import Any

from agent.cgroup.layout import CgroupDir
from agent.containermanager import ContainerManager, VerdictKind
from agent.domain.lifecycle import ContainerState
from agent.domain.pod import PodUid
from tests.containermanager.node import Node, limits, manifest, parsed

Json = dict[str, Any]
WAITING, RUNNING, EXITED = ContainerState.WAITING, ContainerState.RUNNING, ContainerState.EXITED
UID = PodUid("uid-a")


def with_init(name: str = "a", policy: str = "Never", memory: str = "2Gi") -> Json:
    """Init container setup with more CPUs and memory than container main, which comes after it."""
    document = manifest(name)
    document["spec"] |= {
        "restartPolicy": policy,
        "initContainers": [{"name": "setup", "resources": limits("3", memory)}],
    }
    return document


def finite(name: str = "a", policy: str = "Never", **spec: object) -> Json:
    document = manifest(name)
    document["spec"] |= {"restartPolicy": policy, **spec}
    return document


class Work:
    """Processes in the containers of one pod."""

    def __init__(self, node: Node, owner: ContainerManager, uid: PodUid = UID) -> None:
        self.node, self.owner, self.uid = node, owner, uid

    def directory(self, name: str) -> CgroupDir:
        return self.owner.snapshot().pods[self.uid].directories[name]

    def starts(self, name: str) -> int:
        pid = self.node.cgroups.spawn()
        self.node.cgroups.add_process(self.directory(name), pid)
        self.owner.containers.changed([self.directory(name)])
        return pid

    def exits(self, name: str, pid: int) -> None:
        self.node.cgroups.exit(pid)
        self.owner.containers.changed([self.directory(name)])

    def runs(self, name: str) -> None:
        """Something runs in it from its begin to its end."""
        self.exits(name, self.starts(name))

    def has_ended(self) -> bool:
        return self.owner.containers.changed([self.directory("main")]) == {self.uid: True}

    def states(self) -> dict[str, tuple[ContainerState, int]]:
        lives = self.owner.snapshot().lives[self.uid]
        return {name: (life.state, life.restarts) for name, life in lives.items()}


def admitted(node: Node, document: Json) -> Work:
    owner = node.owner()
    verdict = owner.admit(parsed(document), "api")
    assert verdict.kind is VerdictKind.ADMITTED, verdict
    return Work(node, owner, verdict.pod.uid)
