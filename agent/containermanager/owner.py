"""The owner: one object holds `NodeState`, and every change of it goes through here.

Order of an admission: decide, persist, enforce, publish. Of a removal: no process left, the record
gone, cgroups gone, state persisted, shared pool grown. A step that fails undoes those before it up to
the point where the pod is known (its record is written) or unknown (its record and its cgroup are
gone); what is owed to disk or kernel after that, `reconcile` makes up for. A crash between two steps
heals at the next start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from threading import Condition, RLock

from agent.admission import Admitted, adapted, admit, isolation, remove_pod, start_container
from agent.cgroup.backend import CgroupBackend
from agent.cgroup.compared import Compared
from agent.cgroup.layout import pod_dir
from agent.cgroup.naming import PLAIN, CgroupNames
from agent.checkpoint.podrecord import PodRecord, record_of
from agent.checkpoint.store import Store
from agent.config.model import BindingPolicy, StateRecovery
from agent.containermanager.binder import Binder, BindingError
from agent.containermanager.bindingpolicy import check_policy
from agent.containermanager.containers import Containers
from agent.containermanager.degraded import degradations
from agent.containermanager.enforcer import Enforcer
from agent.containermanager.events import EventKind, Events
from agent.containermanager.health import Health
from agent.containermanager.hostisolation import Host, LooseHost
from agent.containermanager.journal import Journal
from agent.containermanager.lifecycle import grace_of, has_begun
from agent.containermanager.machine import Machine
from agent.containermanager.observing import Decided, Observer, Stage, Timed, untimed
from agent.containermanager.roster import Known, Roster
from agent.containermanager.snapshot import AdmittedPod, RejectedPod, Snapshot
from agent.containermanager.takeover import TakenOver, resumed, take_over
from agent.containermanager.telling import granted, plugged
from agent.containermanager.verdict import (
    BINDING_ERROR,
    DISCOVERY_ERROR,
    ENFORCEMENT_ERROR,
    MACHINE_FAULTS,
    PASSING,
    STORAGE_ERROR,
    Verdict,
    VerdictKind,
    fault_of,
    name_taken,
    uid_in_use,
)
from agent.domain.pod import Pod, PodUid
from agent.domain.qos import qos_class
from agent.domain.settings import Gates
from agent.domain.state import NodeState, with_pod, without_pod
from agent.domain.topology import NodeId
from agent.domain.trace import Trace
from agent.errors import HostError, NumaletError, StateError
from agent.explain.english import plural

_LOOKED_AT_AGAIN = "the machine is looked at again with the next hotplug event and every reconcile period"


class ContainerManager:
    """Owns all allocations of one machine. Safe to call from several threads."""

    def __init__(  # noqa: PLR0913 - the composition root names every part
        self,
        *,
        machine: Machine,
        store: Store,
        cgroups: CgroupBackend,
        cgroup_root: str,
        cgroup_names: CgroupNames = PLAIN,
        boot_id: str,
        now: Callable[[], str],
        binder: Binder,
        binding_policy: BindingPolicy = BindingPolicy.MANIFESTS,
        recovery: StateRecovery = StateRecovery.REBUILD,
        pids_limit: int | None = None,
        host: Host | None = None,
        observers: Sequence[Observer] = (),
        timed: Timed = untimed,
    ) -> None:
        self._machine = machine
        self._journal = Journal(store=store, settings=machine.settings, now=now)
        self._host = host or LooseHost()
        self._binder = binder
        self._binding_policy = binding_policy
        self._enforcer = Enforcer(machine, cgroups, self._host, binder, pids_limit, self._tell_of_cgroup)
        self._cgroup_root, self._cgroup_names = cgroup_root, cgroup_names
        self._boot_id = boot_id
        self._now = now
        self._recovery = recovery
        self._observers = observers
        self._timed = timed
        self._lock = RLock()
        self._removed = Condition(self._lock)
        self._state = NodeState()
        self._roster = Roster()
        self._leaving: set[PodUid] = set()
        self.events = Events(now)
        """What happened; whoever changes something of the node tells it here, too."""
        self._health = Health(self.events)
        self.containers = Containers(
            lock=self._lock,
            roster=self._roster,
            leaving=self._leaving,
            cgroups=cgroups,
            events=self.events,
            now=now,
            binder=binder,
            lived=self._lived,
            enforce=lambda: self._enforcer.enforce(self._state, self._roster.pods),
            mend=self._enforce,
        )
        """What runs in the pods."""
        self._recovered: Mapping[str, int] = {}
        self._memory_at_start: Mapping[NodeId, int] = {}

    @property
    def gates(self) -> Gates:
        """The feature gates in force."""
        return self._machine.settings.gates

    # --- start ------------------------------------------------------------------------------

    def start(self) -> None:
        """Take over what an earlier run left: state from disk, then the kernel in line with it.

        Raises HostError where cgroups cannot be had, StorageError where the disk cannot be read, StateError
        under strict recovery. What cannot be written is a failure to be mended, not a reason to stay down.
        """
        self._enforcer.prepare()
        with self._lock:
            taken = take_over(self._journal, self._machine, self._recovery)
            self._machine = taken.machine
            self._enforcer.adopt(taken.machine)
            self._state, self._health.recovery = resumed(taken, self._boot_id), taken.notes
            self._recovered = Counter(name.partition("/")[0] for name in taken.damaged)
            self._memory_at_start = taken.node_memory
            for note in taken.notes:
                self.events.add(EventKind.STATE_RECOVERED, f"recovery: {note}")
            self._take_up(taken)
            self.containers.adopt_debug()
            self._save()
            self._health.isolated(self._enforcer.isolate(self._state.cpu.held))
            repairs = self._enforce_first()
            for entry in tuple(self._roster.admitted.values()):
                self.containers.look_at(entry)
            self._diagnose(self._roster.pods)
            boots = {known.record.boot_id for known, _ in taken.kept}
        if boots - {self._boot_id}:
            self.events.add(
                EventKind.REBOOTED,
                "the machine was booted since: the pods' cgroups are made anew, their processes are gone",
            )
        elif boots and repairs:
            self.events.add(
                EventKind.DRIFT_REPAIRED,
                f"cgroups had changed while no daemon ran: {plural(repairs, 'repair')}",
            )
        self.events.add(EventKind.STARTED, f"took over: {self.status_line()}")

    def _take_up(self, taken: TakenOver) -> None:
        """Enter the pods of an earlier run: those that stay, those that cannot, those that had ended."""
        for known, kept in taken.kept:
            pod, record = known.pod, known.record
            self._roster.admit(self._entry(pod, record.source, record.admitted_at, kept.trace))
            self._publish(pod, kept.trace)
            if record.boot_id == self._boot_id:
                self.containers.lives[pod.uid] = record.lives
            renewed = self._record(pod, record.source, record.admitted_at, record)
            if renewed != record:
                self._journal.owe(pod.uid, renewed)
        for known, refused in taken.lost:
            with suppress(HostError):  # then it is one more cgroup with processes of an unknown pod
                self._enforcer.terminate(known.pod, 0)
            self._journal.owe(known.pod.uid, None)
            words = (refused.reason, refused.message, refused.remedy)
            self._reject(known.pod, known.record.source, words, refused.trace)
        for over in taken.ended:
            self._roster.end(over.pod, over.record)

    def _enforce_first(self) -> int:
        """Put the kernel right, then bring processes where their containers' cgroups are now."""
        repairs = self._enforce()
        with suppress(HostError):
            if self._enforcer.gather(self._state, self._roster.pods):
                repairs += self._enforce()
        return repairs

    # --- admission --------------------------------------------------------------------------

    def admit(self, pod: Pod, source: str) -> Verdict:
        """Admit a pod, or say why not. A pod that is already admitted stays exactly as it is."""
        with self._lock:
            held = self._roster.holder(pod)
            if held is not None:
                return name_taken(pod, held, is_leaving=held.pod.uid in self._leaving)
            lost = self._health.failures.get(DISCOVERY_ERROR)
            if lost is not None:
                return self._reject(pod, source, (DISCOVERY_ERROR, lost, _LOOKED_AT_AGAIN), ())
            with self._timed(Stage.DECIDE):
                decision = admit(self._machine.managers, self._state, pod)
            if isinstance(decision, Admitted):
                try:
                    check_policy(self._binding_policy, pod, source)
                    self._enforcer.check_bindings(decision.state, pod)
                except BindingError as error:
                    words = (BINDING_ERROR, error.message, error.hint)
                    return self._reject(pod, source, words, decision.trace)
                return self._commit(pod, source, decision)
            words = (decision.reason, decision.message, decision.remedy)
            return self._reject(pod, source, words, decision.trace)

    def _commit(self, pod: Pod, source: str, decision: Admitted) -> Verdict:
        before, admitted_at = self._state, self._now()
        self._state = decision.state
        try:
            entry = self._entry(pod, source, admitted_at, decision.trace)
            left = self._enforcer.left_behind(pod.uid, entry.directories.values())
            if left:
                self._state = before
                return self._reject(pod, source, uid_in_use(pod, left), decision.trace)
            with self._timed(Stage.PERSIST):
                self._journal.save(self._state)
                self._journal.add(self._record(pod, source, admitted_at))
            with self._timed(Stage.ENFORCE):
                self._enforcer.enforce(self._state, with_pod(self._roster.pods, pod.uid, pod))
            self._enforcer.check_bound(pod)
        except (StateError, HostError) as error:
            self._undo(pod, before)
            kind = fault_of(error)
            if kind in MACHINE_FAULTS - PASSING:
                self._health.fail(kind, error.message)
            return self._reject(pod, source, (kind, error.message, error.hint), decision.trace)
        except Exception:
            self._undo(pod, before)
            raise
        self._roster.admit(entry)
        for mended in tuple(self._health.failures):
            self._health.mend(mended)
        self._publish(pod, decision.trace)
        self.events.add(EventKind.ADMITTED, f"admitted pod {pod.full_name}: {granted(decision.trace)}", pod)
        return Verdict(pod=pod, kind=VerdictKind.ADMITTED)

    def _undo(self, pod: Pod, before: NodeState) -> None:
        """Go back to ``before`` on disk and in the kernel, as far as they let us."""
        self._state = before
        for step in (
            lambda: self._journal.drop(pod.uid),
            lambda: self._journal.save(before),
            lambda: self._enforcer.enforce(before, self._roster.pods),
        ):
            with suppress(StateError, HostError):  # the first error is the one reported
                step()

    def _reject(self, pod: Pod, source: str, words: tuple[str, str, str], trace: Trace) -> Verdict:
        reason, message, remedy = words
        self._publish(pod, trace, reason)
        last = self._roster.rejected.get(pod.uid)
        self._roster.reject(
            RejectedPod(
                pod=pod,
                source=source,
                rejected_at=self._now(),
                reason=reason,
                message=message,
                remedy=remedy,
                trace=trace,
            )
        )
        if last is None or (last.reason, last.message) != (reason, message):
            self.events.add(EventKind.REJECTED, f"rejected pod {pod.full_name}: {reason}: {message}", pod)
        return Verdict(pod=pod, kind=VerdictKind.REJECTED, reason=reason, message=message, remedy=remedy)

    def _publish(self, pod: Pod, trace: Trace, reason: str = "") -> None:
        decided = Decided(pod=pod, managers=self._machine.managers, trace=trace, reason=reason)
        for observer in self._observers:
            observer(decided)

    # --- removal ----------------------------------------------------------------------------

    def remove(self, uid: PodUid, grace: float | None) -> None:
        """End the pod's processes (SIGTERM, ``grace`` seconds, SIGKILL) and release what it holds.

        Returns when the pod is gone, also where another thread removes it. Raises StateError or HostError
        where that failed: the pod is then still admitted, and can be removed again.
        """
        with self._lock:
            held = self._roster.admitted.get(uid)
            while uid in self._leaving:
                self._removed.wait()
            if held is not self._roster.admitted.get(uid):
                return  # it went, and another pod of this uid came: not the one that was to go
            if held is None:
                self._forget(uid)
                return
            self._leaving.add(uid)
        self._leave(held, grace_of(held.pod) if grace is None else grace)

    def _forget(self, uid: PodUid) -> None:
        """Drop a pod that holds nothing. Raises StorageError."""
        if uid in self._roster.ended:
            self._journal.drop(uid)
            del self._roster.ended[uid]
        self._roster.rejected.pop(uid, None)

    def _leave(self, held: AdmittedPod, grace: float, ended_at: str = "") -> None:
        """Release a pod that is marked as leaving; it is remembered if it has ended."""
        uid = held.pod.uid
        try:
            self._enforcer.terminate(held.pod, grace)
            with self._lock:
                self._release(held, ended_at)
        finally:
            with self._lock:
                self._leaving.discard(uid)
                self._removed.notify_all()

    def _release(self, held: AdmittedPod, ended_at: str) -> None:
        pod, before = held.pod, self._state
        record = self._record(pod, held.source, held.admitted_at)
        over = replace(record, cpus={}, pod_cpus=None, blocks={}, pod_blocks=None, ended_at=ended_at)
        others = without_pod(self._roster.pods, pod.uid)
        try:
            if ended_at:
                self._journal.add(over)
            else:
                self._journal.drop(pod.uid)
            self._enforcer.vacate(before, others, pod)
        except (StateError, HostError):
            with suppress(StateError):  # if not now, then with the next write
                self._journal.add(record)
            with suppress(HostError):
                self._enforcer.enforce(before, self._roster.pods)
            raise
        self._roster.release(pod)
        self.containers.lives.pop(pod.uid, None)
        if ended_at:
            self._roster.end(pod, over)
        managers = self._machine.managers
        self._state = remove_pod(managers, before, pod.uid)
        if self._health.degraded:  # what was short of room before may fit now
            self._state = adapted(managers, self._state)
        self._save()
        self._enforce()
        self._health.degraded.pop(pod.uid, None)
        self._diagnose(self._health.degraded)
        freed = self._state.cpu.default - before.cpu.default
        how, kind = ("ended", EventKind.ENDED) if ended_at else ("removed", EventKind.REMOVED)
        self.events.add(kind, f"{how} pod {pod.full_name}: released CPUs {freed or 'none'}", pod)

    # --- life cycle -------------------------------------------------------------------------

    def _lived(self, entry: AdmittedPod, began: str) -> None:
        """Let the record follow; a container that ``began`` ends the memory of init containers before it."""
        pod, managers, before = entry.pod, self._machine.managers, self._state
        if began:
            self._state = start_container(managers, before, pod, began)
        self._journal.owe(pod.uid, self._record(pod, entry.source, entry.admitted_at))
        if self._state != before:
            self._state = adapted(managers, self._state)
            self._save()
            self._enforce()

    def end(self, uid: PodUid) -> None:
        """Let a pod whose work is done go, if it still is: its sidecars end, it holds nothing any more.

        Raises StateError or HostError where that failed; the pod is then still admitted.
        """
        with self._lock:
            held = self._roster.admitted.get(uid)
            if held is None or uid in self._leaving:
                return
            self.containers.look_at(held)
            if not self.containers.has_ended(uid):
                return
            self._leaving.add(uid)
        self._leave(held, grace_of(held.pod), self._now())

    # --- upkeep -----------------------------------------------------------------------------

    def settle(self) -> None:
        """Write what the disk still lacks: at the end of a run."""
        with self._lock:
            if self._journal.is_behind:
                self._save()

    def reconcile(self) -> int:
        """Bring disk and kernel back in line if they lag or drifted; returns the number of repairs."""
        with self._lock:
            if self._journal.is_behind or STORAGE_ERROR in self._health.failures:
                self._save()
            self._enforcer.suspect()
            return self._enforce()

    def repair_drift(self) -> int:
        """Put right what somebody else has done to our cgroups; returns the number of operations."""
        with self._lock:
            return self._enforce()

    def _tell_of_cgroup(self, kind: EventKind, uid: PodUid | None, text: str) -> None:
        entry = None if uid is None else self._roster.admitted.get(uid)
        self.events.add(kind, text, None if entry is None else entry.pod)

    def _save(self) -> None:
        self._health.mending(STORAGE_ERROR, lambda: self._journal.save(self._state))

    def _enforce(self) -> int:
        def work() -> int:
            return self._enforcer.enforce(self._state, self._roster.pods)

        repairs = self._health.mending(ENFORCEMENT_ERROR, work) or 0
        self._health.meet(self._enforcer.strangers)
        self._health.lack(self._binder.problems)
        return repairs

    # --- hotplug ----------------------------------------------------------------------------

    def hardware_changed(self, look: Callable[[], Machine]) -> None:
        """Go on with the machine that ``look`` finds; where it fails nobody is admitted until it succeeds.

        What is no NumaletError or OSError is raised again.
        """
        try:
            machine = look()
        except Exception as error:
            with self._lock:
                self._health.fail(
                    DISCOVERY_ERROR, f"the machine changed and cannot be used as it is: {error}"
                )
            if isinstance(error, NumaletError | OSError):
                return
            raise
        with self._lock:
            self._health.mend(DISCOVERY_ERROR)
            self._adopt(machine)

    def _adopt(self, machine: Machine) -> None:
        """What pods hold stays; the shared pool, what is free, and the kernel follow the machine."""
        was, known = self._state, self._machine
        machine = machine.sparing(was.cpu.held)
        if (machine.topology, machine.settings) != (known.topology, known.settings):
            self._machine = machine
            self._state = adapted(machine.managers, was)
            self._save()
            if machine.topology != known.topology:
                self.events.add(EventKind.HOTPLUG, f"hotplug: {plugged(known, machine, self._state)}")
        self._enforcer.adopt(self._machine)
        self._enforce()
        self._diagnose(self._roster.pods)

    def _diagnose(self, uids: Iterable[PodUid]) -> None:
        pods = [self._roster.admitted[uid].pod for uid in uids]
        begun = {pod.uid for pod in pods if has_begun(pod, self.containers.of(pod.uid))}
        self._health.diagnose(pods, degradations(self._machine.managers, self._state, pods, begun))

    @property
    def is_withdrawn(self) -> bool:
        """Whether the machine changed and could not be looked at since."""
        return DISCOVERY_ERROR in self._health.failures

    def manifest_problems(self, problems: tuple[str, ...]) -> None:
        """Remember what is wrong in the manifest directory, and tell what is new about it."""
        for problem in problems:
            if problem not in self._health.manifests:
                self.events.add(EventKind.MANIFEST_PROBLEM, f"manifest: {problem}")
        self._health.manifests = problems

    # --- configuration ----------------------------------------------------------------------

    def configuration_state(self, refused: tuple[str, ...], pending: tuple[str, ...]) -> None:
        """Remember what the last reload refused and what waits for a restart, for the status."""
        with self._lock:
            self._health.configuration, self._health.pending = refused, pending

    def configured(self, machine: Machine) -> None:
        """Decide by the settings of ``machine`` from now on; what pods hold stays."""
        with self._lock:
            self._adopt(machine)

    def limit_pids(self, limit: int | None) -> None:
        """Change `podPidsLimit` of all pods, the running ones, too."""
        with self._lock:
            self._enforcer.limit_pids(limit)
            self._enforce()

    def allow_bindings(self, policy: BindingPolicy) -> None:
        """Change whose pods may be bound from now on; what is bound stays."""
        with self._lock:
            self._binding_policy = policy

    # --- views ------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Everything at this moment."""
        with self._lock:
            return Snapshot(
                topology=self._machine.topology,
                settings=self._machine.settings,
                managers=self._machine.managers,
                state=self._state,
                cgroup_root=self._cgroup_root,
                cgroup_names=self._cgroup_names,
                pods=dict(self._roster.admitted),
                rejected=dict(self._roster.rejected),
                ended=dict(self._roster.ended),
                lives=dict(self.containers.lives),
                failures=tuple(f"{kind}: {text}" for kind, text in self._health.failures.items()),
                problems=self._health.problems,
                pending=self._health.pending,
                degraded=dict(self._health.degraded),
                host_isolation=self._host.mode.value,
                notices=(
                    *self._host.notices(self._state.cpu.held),
                    *self._enforcer.notices(self._roster.pods.values()),
                    *self._binder.strays,
                ),
                strangers=self._enforcer.strangers,
                withdrawn=self._health.failures.get(DISCOVERY_ERROR, ""),
                recovered=self._recovered,
                memory_at_start=self._memory_at_start,
                drift_repairs=dict(self._enforcer.drift_repairs),
                manifests=self._health.manifests,
                controllers=self._enforcer.controllers,
                boot_id=self._boot_id,
                bound=self._binder.cgroups(),
                binding_lacks=self._binder.lacks(),
            )

    def find(self, namespace: str, name: str) -> Known | None:
        """The pod of that name."""
        with self._lock:
            return self._roster.find(namespace, name)

    def is_leaving(self, uid: PodUid) -> bool:
        """Whether the pod is being removed: nothing may join it any more."""
        return uid in self._leaving

    def sources(self) -> frozenset[str]:
        """Where the pods, admitted or not, came from."""
        with self._lock:
            return self._roster.sources()

    def pods_of(self, source: str) -> frozenset[PodUid]:
        """The pods, admitted or not, that came from ``source``."""
        with self._lock:
            return self._roster.of_source(source)

    def has_changed(self, pod: Pod, source: str) -> bool:
        """Whether ``source`` had the pod admitted with another spec."""
        with self._lock:
            held = self._roster.admitted.get(pod.uid) or self._roster.ended.get(pod.uid)
        return held is not None and held.source == source and held.pod != pod

    def kernel_view(self, uid: PodUid, container: str) -> Mapping[str, str]:
        """What the kernel shows for a container's cgroup; empty if the pod is not admitted."""
        with self._lock:
            if (uid, container) in self._binder.places:
                return self._binder.kernel_view((uid, container))
            admitted = self._roster.admitted.get(uid)
        directory = None if admitted is None else admitted.directories.get(container)
        return {} if directory is None else self._enforcer.kernel_view(directory)

    def compared(self, uid: PodUid) -> Mapping[str, tuple[Compared, ...]]:
        """What is wanted of each cgroup of a pod, by its absolute path, and what the kernel has. Raises HostError."""
        with self._lock:
            admitted = self._roster.admitted.get(uid)
            if admitted is None:
                return {}
            directories = (pod_dir(uid, qos_class(admitted.pod)), *admitted.directories.values())
            ours = self._enforcer.compared(self._state, admitted.pod, directories)
            bound = self._binder.compared(uid)
            return {
                **{f"{self._cgroup_root}/{self._cgroup_names.path(d)}": files for d, files in ours.items()},
                **{self._binder.cgroup((uid, name)): files for name, files in bound.items()},
            }

    def deviations(self) -> tuple[str, ...]:
        """What the kernel has otherwise than decided, a sentence each. Raises HostError."""
        with self._lock:
            return self._enforcer.deviations(self._state, self._roster.pods)

    def status_line(self) -> str:
        """One sentence: ``2 pods, 6/16 CPUs exclusive, 0 problems``."""
        shot = self.snapshot()
        counts = f"{len(shot.exclusive)}/{len(shot.topology.online)} CPUs exclusive"
        return f"{plural(len(shot.pods), 'pod')}, {counts}, {plural(len(shot.troubles), 'problem')}"

    # --- bookkeeping ------------------------------------------------------------------------

    def _entry(self, pod: Pod, source: str, admitted_at: str, trace: Trace) -> AdmittedPod:
        levels = isolation(self._machine.managers, self._state, pod)
        return AdmittedPod(
            pod=pod,
            source=source,
            admitted_at=admitted_at,
            trace=trace,
            isolation=levels,
            directories=self._enforcer.directories(pod, levels),
        )

    def _record(
        self, pod: Pod, source: str, admitted_at: str, previous: PodRecord | None = None
    ) -> PodRecord:
        record = record_of(
            pod, self._state, gates=self.gates, boot_id=self._boot_id, admitted_at=admitted_at, source=source
        )
        lives = self.containers.of(pod.uid)
        if lives:
            record = replace(record, lives=lives)
        return record if previous is None else replace(record, minor=previous.minor, unknown=previous.unknown)
