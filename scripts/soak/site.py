"""One machine and everything that can happen to it; `step` does one operation and checks the invariants."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Final

from agent.cgroup.diff import deviations
from agent.cgroup.layout import CgroupDir, Kind, kind_of, pod_uid_of
from agent.cgroup.plan import plan
from agent.checkpoint.codec import decode_cpu, decode_memory, encode_cpu, encode_memory
from agent.checkpoint.convert import convert_cpu, convert_memory
from agent.checkpoint.podrecord import encode_record
from agent.checkpoint.reading import CpuFile, MemoryFile, read_stored
from agent.checkpoint.store import CPU_FILE, MEMORY_FILE, PODS, record_name
from agent.containermanager import ContainerManager, Snapshot, VerdictKind
from agent.containermanager.handover import Stamp, adopted
from agent.containermanager.lifecycle import has_begun
from agent.domain.idset import NO_CPUS, CpuSet, union
from agent.domain.pod import ContainerKind, Pod, PodUid
from agent.domain.settings import CpuPolicy, Gates, MemoryPolicy
from agent.domain.state import CpuState, NodeState, invariants, memory_invariants
from agent.errors import ConfigError, HostError, StateError
from agent.manifest import ManifestError, parse_pod
from scripts.soak import chances
from tests.containermanager.faults import Died, FaultyCgroups, FaultyStore, Fuse, Mode
from tests.containermanager.node import Node, fake_cgroups, machine_of

EVERY: Final = 8
"""After so many operations kernel and records are compared with the whole plan, too."""
LONGEST: Final = 40
"""Changes of disk or kernel that most operations make at the most: one of the first so many fails."""
ALL_GATES: Final = Gates()
FAILURES: Final = [mode for mode in Mode if mode is not Mode.DIE]

Held = tuple[object, object, object, object]


class UnsoundError(Exception):
    """An invariant does not hold."""


class Machine(Node):
    """A node whose clock never goes back."""

    def now(self) -> str:
        """The time: every reading is later than the one before."""
        self._ticks += 1
        return f"2026-01-01T{self._ticks:010d}Z"


class Site:
    """``told`` is what happened so far; ``held`` what each acknowledged pod was given."""

    def __init__(self, choice: random.Random) -> None:
        self.choice = choice
        self.shape = chances.shape(choice)
        self.fuse = Fuse()
        self.offline = NO_CPUS
        self.node = self._first_node()
        self.owner = self.node.owner()
        self.held: dict[PodUid, Held] = {}
        self.unsure: frozenset[PodUid] = frozenset()
        self.most_pods = choice.choice([2, 3, 4, 8])
        self.pods = 0
        self._verified: tuple[bytes, bytes, NodeState] | None = None
        self.done: Counter[str] = Counter()
        self.told: list[str] = []

    def _first_node(self) -> Machine:
        topology = self.shape.with_offline(NO_CPUS)
        while True:
            with suppress(ConfigError):
                config = chances.config(self.choice)
                return Machine(config, topology, FaultyStore(self.fuse), self._new_kernel())

    def _new_kernel(self) -> FaultyCgroups:
        cgroups = fake_cgroups(self.shape.with_offline(self.offline), FaultyCgroups)
        assert isinstance(cgroups, FaultyCgroups)
        cgroups.fuse = self.fuse
        return cgroups

    def step(self) -> None:
        """Do one random operation. Raises UnsoundError, or what the agent should not raise."""
        (name,) = self.choice.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
        self.told.append(name)
        self.done[name] += 1
        _OPERATIONS[name](self)
        self.check(in_full=self.done.total() % EVERY == 0)

    def check(self, *, in_full: bool) -> None:
        """Raise UnsoundError if an invariant does not hold."""
        shot = self.owner.snapshot()
        wrong = [
            *shot.failures,
            *_state_faults(self.node, shot),
            *self._losses(shot),
            *self._disk_faults(shot),
        ]
        wrong += _overlaps(self.node, shot)
        if in_full:
            wrong += [*_record_faults(self.node, shot), *_kernel_faults(self.node, self.owner, shot)]
        if wrong:
            raise UnsoundError("; ".join(wrong))

    def _held(self, uid: PodUid) -> Held:
        return _held_in(self.owner.snapshot().state, uid)

    def _disk_faults(self, shot: Snapshot) -> Iterator[str]:
        """The files have the state and a record for each pod; what is as it was is not read again."""
        files = self.node.store.files
        if {name for name in files if _is_record(name)} != set(map(record_name, shot.pods)):
            yield "the pod records are not the admitted pods"
        if not shot.state.pods() <= set(shot.pods):
            yield "somebody unknown holds resources"
        cpu, memory = files[CPU_FILE], files[MEMORY_FILE]
        if self._verified == (cpu, memory, shot.state):
            return
        if decode_cpu(cpu, gates=ALL_GATES).state != shot.state.cpu:
            yield "cpu_manager_state is not the state"
        if decode_memory(memory, gates=ALL_GATES).state != shot.state.memory:
            yield "memory_manager_state is not the state"
        self._verified = cpu, memory, shot.state

    def _losses(self, shot: Snapshot) -> Iterator[str]:
        """What the pods hold is what they were given, and there are no others."""
        known = shot.pods.keys()
        if known != self.held.keys():
            yield f"admitted are {sorted(known)}, acknowledged {sorted(self.held)}"
        for uid in known & self.held.keys():
            before, now = self.held[uid], _held_in(shot.state, uid)
            pod = shot.pods[uid].pod
            if has_begun(pod, shot.lives.get(uid, {})):
                before, now = _after_init(pod, before), _after_init(pod, now)
            if before != now and not (self.done["reconfigure"] and _is_late(before, now)):
                yield f"{uid} was given {before} and holds {now}"
            self.held[uid] = now

    def _take_stock(self) -> None:
        """After a change that may change what pods hold: go on from what is there."""
        self.held = {uid: self._held(uid) for uid in self.owner.snapshot().pods}

    # --- what a user does -------------------------------------------------------------------

    def admit(self) -> None:
        """A pod comes, perhaps with a process."""
        if len(self.held) >= self.most_pods:
            self.remove()
            return
        try:
            document = chances.pod(self.choice, self._new_name())
            pod = parse_pod(document, "soak", self.node.config.gates)
        except ManifestError:  # what a gate forbids
            return
        self.unsure = frozenset({pod.uid})
        if self.owner.admit(pod, "api").kind is VerdictKind.ADMITTED:
            self.held[pod.uid] = self._held(pod.uid)
            if self.choice.random() < 0.5:
                directories = self.owner.snapshot().pods[pod.uid].directories
                directory = directories[self.choice.choice(pod.containers).name]
                self.node.cgroups.add_process(directory, self.node.cgroups.spawn())
        self.unsure = frozenset()

    def _new_name(self) -> str:
        """One that no pod had, or that of a pod whose record was lost and whose processes live."""
        strangers = sorted(map(pod_uid_of, self.owner.snapshot().strangers), key=str)
        lost = [uid.removeprefix("uid-") for uid in strangers if uid and uid.startswith("uid-")]
        if lost and self.choice.random() < 0.3:
            return self.choice.choice(lost)
        self.pods += 1
        return f"p{self.pods}"

    def remove(self) -> None:
        """A pod goes."""
        if not self.held:
            return
        uid = self.choice.choice(sorted(self.held))
        self.unsure = frozenset({uid})
        self.owner.remove(uid, 0)
        self.unsure = frozenset()
        del self.held[uid]

    # --- what the world does ----------------------------------------------------------------

    def drift(self) -> None:
        """Somebody else changes, removes or makes a cgroup."""
        if not self.held:
            return
        cgroups = self.node.cgroups
        directory = self.choice.choice(sorted(cgroups.observe().dirs))
        with suppress(HostError):
            match self.choice.randrange(5):
                case 0:
                    online = self.node.topology.online
                    cpus = self.choice.choice([online, CpuSet.of([self.choice.choice(list(online))])])
                    cgroups.write(directory, "cpuset.cpus", str(cpus))
                case 1:
                    cgroups.remove(directory)
                case 2:
                    cgroups.make(CgroupDir(f"podstray{self.choice.randrange(3)}"))
                case 3:
                    stray = CgroupDir(f"podstray{self.choice.randrange(3)}")
                    cgroups.make(stray)
                    cgroups.add_process(stray, cgroups.spawn())
                case _:
                    cgroups.write(directory, "cpu.weight", "77")
        self.owner.reconcile()

    def strays_end(self) -> None:
        """The processes of pods that nobody knows end."""
        for directory in self.owner.snapshot().strangers:
            self.node.cgroups.kill(directory)
        self.owner.reconcile()

    def restart(self) -> None:
        """The daemon ends and starts."""
        self.owner = self.node.owner()

    def reboot(self) -> None:
        """The kernel starts anew: no cgroup, no process."""
        self.node.boot += "+" if len(self.node.boot) < 8 else ""
        self.node.cgroups = self._new_kernel()
        self.owner = self.node.owner()

    def hotplug(self) -> None:
        """CPUs come and go; CPU 0 and one of the shared pool stay, if only for it not to be empty."""
        shared = self.owner.snapshot().shared - CpuSet.of([0])
        if not shared:
            return
        staying = CpuSet.of([0, self.choice.choice(list(shared))])
        every = list(CpuSet.of(range(self.shape.cpus)) - staying)
        self.offline = CpuSet.of(self.choice.sample(every, self.choice.randint(0, 3)))
        self._replug()
        self.owner.hardware_changed(lambda: self.node.machine)

    def _replug(self) -> None:
        self.node.plug(self.shape.with_offline(self.offline))

    def reconfigure(self) -> None:
        """Another policy, scope, option or gate; whoever cannot stay is named."""
        config = chances.changed(self.choice, self.node.config)
        with suppress(ConfigError):
            machine = machine_of(config, self.node.topology)
            before = set(self.held)
            self.node.config, self.node.machine = config, machine
            self.owner = self.node.owner()
            told = " ".join(self.owner.snapshot().problems)
            unnamed = [uid for uid in before - self.owner.snapshot().pods.keys() if _name(uid) not in told]
            if unnamed:
                raise UnsoundError(f"{unnamed} are gone and nobody says so: {told}")
            self._take_stock()

    # --- what goes wrong --------------------------------------------------------------------

    def crash(self) -> None:
        """The daemon dies in some operation, perhaps again in the start after it."""
        work = self.choice.choice([self.admit, self.remove, self.restart, self.hotplug, self.drift])
        self.told.append(f"  in {work.__name__}")
        self._dying(work)
        while self._dying(self.restart):
            pass
        self._settle_unsure()

    def _dying(self, work: Callable[[], None]) -> bool:
        self.fuse.arm(self.choice.randrange(LONGEST), Mode.DIE)
        try:
            work()
        except Died:
            self.fuse.disarm()
            self.restart()  # so that what is checked next has an owner
            return self.choice.random() < 0.3
        finally:
            self.fuse.disarm()
        return False

    def _settle_unsure(self) -> None:
        """The pod whose request got no answer is there as a whole, or not at all."""
        for uid in self.unsure:
            self.held.pop(uid, None)
            if uid in self.owner.snapshot().pods:
                self.held[uid] = self._held(uid)
        self.unsure = frozenset()

    def fail(self) -> None:
        """A change of disk or kernel fails once, or from then on; then it is mended."""
        self.fuse.arm(self.choice.randrange(LONGEST), self.choice.choice(FAILURES))
        work = self.choice.choice([self.admit, self.remove, self.restart, self.hotplug])
        self.told.append(f"  in {work.__name__}")
        with suppress(StateError, HostError):
            work()
        self.fuse.disarm()
        self.unsure = frozenset()
        self.owner.reconcile()

    def corrupt(self) -> None:
        """A file is damaged while no daemon runs; only the pod of a damaged record may be lost."""
        store = self.node.store
        for name in self.choice.sample(
            sorted(store.files), min(len(store.files), self.choice.choice([1, 1, 2]))
        ):
            self.told.append(f"  {name}")
            damaged = _damaged(self.choice, store.files[name])
            if damaged is None:
                del store.files[name]
            else:
                store.files[name] = damaged
            uid = next((uid for uid in self.held if record_name(uid) == name), None)
            if uid is not None:
                self.unsure |= {uid}
        self.restart()
        told = " ".join(self.owner.snapshot().problems)
        for uid in self.unsure - self.owner.snapshot().pods.keys():
            if record_name(uid) in store.files or (
                any(name.startswith(record_name(uid)) for name in store.files)
                and record_name(uid) not in told
            ):
                raise UnsoundError(f"{uid} is lost and nobody says so: {told}")
        self._settle_unsure()
        for name in [name for name in store.files if ".corrupt-" in name]:
            del store.files[name]

    # --- moving -----------------------------------------------------------------------------

    def hand_over(self) -> None:
        """The node moves to a kubelet and back; pods that hold nothing are not in its files."""
        shot, config = self.owner.snapshot(), self.node.config
        if shot.degraded or self.offline or not _is_static(self.node):
            return
        as_one = bool(shot.state.cpu.pod_entries or shot.state.memory.pod_entries)
        versions = self.choice.choice([(4, 3), (3, 2)] if as_one else [(4, 3), (3, 2), (2, 1)])
        cpu, memory = _of_versions(versions, *map(self.node.store.files.__getitem__, (CPU_FILE, MEMORY_FILE)))
        state = NodeState(
            cpu=decode_cpu(cpu, gates=ALL_GATES).state, memory=decode_memory(memory, gates=ALL_GATES).state
        )
        pods = tuple(entry.pod for uid, entry in shot.pods.items() if uid in state.pods())
        kept, records = adopted(
            state, pods, self.node.machine, Stamp(self.node.boot, self.node.now(), "import")
        )
        cpu, memory = _of_versions(
            versions,
            encode_cpu(config.cpu_policy.value, kept.cpu),
            encode_memory(config.memory_policy.value, kept.memory),
        )
        self.node.store.files = {
            CPU_FILE: cpu,
            MEMORY_FILE: memory,
            **{record_name(record.uid): encode_record(record) for record in records},
        }
        self.held = {pod.uid: self.held[pod.uid] for pod in pods}
        self.restart()

    def drain(self) -> None:
        """Every pod goes: nothing is left of any of them."""
        while self.held:
            self.remove()
        self.strays_end()
        empty = self.owner.snapshot().state
        fresh = Machine(self.node.config, self.node.topology)
        fresh.machine = self.node.machine
        if empty != fresh.owner().snapshot().state:
            raise UnsoundError(f"an empty node is {empty}")
        left = self.node.cgroups.observe().dirs.keys() - fresh.cgroups.observe().dirs.keys()
        if left:
            raise UnsoundError(f"cgroups are left: {sorted(left)}")


def _of_versions(versions: tuple[int, int], cpu: bytes, memory: bytes) -> tuple[bytes, bytes]:
    """The two checkpoints as programs of these versions write them."""
    cpu_file, memory_file = read_stored(cpu), read_stored(memory)
    assert isinstance(cpu_file, CpuFile)
    assert isinstance(memory_file, MemoryFile)
    return convert_cpu(cpu_file, versions[0]).raw, convert_memory(memory_file, versions[1]).raw


def _is_late(before: Held, now: Held) -> bool:
    """A pod that had nothing of a resource when its policy was turned on is given it once there is room."""
    cpu = before[:2] in (now[:2], (None, None))
    memory = before[2:] in (now[2:], (None, None))
    return cpu and memory


def _after_init(pod: Pod, held: Held) -> Held:
    """What is held beside the memory of init containers, which goes back when a later container begins."""
    cpu, pod_cpu, memory, pod_memory = held
    inits = {container.name for container in pod.containers if container.kind is ContainerKind.INIT}
    if isinstance(memory, Mapping):
        memory = {name: blocks for name, blocks in memory.items() if name not in inits}
    return (cpu, pod_cpu, memory or None, pod_memory)


def _is_static(node: Node) -> bool:
    config = node.config
    both = config.cpu_policy is CpuPolicy.STATIC and config.memory_policy is MemoryPolicy.STATIC
    return both and config.gates.pod_level_resource_managers


def _name(uid: PodUid) -> str:
    return f"default/{uid.removeprefix('uid-')} "


def _damaged(choice: random.Random, raw: bytes) -> bytes | None:
    """What is left of a file; None for nothing."""
    place = choice.randrange(len(raw)) if raw else 0
    match choice.randrange(5):
        case 0:
            return None
        case 1:
            return b""
        case 2:
            return raw[:place]
        case 3:
            return raw + b"}"
        case _:
            return raw[:place] + bytes([raw[place] ^ 1 << choice.randrange(8)]) + raw[place + 1 :]


def _held_in(state: NodeState, uid: PodUid) -> Held:
    cpu, memory = state.cpu, state.memory
    return (
        cpu.entries.get(uid),
        cpu.pod_entries.get(uid),
        memory.entries.get(uid),
        memory.pod_entries.get(uid),
    )


def _is_record(name: str) -> bool:
    return name.startswith(f"{PODS}/") and name.endswith(".json")


def _record_faults(node: Node, shot: Snapshot) -> Iterator[str]:
    """Every record can be read."""
    if set(node.store.records().pods) != set(shot.pods):
        yield "the pod records that can be read are not the admitted pods"


def _overlaps(node: Node, shot: Snapshot) -> Iterator[str]:
    """No cgroup of one pod, nor of one that nobody knows, reaches into what another one holds."""
    kernel = node.cgroups
    cpu, online = shot.state.cpu, node.topology.online
    reach = {
        uid: union(map(kernel.effective_cpus, filter(kernel.exists, entry.directories.values())))
        for uid, entry in shot.pods.items()
    }
    for uid in cpu.entries.keys() | cpu.pod_entries.keys():
        own = cpu.pod_entries.get(uid, union(cpu.entries.get(uid, {}).values())) & online
        for other, cpus in reach.items():
            if other != uid and not cpus.isdisjoint(own):
                yield f"{other} runs on CPUs {cpus}, of which {uid} holds {own}"
    for directory in shot.strangers:
        if not kernel.effective_cpus(directory) <= shot.shared:
            yield f"{directory} is not in the shared pool"


def _state_faults(node: Node, shot: Snapshot) -> Iterator[str]:
    if node.config.cpu_policy is CpuPolicy.NONE:
        if shot.state.cpu != CpuState():
            yield f"policy none keeps {shot.state.cpu}"
        yield from memory_invariants(shot.state.memory)
        return
    strict = node.config.cpu_options.get("strict-cpu-reservation") == "true"
    reserved = node.managers.cpu.reserved if strict else NO_CPUS
    kept = CpuSet.of(range(64)) - node.topology.online | reserved
    yield from invariants(shot.state, node.topology.online, reserved, kept)


def _kernel_faults(node: Node, owner: ContainerManager, shot: Snapshot) -> Iterator[str]:
    """Nothing deviates but the cgroups of pods nobody knows, and those are in the shared pool."""
    facts = owner._enforcer._facts(shot.state, {uid: entry.pod for uid, entry in shot.pods.items()})
    observed = node.cgroups.observe()
    wanted = plan(facts)
    strange = tuple(f"{directory}{end}" for directory in shot.strangers for end in (" ", "/"))
    # A policy that changes moves containers to other cgroups; processes stay in the old one, within their pod.
    known = tuple(f"{directory}/" for directory in wanted.dirs if kind_of(directory) is Kind.POD)
    for text in deviations(wanted, observed):
        is_strange = text.startswith(strange) and "is not in the plan" in text
        is_left = text.startswith(known) and text.endswith("is not in the plan and holds processes")
        if not (is_strange or is_left):
            yield text


_OPERATIONS: Final[Mapping[str, Callable[[Site], None]]] = {
    "admit": Site.admit,
    "remove": Site.remove,
    "drift": Site.drift,
    "strays end": Site.strays_end,
    "restart": Site.restart,
    "reboot": Site.reboot,
    "hotplug": Site.hotplug,
    "reconfigure": Site.reconfigure,
    "crash": Site.crash,
    "fail": Site.fail,
    "corrupt": Site.corrupt,
    "hand over": Site.hand_over,
    "drain": Site.drain,
}
_WEIGHTS: Final = {
    "admit": 34,
    "remove": 22,
    "drift": 6,
    "strays end": 2,
    "restart": 5,
    "reboot": 2,
    "hotplug": 6,
    "reconfigure": 2,
    "crash": 10,
    "fail": 5,
    "corrupt": 3,
    "hand over": 2,
    "drain": 1,
}
