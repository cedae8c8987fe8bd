"""The kernel in line with a state: plan, compare with what is there, apply the difference."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Final

from agent.admission import isolation
from agent.cgroup import layout
from agent.cgroup.backend import CgroupBackend, EnforcementError
from agent.cgroup.bound import bound_settings
from agent.cgroup.compared import Compared, compared
from agent.cgroup.diff import deviations
from agent.cgroup.facts import CgroupSettings, Facts, Isolations, container_dir
from agent.cgroup.kernelview import kernel_view
from agent.cgroup.layout import ROOT, CgroupDir
from agent.cgroup.mirror import REMOVED, Mirror
from agent.cgroup.partitiontrial import partition_obstacle
from agent.cgroup.plan import plan, plan_pod
from agent.cgroup.planner import Planner
from agent.cgroup.preflight import require
from agent.cgroup.tree import CPUS, KernelOffer, ObservedDir, Wanted, cpus_in
from agent.cgroup.units import UNLIMITED
from agent.config.model import HostIsolation
from agent.containermanager.binder import Binder, BindingError, Bound
from agent.containermanager.events import EventKind
from agent.containermanager.hostisolation import Host
from agent.containermanager.machine import Machine
from agent.containermanager.predecessor import left_behind
from agent.domain.idset import CpuSet
from agent.domain.outcome import Isolation
from agent.domain.pod import CPU_ISOLATION, CpuIsolation, Pod, PodUid
from agent.domain.qos import qos_class
from agent.domain.state import NodeState
from agent.errors import HostError, StateError

READ_AT_ONCE: Final = 16
"""The groups of cgroups (a pod's, mostly) that a reconcile reads anew, though nobody is known to have touched them."""
TOLD_AT_ONCE: Final = 10
"""The cgroups that are named when many had drifted."""
_POLL_SECONDS: Final = 0.05
_NO_KERNEL: Final = KernelOffer(controllers=frozenset(), files=frozenset(), page_size=1)


class Enforcer:
    """Keeps one cgroup subtree as the state wants it. ``drift_repairs`` counts by file what others had changed.

    ``tell`` is called with a sentence for each repaired cgroup, and each whose limit has to wait, and the
    pod it is of.
    """

    def __init__(
        self,
        machine: Machine,
        cgroups: CgroupBackend,
        host: Host,
        binder: Binder,
        pids_limit: int | None,
        tell: Callable[[EventKind, PodUid | None, str], None],
    ) -> None:
        self.machine = machine
        self._tell = tell
        self._cgroups = cgroups
        self._host = host
        self._binder = binder
        self._kernel = _NO_KERNEL
        self._planner = Planner()
        self._mirror = Mirror(cgroups)
        self._changed: frozenset[CgroupDir] = frozenset()
        self._unread: list[CgroupDir] = []
        self._told_put_off: frozenset[CgroupDir] = frozenset()
        self._told_bound: frozenset[str] = frozenset()
        self.drift_repairs: Counter[str] = Counter()
        self._settings = CgroupSettings()
        self.limit_pids(pids_limit)

    def limit_pids(self, limit: int | None) -> None:
        """Let each pod have that many processes and threads; None: as many as it likes."""
        self._settings = replace(self._settings, pod_pids=UNLIMITED if limit is None else limit)

    @property
    def controllers(self) -> frozenset[str]:
        """The cgroup controllers that this kernel offers us."""
        return self._kernel.controllers

    def prepare(self) -> None:
        """Check the host and make the subtree. Raises HostError with every obstacle, nothing written."""
        require(self._cgroups.preflight())
        self._cgroups.prepare()
        self._kernel = self._cgroups.offer()

    def isolate(self, held: CpuSet) -> tuple[str, ...]:
        """Find out how the host can be kept off what pods hold; returns what is wrong with it. Raises HostError."""
        if self._host.mode is HostIsolation.PARTITION:
            obstacle = partition_obstacle(self._cgroups, self.machine.topology.online - held)
            if obstacle:
                self._host.give_up_partitions(obstacle)
        wanted = self._host.mode is HostIsolation.PARTITION
        self._settings = replace(self._settings, partitions=wanted)
        return self._host.problems

    def notices(self, pods: Iterable[Pod]) -> tuple[str, ...]:
        """What an operator should know of what ``pods`` share with the host; nothing of it is an error."""
        if not self._settings.partitions:
            names = sorted(pod.full_name for pod in pods if pod.cpu_isolation is CpuIsolation.ISOLATED)
            said = f"{CPU_ISOLATION}: isolated of {', '.join(names)} has no effect without hostIsolation: partition"
            return (said,) if names else ()
        exposed = self._planner.exposed
        if not exposed:
            return ()
        said = (
            f"CPUs {exposed} are in no cpuset partition, so that host processes may run there: of the pod that"
            " holds them a container is bound, or an init container shares CPUs with another (docs/isolation.md)"
        )
        return (said,)

    def enforce(self, state: NodeState, pods: Mapping[PodUid, Pod]) -> int:
        """Apply what differs from the wanted tree; returns the number of operations. Raises HostError, StateError.

        The host leaves CPUs before a container has them for itself, and comes back to them last; bound
        containers that share are as those in our cgroups.
        """
        topology = self.machine.topology
        everything, held = topology.online | topology.offline, state.cpu.held
        ground, parts = (self.machine, self._kernel, self._settings), self._planner.parts
        self._changed |= self._planner.update(ground, state, pods, self._facts)
        self._binder.look([one for pod in self._planner.bound for one in self._bound(state, pod, parts)])
        lent = self._binder.lent()
        self._host.leave(everything, held, lent)
        self._binder.leave()
        try:
            done = self._mirror.settle(parts, self._changed)
        finally:
            self._changed = frozenset()  # the mirror remembers what is still to be done
            self._tell_repairs()
        self._tell_put_off()
        problems = self._planner.problems
        if problems:
            first = min(problems, key=lambda problem: problem.directory.split("/"))
            raise HostError(f"{first.directory}: {first.reason}")
        self._host.settle(everything, held, lent)
        for repair in self._host.repairs():
            self._tell(EventKind.DRIFT_REPAIRED, None, repair)
        self._binder.settle((everything, topology.memory_nodes))
        if self._host.closed:
            self._binder.look_around()
        self._tell_of_bound()
        return done

    @staticmethod
    def _bound(state: NodeState, pod: Pod, parts: Mapping[CgroupDir, Wanted]) -> tuple[Bound, ...]:
        """The bound containers of a pod, and what they are to have by its part of the plan."""
        directory = layout.pod_dir(pod.uid, qos_class(pod))
        found = {name: bound_settings(parts[directory], directory, name) for name in pod.bindings}
        return tuple(
            Bound(
                key=(pod.uid, name),
                pod=pod.full_name,
                binding=pod.bindings[name],
                settings=settings,
                exclusive=cpus_in(settings[CPUS].text) & state.cpu.held,
            )
            for name, settings in found.items()
            if settings
        )

    def check_bindings(self, state: NodeState, pod: Pod) -> None:
        """Refuse a pod whose containers cannot be what they are bound to. Raises BindingError."""
        if pod.bindings:
            directory = layout.pod_dir(pod.uid, qos_class(pod))
            part = plan_pod(self._facts(state, {pod.uid: pod}), pod)
            self._binder.check(self._bound(state, pod, {directory: part}), self._host.closed)

    def check_bound(self, pod: Pod) -> None:
        """Raise BindingError if a bound container of a pod is not as it was to be after the last `enforce`."""
        for name, binding in pod.bindings.items():
            failure = self._binder.failures.get((pod.uid, name))
            if failure is not None:
                text = f"container {name} ({binding}): {failure.message}"
                raise BindingError(text, hint=failure.hint) from failure

    def suspect(self) -> None:
        """Let the next `enforce` read some of the cgroups anew: all of them after as many calls as it takes."""
        if not self._unread:
            self._unread = [ROOT, *sorted(self._planner.parts.keys() - {ROOT})]
        self._mirror.suspect((*self._mirror.strangers, *self._unread[:READ_AT_ONCE]))
        del self._unread[:READ_AT_ONCE]

    def adopt(self, machine: Machine) -> None:
        """Go on with what the machine has become; the kernel may have changed cpusets on its own."""
        self.machine = machine
        self._mirror.forget()

    @property
    def strangers(self) -> Mapping[CgroupDir, CpuSet]:
        """Cgroups with processes of pods that nobody knows, and the CPUs they were found on."""
        return self._mirror.strangers

    def _tell_repairs(self) -> None:
        repairs, self._mirror.repairs = self._mirror.repairs, []
        by_cgroup: dict[CgroupDir, list[str]] = {}
        for repair in repairs:
            self.drift_repairs[repair.file] += 1
            found = "removed" if repair.file == REMOVED else f"{repair.file} was {repair.found or 'empty'}"
            by_cgroup.setdefault(repair.directory, []).append(found)
        for directory, what in islice(by_cgroup.items(), TOLD_AT_ONCE):
            text = f"cgroup {directory or 'root'} had drifted and was put right: {', '.join(what)}"
            self._tell(EventKind.DRIFT_REPAIRED, layout.pod_uid_of(directory), text)
        if len(by_cgroup) > TOLD_AT_ONCE:
            text = f"{len(by_cgroup) - TOLD_AT_ONCE} more cgroups had drifted and were put right"
            self._tell(EventKind.DRIFT_REPAIRED, None, text)

    def _tell_of_bound(self) -> None:
        repairs, self._binder.repairs = self._binder.repairs, []
        for uid, text in repairs:
            self._tell(EventKind.DRIFT_REPAIRED, uid, text)
        now = self._binder.put_off
        for key, text in now.items():
            if text not in self._told_bound:
                self._tell(
                    EventKind.LIMIT_PUT_OFF, key[0], f"memory limit put off until less is in use: {text}"
                )
        self._told_bound = frozenset(now.values())

    def _tell_put_off(self) -> None:
        now = self._mirror.put_off
        for directory in now.keys() - self._told_put_off:
            text = f"memory limit put off until less is in use: {now[directory].message}"
            self._tell(EventKind.LIMIT_PUT_OFF, layout.pod_uid_of(directory), text)
        self._told_put_off = frozenset(now)

    def deviations(self, state: NodeState, pods: Mapping[PodUid, Pod]) -> tuple[str, ...]:
        """A sentence for each thing in the kernel that is not as the state wants it. Raises HostError."""
        ours = deviations(plan(self._facts(state, pods)), self._cgroups.observe())
        return (*ours, *self._binder.deviations())

    def compared(
        self, state: NodeState, pod: Pod, directories: Iterable[CgroupDir]
    ) -> Mapping[CgroupDir, tuple[Compared, ...]]:
        """What is wanted of some of a pod's cgroups, and what the kernel has. Raises HostError."""
        wanted = plan_pod(self._facts(state, {pod.uid: pod}), pod).dirs
        observed = self._cgroups.observe(layout.pod_dir(pod.uid, qos_class(pod))).dirs
        nothing = ObservedDir()
        return {
            directory: tuple(compared(wanted[directory], observed.get(directory, nothing)))
            for directory in directories
            if directory in wanted
        }

    def vacate(self, state: NodeState, pods: Mapping[PodUid, Pod], pod: Pod) -> None:
        """Remove ``pod``'s cgroup, which is not among ``pods``, with whatever still runs in it.

        Raises HostError, StateError if it is still there, or what it was bound to has not got back what it
        had; what else cannot be enforced is no matter here.
        """
        directory = layout.pod_dir(pod.uid, qos_class(pod))
        try:
            if self._cgroups.exists(directory) and self._cgroups.populated(directory):
                self._cgroups.kill(directory)
            self.enforce(state, pods)
        except HostError:
            if self._cgroups.exists(directory) or self._binder.holds(pod.bindings.values()):
                raise

    def _facts(self, state: NodeState, pods: Mapping[PodUid, Pod]) -> Facts:
        managers = self.machine.managers
        memory: Isolations = {
            (uid, container.name): managers.memory.isolation(state.memory, pod, container)
            for uid, pod in pods.items()
            for container in pod.containers
        }
        cpu: Isolations = {
            (uid, name): level
            for uid, pod in pods.items()
            for name, level in isolation(managers, state, pod).items()
        }
        return Facts(
            topology=self.machine.topology,
            settings=self.machine.settings,
            state=state,
            pods=pods,
            cpu_isolation=cpu,
            memory_isolation=memory,
            kernel=self._kernel,
            cgroup=self._settings,
            withheld=self.machine.withheld,
        )

    @staticmethod
    def directories(pod: Pod, levels: Mapping[str, Isolation]) -> Mapping[str, CgroupDir]:
        """Each container's cgroup, by their isolation. Raises StateError for names that cannot be directories."""
        names = (*(container.name for container in pod.containers), *pod.ephemeral)
        try:
            return {name: container_dir(pod, levels, name) for name in names}
        except ValueError as error:
            raise StateError(str(error), hint="give the pod another uid") from error

    def left_behind(self, uid: PodUid, own: Collection[CgroupDir]) -> tuple[CgroupDir, ...]:
        """See `left_behind`."""
        return left_behind(self._cgroups, uid, own)

    def gather(self, state: NodeState, pods: Mapping[PodUid, Pod]) -> int:
        """Move processes of containers whose cgroup was another under another policy; returns how many."""
        moved = 0
        for pod in pods.values():
            levels = isolation(self.machine.managers, state, pod)
            directory = layout.pod_dir(pod.uid, qos_class(pod))
            pool = layout.pool_dir(directory)
            for container in pod.containers:
                here = container_dir(pod, levels, container.name)
                for former in (layout.child(directory, container.name), layout.child(pool, container.name)):
                    if former != here and self._cgroups.exists(former):
                        moved += self._move(former, here)
                        self._mirror.suspect([directory])  # what is empty by now can go
        return moved

    def _move(self, former: CgroupDir, here: CgroupDir) -> int:
        pids = [pid for pid in self._cgroups.procs(former) if pid > 0]
        for pid in pids:
            with suppress(EnforcementError):  # it ended, or is told as a deviation
                self._cgroups.add_process(here, pid)
        return len(pids)

    def terminate(self, pod: Pod, grace: float) -> None:
        """Ask the pod's processes to end, wait up to ``grace`` seconds, then kill what is left."""
        directory = layout.pod_dir(pod.uid, qos_class(pod))
        if not self._cgroups.exists(directory):
            return
        for pid in self._processes(directory):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + grace
        while self._cgroups.populated(directory) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        if self._cgroups.populated(directory):
            self._cgroups.kill(directory)

    def _processes(self, directory: CgroupDir) -> list[int]:
        below = self._cgroups.observe(directory).dirs
        pids: list[int] = []
        for one in below:
            with suppress(EnforcementError):  # it was removed meanwhile
                pids += self._cgroups.procs(one)
        return [pid for pid in pids if pid > 0]  # 0 is a process of a PID namespace we cannot see into

    def kernel_view(self, directory: CgroupDir) -> Mapping[str, str]:
        """See `kernelview`."""
        return kernel_view(self._cgroups, directory)
