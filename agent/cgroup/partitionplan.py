"""Which cgroups are cpuset partitions: the kernel keeps every other cgroup of the machine off their CPUs.

Each container with a slice is one, and so is a pod's shared pool where its CPUs are the pod's alone. They
are *remote* partitions: what is above them hands ``cpuset.cpus.exclusive`` down and is none itself (Linux
6.7 and newer, Documentation/admin-guide/cgroup-v2.rst). No two cgroups of one parent may have a CPU in
common if one of them is a partition. Init containers run on CPUs that later containers have, so where
there are such the whole pod is one partition, and where it cannot be, because a part of it runs in the node
shared pool, there is none. A bound container runs elsewhere, and a partition here would keep it off, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations

from agent.cgroup import layout
from agent.cgroup.facts import Facts
from agent.cgroup.layout import CgroupDir
from agent.cgroup.tree import (
    CPUS,
    EXCLUSIVE,
    PARTITION,
    Setting,
    Wanted,
    cpus_in,
)
from agent.domain.idset import NO_CPUS, CpuSet, union
from agent.domain.pod import CpuIsolation, Pod
from agent.domain.qos import qos_class


@dataclass(frozen=True, slots=True)
class _Bearing:
    """A cgroup of a pod that processes run on; ``own``: nothing outside of its pod's cgroup has any of its CPUs."""

    directory: CgroupDir
    cpus: CpuSet
    kind: CpuIsolation
    own: bool


def with_partitions(facts: Facts, pod: Pod, part: Wanted) -> Wanted:
    """The part of one pod with the partitions in it, if there are to be any."""
    chosen = _partitions(facts, pod, part) if facts.cgroup.partitions else {}
    if not chosen:
        return part
    dirs = dict(part.dirs)
    group = layout.pod_dir(pod.uid, qos_class(pod))
    above = {EXCLUSIVE: Setting(str(union(one.cpus for one in chosen.values())))}
    dirs[group] = replace(dirs[group], settings={**dirs[group].settings, **above})
    for directory, one in chosen.items():
        own = {EXCLUSIVE: Setting(str(one.cpus)), PARTITION: Setting(one.kind.value)}
        dirs[directory] = replace(dirs[directory], settings={**dirs[directory].settings, **own})
    return replace(part, dirs=dirs)


def exclusive_of(part: Wanted) -> CpuSet:
    """The CPUs of all partitions in it."""
    return union(
        cpus_in(one.settings[EXCLUSIVE].text) for one in part.dirs.values() if PARTITION in one.settings
    )


def exposed_of(facts: Facts, pod: Pod, part: Wanted) -> CpuSet:
    """The CPUs that the pod's processes have for themselves among pods, and share with the host after all."""
    if not facts.cgroup.partitions:
        return NO_CPUS
    group = layout.pod_dir(pod.uid, qos_class(pod))
    return union(one.cpus for one in _bearing(facts, pod, group)) - exclusive_of(part)


def _partitions(facts: Facts, pod: Pod, part: Wanted) -> Mapping[CgroupDir, _Bearing]:
    group = layout.pod_dir(pod.uid, qos_class(pod))
    bearing = tuple(_bearing(facts, pod, group))
    if all(one.cpus.isdisjoint(other.cpus) for one, other in combinations(bearing, 2)):
        return {one.directory: one for one in bearing if one.own}
    if pod.ephemeral or not all(one.own for one in bearing):
        return {}
    cpus = cpus_in(part.dirs[group].settings[CPUS].text)
    return {group: _Bearing(group, cpus, pod.cpu_isolation, own=True)}


def _bearing(facts: Facts, pod: Pod, group: CgroupDir) -> Iterator[_Bearing]:
    """The containers that stand apart and the pool, ephemeral ones left out: they share with the node."""
    pooled = []
    for container in pod.containers:
        if not facts.stands_apart(pod, container):
            pooled.append(container)
            continue
        directory = layout.container_dir(group, container.name)
        has_own = facts.has_own_cpus(pod, container)
        cpus = _cpus(facts, pod, container.name, own=has_own)
        yield _Bearing(directory, cpus, pod.cpu_isolation, has_own and container.name not in pod.bindings)
    if pooled:
        has_own = all(facts.has_own_cpus(pod, container) for container in pooled)
        cpus = union(_cpus(facts, pod, container.name, own=has_own) for container in pooled)
        bound = any(container.name in pod.bindings for container in pooled)
        yield _Bearing(layout.pool_dir(group), cpus, CpuIsolation.ROOT, has_own and not bound)


def _cpus(facts: Facts, pod: Pod, name: str, *, own: bool) -> CpuSet:
    """Of a cgroup that shares with the node nothing is asked: its CPUs are no other pod's, nor this one's."""
    entry = facts.state.cpu.of(pod.uid, name) if own else None
    return NO_CPUS if entry is None else entry & facts.topology.online
