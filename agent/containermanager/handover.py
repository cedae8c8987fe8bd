"""Taking over a kubelet's node: whose the entries are, and records that let each pod keep what it has.

The kubelet's checkpoints name pods by uid alone. Their manifests come from elsewhere: files, or the
answer of `kubectl get pods -o json`, which has the uids, and the container ids that CPU V1 goes by.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from agent.checkpoint.codec import encode_cpu, encode_memory
from agent.checkpoint.podrecord import PodRecord, encode_record, record_of
from agent.checkpoint.reading import ContainerIds
from agent.checkpoint.store import CPU_FILE, MEMORY_FILE, MemoryStore, record_name
from agent.config.model import StateRecovery
from agent.containermanager.journal import Journal
from agent.containermanager.machine import Machine
from agent.containermanager.takeover import take_over
from agent.domain.idset import CpuSet
from agent.domain.pod import Pod, PodUid
from agent.domain.state import Blocks, ContainerCpus, NodeState, holding_invariants
from agent.errors import StateError
from agent.manifest import ManifestError, parse_pod

Json = Mapping[str, Any]

STATIC_POD_UID: Final = "kubernetes.io/config.mirror"
"""The API server knows a static pod by a mirror with a uid of its own; here it keeps the kubelet's."""

_SERVER_SIDE: Final = ("status",)
_STATUSES: Final = ("initContainerStatuses", "containerStatuses")


@dataclass(frozen=True, slots=True)
class Described:
    """A pod's manifest, as yet unread, the file it is from, and its container ids by container."""

    document: Json
    source: str
    ids: Mapping[str, str]


def described(documents: Iterable[Json], source: str) -> Mapping[PodUid, Described]:
    """The pods among ``documents`` that state a uid, by the uid the kubelet knows them by."""
    found = {}
    for document in documents:
        metadata = _object(document, "metadata")
        uid = _object(metadata, "annotations").get(STATIC_POD_UID) or metadata.get("uid")
        if isinstance(uid, str):
            kept = {name: value for name, value in document.items() if name not in _SERVER_SIDE}
            kept["metadata"] = {**metadata, "uid": uid}
            ids = dict(_ids(_object(document, "status")))
            found[PodUid(uid)] = Described(kept, source, ids)
    return found


def container_ids(pods: Mapping[PodUid, Described]) -> ContainerIds:
    """Which container of which pod each container id is."""
    return {key: (uid, name) for uid, pod in pods.items() for name, key in pod.ids.items()}


def _ids(status: Json) -> Iterable[tuple[str, str]]:
    for field in _STATUSES:
        for container in status.get(field) or ():
            _, _, key = str(container.get("containerID") or "").rpartition("://")
            if key:
                yield str(container.get("name")), key


def _object(value: Json, field: str) -> Json:
    held = value.get(field)
    return held if isinstance(held, Mapping) else {}


def holders(state: NodeState, known: Mapping[PodUid, Described], machine: Machine) -> tuple[Pod, ...]:
    """The pods that hold anything in ``state``, where they are known.

    Raises StateError for a manifest that numalet refuses, or that is not of the pod that holds this.
    """
    pods, problems = list[Pod](), list[str]()
    for uid in sorted(state.pods() & known.keys()):
        one = known[uid]
        try:
            pod = parse_pod(dict(one.document), one.source, machine.settings.gates)
        except ManifestError as error:
            problems += str(error).splitlines()
            continue
        pods.append(pod)
        names = {*state.cpu.entries.get(uid, {}), *state.memory.entries.get(uid, {})}
        problems += [
            f"{one.source}: pod {pod.full_name} has no container {name}, which holds resources in the state"
            for name in sorted(names - {container.name for container in pod.containers})
        ]
    if problems:
        raise StateError("\n".join(problems))
    return tuple(pods)


@dataclass(frozen=True, slots=True)
class Stamp:
    """What each record says of its making; see `PodRecord`."""

    boot_id: str
    now: str
    source: str


def adopted(
    state: NodeState, pods: Sequence[Pod], machine: Machine, stamp: Stamp
) -> tuple[NodeState, tuple[PodRecord, ...]]:
    """What the next start makes of ``state`` and records of ``pods``, tried out, and those records.

    Every pod keeps what it has; one that had no CPUs or no memory, since the policy that hands them out
    was off when it came, may be given some, from what nobody holds. Raises StateError where that is not so.
    """
    records = _records(state, pods, machine, stamp)
    store = MemoryStore()
    settings = machine.settings
    store.write(CPU_FILE, encode_cpu(settings.cpu_policy.value, state.cpu))
    store.write(MEMORY_FILE, encode_memory(settings.memory_policy.value, state.memory))
    for record in records:
        store.write(record_name(record.uid), encode_record(record))
    journal = Journal(store=store, settings=settings, now=lambda: stamp.now)
    taken = take_over(journal, machine, StateRecovery.STRICT)
    if len(taken.kept) != len(records) or not _keeps(taken.state, state):
        raise StateError("the next start would not leave every pod what it has")
    return taken.state, _records(taken.state, pods, machine, stamp)


def _keeps(after: NodeState, before: NodeState) -> bool:
    """Tell whether who held anything of a resource holds exactly that, and nobody what is another's."""
    cpu, memory = before.cpu, before.memory
    return (
        all(_cpus(after, uid) == _cpus(before, uid) for uid in {*cpu.entries, *cpu.pod_entries})
        and all(_memory(after, uid) == _memory(before, uid) for uid in {*memory.entries, *memory.pod_entries})
        and not any(holding_invariants(after.cpu))
    )


def _cpus(state: NodeState, uid: PodUid) -> tuple[ContainerCpus, CpuSet | None]:
    return state.cpu.entries.get(uid, {}), state.cpu.pod_entries.get(uid)


def _memory(state: NodeState, uid: PodUid) -> tuple[Mapping[str, Blocks], Blocks | None]:
    return state.memory.entries.get(uid, {}), state.memory.pod_entries.get(uid)


def _records(state: NodeState, pods: Iterable[Pod], machine: Machine, stamp: Stamp) -> tuple[PodRecord, ...]:
    gates, when = machine.settings.gates, stamp.now
    return tuple(
        record_of(pod, state, gates=gates, boot_id=stamp.boot_id, admitted_at=when, source=stamp.source)
        for pod in pods
    )
