"""Containers that are units or cgroups of somebody else's: pods that say so, and what became of them."""

from __future__ import annotations

from typing import Any

from agent.cgroup.layout import CgroupDir
from agent.config.model import HostIsolation
from agent.containermanager import ContainerManager, Verdict, VerdictKind
from agent.containermanager.hostisolation import ConfinedHost
from agent.containermanager.hostslices import HostSlices
from agent.containermanager.hoststate import Originals
from agent.domain.idset import CpuSet
from agent.domain.lifecycle import ContainerState
from agent.domain.pod import Pod, PodUid
from agent.systemdbus.properties import Properties
from tests.containermanager.node import Node, parsed

DB = "db.service"
SOURCE = "file:test.yaml"


def bound(document: dict[str, Any], **targets: str) -> Pod:
    """``main="unit db.service"``: that container is that."""
    annotations = {}
    for container, target in targets.items():
        kind, _, name = target.partition(" ")
        annotations[f"numalet/{kind}.{container}"] = name
    document["metadata"]["annotations"] = annotations
    return parsed(document)


def admit(owner: ContainerManager, wanted: Pod, source: str = SOURCE) -> Verdict:
    verdict = owner.admit(wanted, source)
    assert verdict.kind is VerdictKind.ADMITTED, verdict
    return verdict


def refused(owner: ContainerManager, wanted: Pod, source: str = SOURCE) -> Verdict:
    verdict = owner.admit(wanted, source)
    assert verdict.kind is VerdictKind.REJECTED
    assert owner.snapshot().failures == (), "the node is fit all the same"
    return verdict


def slice_of(owner: ContainerManager, uid: str, container: str = "main") -> CpuSet:
    return owner.snapshot().cpus(PodUid(uid), container)


def state_of(owner: ContainerManager, uid: str, container: str = "main") -> ContainerState:
    owner.containers.changed(owner.containers.bound())
    return owner.snapshot().lives[PodUid(uid)][container].state


def set_there(node: Node, unit: str = DB) -> Properties:
    names = (
        "AllowedCPUs",
        "AllowedMemoryNodes",
        "CPUQuotaPerSecUSec",
        "CPUQuotaPeriodUSec",
        "CPUWeight",
        "MemoryMax",
    )
    shown = node.outside.properties(unit)
    return {name: shown[name] for name in names}


def confined(node: Node) -> Node:
    """With a host whose slices are kept off exclusive CPUs, in the same systemd and kernel."""

    def top_level() -> dict[str, CpuSet]:
        tops = [name for name in ("system.slice", "db.slice") if node.outside.cgroups.exists(CgroupDir(name))]
        return {
            name: CpuSet.parse(node.outside.cgroups.read(CgroupDir(name), "cpuset.cpus")) for name in tops
        }

    slices = HostSlices(node.outside, top_level, Originals(node.store, node.boot))
    node.host = ConfinedHost(HostIsolation.SLICES, slices, None)
    return node
