"""Taking over at start what an earlier run left on disk. Reads, and sets aside what is unusable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from agent.admission import Admitted, Rejected, restore
from agent.checkpoint.podrecord import PodRecord
from agent.checkpoint.store import CPU_FILE, MEMORY_FILE, record_name
from agent.config.model import StateRecovery
from agent.containermanager.journal import Damage, Journal, Loaded
from agent.containermanager.machine import Machine
from agent.containermanager.recovery import Remembered, holds, readmitted, rebuilt, without_strangers
from agent.domain.pod import Pod
from agent.domain.state import NodeState
from agent.errors import StateError
from agent.manifest import ManifestError, parse_pod


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenOver:
    """The state to go on with, who stays and who does not, in order of admission.

    ``notes`` say what was lost, moved or set aside; none after an ordinary stop or crash.
    """

    state: NodeState
    kept: tuple[tuple[Remembered, Admitted], ...] = ()
    lost: tuple[tuple[Remembered, Rejected], ...] = ()
    notes: tuple[str, ...] = ()


def take_over(journal: Journal, machine: Machine, recovery: StateRecovery) -> TakenOver:
    """Work out how to go on.

    Raises StorageError; under strict recovery StateError where anything is amiss, and leaves the
    files as they are.
    """
    loaded = journal.load()
    known, refused = _remembered(loaded.records)
    damages = [*loaded.damages, *refused]
    state, rejected_states = _stored_state(machine, loaded, known)
    damages += rejected_states
    notes = [damage.text for damage in damages]
    if state is None:
        state, lost = rebuilt(machine.managers, [entry.record for entry in known])
        notes += lost
    recovered = readmitted(machine.managers, state, known)
    notes += recovered.notes
    if notes and recovery is StateRecovery.STRICT:
        raise StateError("; ".join(notes), hint="stateRecovery: rebuild goes on from the pod records")
    asides = [f"{damage.text}; it was set aside as {journal.set_aside(damage.name)}" for damage in damages]
    return TakenOver(
        state=recovered.state,
        kept=recovered.kept,
        lost=recovered.lost,
        notes=(*loaded.remarks, *asides, *notes[len(damages) :]),
    )


def _remembered(records: Sequence[PodRecord]) -> tuple[list[Remembered], list[Damage]]:
    known: list[Remembered] = []
    refused: list[Damage] = []
    for record in records:
        try:
            known.append(Remembered(_pod_of(record), record))
        except ManifestError as error:
            text = f"the manifest of pod {record.namespace}/{record.name} is refused now: {error}"
            refused.append(Damage(record_name(record.uid), text))
    return known, refused


def _pod_of(record: PodRecord) -> Pod:
    """The pod as it was admitted: its stored manifest under the gates of then."""
    pod = parse_pod(dict(record.manifest), f"pods/{record.uid}.json", record.gates)
    return replace(pod, uid=record.uid)


def _stored_state(
    machine: Machine, loaded: Loaded, known: Sequence[Remembered]
) -> tuple[NodeState | None, list[Damage]]:
    """The stored state if both files are there, the managers accept it, and it has what the records say.

    Otherwise None: the records, written last and each whole, are then the better witness.
    """
    if loaded.cpu is None or loaded.memory is None:
        return None, []
    stored = NodeState(cpu=loaded.cpu, memory=loaded.memory)
    uids = frozenset(entry.pod.uid for entry in known)
    try:
        state = restore(machine.managers, without_strangers(machine.managers, stored, uids))
    except StateError as error:
        return None, [Damage.of(name, error) for name in (CPU_FILE, MEMORY_FILE)]
    return (state if all(holds(state, entry.record) for entry in known) else None), []
