"""Taking over at start what an earlier run left on disk. Reads, and sets aside what is unusable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from agent.admission import Admitted, Managers, Rejected, adapted, restore, start_container
from agent.checkpoint.podrecord import PodRecord
from agent.checkpoint.store import CPU_FILE, MEMORY_FILE, StorageError, record_name
from agent.config.model import StateRecovery
from agent.containermanager.changes import changes, node_memory
from agent.containermanager.journal import Damage, Journal, Loaded
from agent.containermanager.machine import Machine
from agent.containermanager.recovery import Remembered, holds, readmitted, rebuilt, without_strangers
from agent.domain.idset import union
from agent.domain.lifecycle import ContainerState
from agent.domain.pod import Pod
from agent.domain.state import NodeState, holding_invariants
from agent.domain.topology import NodeId
from agent.errors import StateError
from agent.manifest import ManifestError, parse_pod
from agent.memorymanager.machinestate import adds_up


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenOver:
    """The machine and state to go on with, who stays and who does not, in order of admission.

    ``ended`` are the pods whose work was done before; they hold nothing.

    ``notes`` say what was lost, moved or set aside; none after an ordinary stop or crash.
    ``damaged`` are the files that could not be used; ``node_memory`` is each NUMA node's when the
    state was written.
    """

    machine: Machine
    state: NodeState
    kept: tuple[tuple[Remembered, Admitted], ...] = ()
    lost: tuple[tuple[Remembered, Rejected], ...] = ()
    ended: tuple[Remembered, ...] = ()
    notes: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()
    node_memory: Mapping[NodeId, int] = field(default_factory=dict)


def take_over(journal: Journal, machine: Machine, recovery: StateRecovery) -> TakenOver:
    """Work out how to go on.

    Raises StorageError; under strict recovery StateError where anything is amiss, and leaves the
    files as they are.
    """
    loaded = journal.load()
    machine = machine.sparing(union(record.held for record in loaded.records))
    managers = machine.managers
    remembered, refused = _remembered(loaded.records)
    known = [entry for entry in remembered if not entry.record.ended_at]
    stored, unsound = _stored_state(managers, loaded, known)
    damages = [*loaded.damages, *refused, *unsound]
    if stored is None:
        state, told = rebuilt(managers, [entry.record for entry in known])
    else:
        state = adapted(managers, stored)
        told = changes(stored, state)
    recovered = readmitted(managers, state, known)
    notes = (*told, *recovered.notes)
    if recovery is StateRecovery.STRICT:
        amiss = [damage.text for damage in damages] + [*notes, *_misfits(managers, stored, state)]
        if amiss:
            raise StateError("; ".join(amiss), hint="stateRecovery: rebuild goes on from the pod records")
    asides = [_set_aside(journal, damage) for damage in damages]
    return TakenOver(
        machine=machine,
        state=recovered.state,
        kept=recovered.kept,
        lost=recovered.lost,
        ended=tuple(entry for entry in remembered if entry.record.ended_at),
        notes=(*loaded.remarks, *asides, *notes, *recovered.remarks),
        damaged=tuple(damage.name for damage in damages),
        node_memory=node_memory(loaded.memory or recovered.state.memory),
    )


def resumed(taken: TakenOver, boot_id: str) -> NodeState:
    """The state of what runs in this boot: who was given anew what it lost has begun all the same.

    The memory of init containers that are over stays given back.
    """
    managers, state = taken.machine.managers, taken.state
    for known, _ in taken.kept:
        lives = known.record.lives if known.record.boot_id == boot_id else {}
        for name in sorted(lives):
            if lives[name].state is not ContainerState.WAITING:
                state = start_container(managers, state, known.pod, name)
    return adapted(managers, state)


def _set_aside(journal: Journal, damage: Damage) -> str:
    if not damage.aside:
        return damage.text
    try:
        return f"{damage.text}; it was set aside as {journal.set_aside(damage.name)}"
    except StorageError as error:
        return f"{damage.text}; it is set aside as soon as that is possible: {error.message}"


def _misfits(managers: Managers, stored: NodeState | None, state: NodeState) -> Iterator[str]:
    """What the kubelet would refuse to start for; memory may drift."""
    if stored is None:
        return
    try:
        restore(managers, NodeState(cpu=stored.cpu, memory=state.memory))
    except StateError as error:
        yield error.message


def _remembered(records: Sequence[PodRecord]) -> tuple[list[Remembered], list[Damage]]:
    known: list[Remembered] = []
    refused: list[Damage] = []
    for record in records:
        try:
            known.append(Remembered(pod_of(record), record))
        except ManifestError as error:
            text = f"the manifest of pod {record.namespace}/{record.name} is refused now: {error}"
            refused.append(Damage(record_name(record.uid), text))
    return known, refused


def pod_of(record: PodRecord) -> Pod:
    """The pod as it was admitted: its stored manifest under the gates of then."""
    pod = parse_pod(dict(record.manifest), f"pods/{record.uid}.json", record.gates)
    return replace(pod, uid=record.uid)


def _stored_state(
    managers: Managers, loaded: Loaded, known: Sequence[Remembered]
) -> tuple[NodeState | None, list[Damage]]:
    """The stored state if both files are there and sound, and it has what the records say.

    Otherwise None: the records, written last and each whole, are then the better witness.
    """
    if loaded.cpu is None or loaded.memory is None:
        return None, []
    uids = frozenset(entry.pod.uid for entry in known)
    stored = without_strangers(managers, NodeState(cpu=loaded.cpu, memory=loaded.memory), uids)
    damages = [
        Damage(CPU_FILE, f"{CPU_FILE} could not be used: {text}") for text in holding_invariants(stored.cpu)
    ][:1]
    if not adds_up(loaded.memory):
        text = f"{MEMORY_FILE} could not be used: its machine state is not what its entries add up to"
        damages.append(Damage(MEMORY_FILE, text))
    is_witness = not damages and all(holds(stored, entry.record) for entry in known)
    return (stored if is_witness else None), damages
