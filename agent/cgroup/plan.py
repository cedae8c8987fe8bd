"""Which cgroups there should be, with which contents: a pure function of machine, state and pods.

A container stands apart, in a cgroup directly below its pod's, if it has exclusive CPUs or is an
ordinary init container (gone before the app containers share anything). The others live together in
``shared.pool``. Exclusive containers are never throttled, so the pod's own ``cpu.max`` is lifted as
soon as there is one (as the kubelet does); the pod's limit less the exclusive CPUs then bounds the
shared pool, and the pod as a whole keeps to ``.spec.resources`` (KEP-5526).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from agent.cgroup import layout, resourceconfig
from agent.cgroup.facts import Facts
from agent.cgroup.layout import BEST_EFFORT, BURSTABLE, ROOT, CgroupDir
from agent.cgroup.partitionplan import exclusive_of, with_partitions
from agent.cgroup.tree import (
    CPU_MAX,
    CPU_WEIGHT,
    CPUS,
    EXCLUSIVE,
    MEMORY_MAX,
    MEMORY_OOM_GROUP,
    MEMS,
    PIDS_MAX,
    EmptyCpuset,
    Room,
    Setting,
    Wanted,
    WantedDir,
    top_down,
)
from agent.cgroup.units import (
    MIN_SHARES,
    UNLIMITED,
    ByteLimit,
    Bytes,
    Micros,
    MilliCpu,
    MilliLimit,
    Shares,
    Unlimited,
    cpu_max_of,
    limit_text,
    linear_weight_of,
    shares_of,
    weight_of,
)
from agent.domain.idset import NO_CPUS, CpuSet, NodeMask, union
from agent.domain.pod import MEMORY, Container, ContainerKind, Pod
from agent.domain.qos import QosClass, qos_class
from agent.domain.topology import hugepages_resource

_Files = dict[str, Setting]


def plan(facts: Facts) -> Wanted:
    """The wanted tree. Cgroups that would have no CPU or NUMA node are held, with a problem each.

    Raises ValueError for a uid or container name that cannot name a directory.
    """
    burstable = sum(map(burstable_request, facts.pods.values()))
    parts = [plan_pod(facts, pod) for pod in facts.pods.values()]
    base = plan_base(facts, MilliCpu(burstable), union(map(exclusive_of, parts)))
    return joined((base, *parts))


def plan_base(facts: Facts, burstable: MilliCpu, exclusive: CpuSet = NO_CPUS) -> Wanted:
    """What is above the pods, and strangers.

    It depends on the pods only by the sum of `burstable_request` and the union of `exclusive_of`.
    """
    builder = _Builder(facts)
    handed_down = {EXCLUSIVE: Setting(str(exclusive))} if facts.cgroup.partitions else {}
    builder.add_inner(ROOT, {**builder.room(), **handed_down})
    builder.add_inner(BEST_EFFORT, {**builder.room(exclusive), CPU_WEIGHT: _weight(MIN_SHARES)})
    builder.add_inner(BURSTABLE, {**builder.room(exclusive), CPU_WEIGHT: _weight(shares_of(burstable))})
    return replace(builder.wanted(), shared=facts.shared_cpus & facts.topology.online)


def plan_pod(facts: Facts, pod: Pod) -> Wanted:
    """The part of one pod, which does not depend on the other pods. Raises ValueError as `plan` does."""
    builder = _Builder(facts)
    _add_pod(builder, pod)
    return with_partitions(facts, pod, builder.wanted())


def joined(parts: Iterable[Wanted]) -> Wanted:
    """One tree of parts that have nothing in common."""
    dirs: dict[CgroupDir, WantedDir] = {}
    held: set[CgroupDir] = set()
    problems: list[EmptyCpuset] = []
    shared = NO_CPUS
    for part in parts:
        dirs.update(part.dirs)
        held |= part.held
        problems += part.problems
        shared |= part.shared
    reasons = {problem.directory: problem for problem in problems}
    return Wanted(
        dirs={d: dirs[d] for d in top_down(dirs)},
        held=frozenset(held),
        problems=tuple(reasons[d] for d in top_down(reasons)),
        shared=shared,
    )


def burstable_request(pod: Pod) -> MilliCpu:
    """What the pod adds to the request of the burstable class: nothing if it is of another."""
    return resourceconfig.pod_cpu_request(pod) if qos_class(pod) is QosClass.BURSTABLE else MilliCpu(0)


class _Builder:
    """Collects cgroups; drops what the kernel does not offer and holds what has no CPU."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._dirs: dict[CgroupDir, WantedDir] = {}
        self._problems: dict[CgroupDir, str] = {}

    def add_inner(self, directory: CgroupDir, files: _Files) -> None:
        """Want a cgroup that passes the controllers on to its children."""
        self._add(directory, files, self.facts.kernel.used)

    def add_leaf(self, directory: CgroupDir, files: _Files) -> None:
        """Want a cgroup for processes."""
        self._add(directory, files, frozenset())

    def _add(self, directory: CgroupDir, files: _Files, subtree: frozenset[str]) -> None:
        for file in (CPUS, MEMS):
            if file in files and not files[file].text and not isinstance(files[file], Room):
                self._problems[directory] = f"{file} would be empty: none of its ids is online"
        self._dirs[directory] = WantedDir(
            settings={file: setting for file, setting in files.items() if file in self.facts.kernel.files},
            subtree=subtree,
        )

    def wanted(self) -> Wanted:
        """The finished tree."""
        if not self._problems:
            return Wanted(dirs={directory: self._dirs[directory] for directory in top_down(self._dirs)})
        held = {
            directory
            for directory in self._dirs
            if any(above in self._problems for above in (directory, *layout.ancestors(directory)))
        }
        return Wanted(
            dirs={d: self._dirs[d] for d in top_down(self._dirs.keys() - held)},
            held=frozenset(held),
            problems=tuple(EmptyCpuset(d, self._problems[d]) for d in top_down(self._problems)),
        )

    def cpuset(self, cpus: CpuSet) -> _Files:
        """``cpuset.cpus``: only online CPUs, so that it must equal the effective set."""
        return {CPUS: Setting(str(cpus & self.facts.topology.online))}

    def mems(self, nodes: NodeMask) -> _Files:
        """``cpuset.mems``: only nodes with memory; nothing on a machine that knows no nodes."""
        usable = self.facts.memory_nodes
        return {MEMS: Setting(str(nodes & usable))} if usable else {}

    def room(self, elsewhere: CpuSet = NO_CPUS) -> _Files:
        """The cpuset of a cgroup above pods, which must not keep anything from them; ``elsewhere`` are partitions."""
        online = self.facts.topology.online - elsewhere
        cpus = Room(str(online), least=str(online - self.facts.withheld), apart=str(elsewhere))
        return {CPUS: cpus, **self.room_for_memory()}

    def room_for_memory(self) -> _Files:
        """``cpuset.mems`` of a cgroup that others of ours are in."""
        room = self.facts.memory_room
        return {MEMS: room} if room.text else {}

    def cpu(self, limit: MilliLimit, request: Shares) -> _Files:
        """``cpu.max`` and ``cpu.weight``."""
        cgroup = self.facts.cgroup
        bandwidth = _bandwidth(limit if cgroup.cfs_quota else UNLIMITED, cgroup.cfs_period)
        return {CPU_MAX: bandwidth, CPU_WEIGHT: _weight(request)}

    def memory(self, limit: ByteLimit) -> _Files:
        """``memory.max``."""
        return {MEMORY_MAX: _limit(limit, self.facts.kernel.page_size)}

    def container(self, pod: Pod, container: Container) -> _Files:
        """The limits that are a container's own wherever it lives, CPU aside."""
        files = self.memory(resourceconfig.memory_limit(container))
        if not self.facts.cgroup.single_process_oom_kill:
            files[MEMORY_OOM_GROUP] = Setting("1")
        for file, size in self.facts.kernel.hugetlb_files:
            name = hugepages_resource(size >> 10)
            limit = resourceconfig.hugepages_limit(pod, container, name)
            files[file] = _limit(limit, size)
        return files


@lru_cache(maxsize=4096)
def _weight(shares: Shares) -> Setting:
    """``cpu.weight`` by runc's formula; a value by the kubelet's own, linear one is left alone."""
    return Setting(str(weight_of(shares)), (str(linear_weight_of(shares)),))


@lru_cache(maxsize=4096)
def _bandwidth(limit: MilliLimit, period: Micros) -> Setting:
    """``cpu.max``."""
    return Setting(str(cpu_max_of(limit, period)))


@lru_cache(maxsize=4096)
def _limit(limit: ByteLimit, unit: int) -> Setting:
    """``memory.max`` and its like, in whole ``unit`` bytes."""
    return Setting(limit_text(limit, unit))


def _add_pod(builder: _Builder, pod: Pod) -> None:
    facts = builder.facts
    directory = layout.pod_dir(pod.uid, qos_class(pod))
    pooled = tuple(c for c in pod.containers if not facts.stands_apart(pod, c))
    builder.add_inner(directory, _pod_files(builder, pod))
    for container in pod.containers:
        if facts.stands_apart(pod, container):
            own = layout.container_dir(directory, container.name)
            builder.add_leaf(own, _apart_files(builder, pod, container))
    for name in pod.ephemeral:
        builder.add_leaf(layout.container_dir(directory, name), _ephemeral_files(builder, pod, name))
    if pooled:
        pool = _pool_files(builder, pod, pooled)
        builder.add_inner(layout.pool_dir(directory), pool)
        for container in pooled:
            own = layout.pooled_dir(directory, container.name)
            builder.add_leaf(own, _pooled_files(builder, pod, container, pool))


def _pod_files(builder: _Builder, pod: Pod) -> _Files:
    facts = builder.facts
    cpus = union(facts.cpus_of(pod, container) for container in pod.containers)
    cpus |= facts.state.cpu.pod_entries.get(pod.uid, NO_CPUS)
    if pod.ephemeral:
        cpus |= facts.shared_cpus
    exclusive = any(facts.has_exclusive_cpus(pod, container) for container in pod.containers)
    limit = UNLIMITED if exclusive else resourceconfig.pod_cpu_limit(pod)
    files = {
        **builder.cpuset(cpus),
        **builder.room_for_memory(),
        **builder.cpu(limit, shares_of(resourceconfig.pod_cpu_request(pod))),
        **builder.memory(resourceconfig.pod_memory_limit(pod)),
    }
    for file, size in facts.kernel.hugetlb_files:
        amount = resourceconfig.pod_hugepages(pod, hugepages_resource(size >> 10))
        files[file] = _limit(amount, size)
    pids = facts.cgroup.pod_pids  # written where there is no limit, too: one of before is lifted
    files[PIDS_MAX] = Setting("max" if isinstance(pids, Unlimited) else str(pids))
    return files


def _apart_files(builder: _Builder, pod: Pod, container: Container) -> _Files:
    facts = builder.facts
    limit: MilliLimit = UNLIMITED
    if not facts.has_exclusive_cpus(pod, container):
        limit = _init_limit(facts, pod, container)
    return {
        **builder.cpuset(facts.cpus_of(pod, container)),
        **builder.mems(facts.nodes_of(pod, container)),
        **builder.cpu(limit, shares_of(resourceconfig.cpu_request(pod, container))),
        **builder.container(pod, container),
    }


def _init_limit(facts: Facts, pod: Pod, container: Container) -> MilliLimit:
    """A shared init container: its own limit, within what the sidecars before it leave of the pod's."""
    before = pod.containers[: pod.containers.index(container)]
    own = resourceconfig.cpu_limit(container)
    left = _less(resourceconfig.pod_cpu_limit(pod), _exclusive_milli(facts, pod, before))
    if isinstance(own, Unlimited):
        return left
    return own if isinstance(left, Unlimited) else min(own, left)


def _ephemeral_files(builder: _Builder, pod: Pod, name: str) -> _Files:
    return {
        **builder.cpuset(builder.facts.shared_cpus),
        **builder.mems(builder.facts.nodes_of_pool(pod)),
        **builder.cpu(UNLIMITED, MIN_SHARES),
        **builder.container(pod, Container(name=name)),
    }


def _pool_files(builder: _Builder, pod: Pod, pooled: tuple[Container, ...]) -> _Files:
    facts = builder.facts
    exclusive = _exclusive_milli(facts, pod, pod.containers)
    request = MilliCpu(max(0, resourceconfig.pod_cpu_request(pod) - exclusive))
    return {
        **builder.cpuset(union(facts.cpus_of(pod, container) for container in pooled)),
        **builder.mems(facts.nodes_of_pool(pod)),
        **builder.cpu(_less(resourceconfig.pod_cpu_limit(pod), exclusive), shares_of(request)),
        **builder.memory(_pool_memory(facts, pod)),
    }


def _pooled_files(builder: _Builder, pod: Pod, container: Container, pool: _Files) -> _Files:
    facts = builder.facts
    nodes = facts.nodes_of(pod, container)
    inherited = nodes == facts.nodes_of_pool(pod)
    request = shares_of(resourceconfig.cpu_request(pod, container))
    return {
        **{file: _as_room(pool[file]) for file in (CPUS, MEMS) if file in pool},
        **({} if inherited else builder.mems(nodes)),
        **builder.cpu(resourceconfig.cpu_limit(container), request),
        **builder.container(pod, container),
    }


def _as_room(setting: Setting) -> Room:
    return Room(setting.text, least=setting.text)


def _pool_memory(facts: Facts, pod: Pod) -> ByteLimit:
    """Pod scope: the pod's limit less the memory cut out of it for containers outside the pool."""
    limit = resourceconfig.pod_memory_limit(pod)
    if isinstance(limit, Unlimited) or pod.uid not in facts.state.memory.pod_entries:
        return UNLIMITED
    taken = sum(
        container.resources.limit(MEMORY).value
        for container in pod.containers
        if container.kind is not ContainerKind.INIT
        and facts.stands_apart(pod, container)
        and facts.has_exclusive_memory(pod, container)
    )
    return Bytes(limit - taken) if taken < limit else limit


def _exclusive_milli(facts: Facts, pod: Pod, among: tuple[Container, ...]) -> MilliCpu:
    """CPUs in the slices, online or not, of the containers that run all the time: an init container ends first."""
    slices = (
        facts.state.cpu.of(pod.uid, container.name) or NO_CPUS
        for container in among
        if container.kind is not ContainerKind.INIT and facts.has_exclusive_cpus(pod, container)
    )
    return MilliCpu(1000 * sum(map(len, slices)))


def _less(limit: MilliLimit, used: MilliCpu) -> MilliLimit:
    return limit if isinstance(limit, Unlimited) else MilliCpu(max(0, limit - used))
