"""From what was on disk to a sound state: nothing acknowledged is lost, nothing is half there.

Pure. Entries without a pod record were never acknowledged and are released; a pod that holds exactly
what its record says stays, whatever the policies would say of it today; one whose entries are gone is
admitted anew; a state the managers refuse is rebuilt from what the records say each pod holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from agent.admission import Admitted, Managers, Rejected, admit, remove_pod, restore
from agent.checkpoint.podrecord import PodRecord
from agent.domain.idset import union
from agent.domain.pod import Pod, PodUid
from agent.domain.state import CpuState, MemoryState, NodeState, memory_invariants
from agent.domain.trace import Refused
from agent.errors import StateError

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Remembered:
    """A pod and the record that it was admitted."""

    pod: Pod
    record: PodRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """The state to go on with, and the decision about each known pod in order of admission.

    ``notes`` say who was placed anew or can be no longer.
    """

    state: NodeState
    kept: tuple[tuple[Remembered, Admitted], ...]
    lost: tuple[tuple[Remembered, Rejected], ...]
    notes: tuple[str, ...] = ()


def without_strangers(managers: Managers, state: NodeState, known: frozenset[PodUid]) -> NodeState:
    """Release every pod that has no record."""
    for uid in sorted(state.pods() - known):
        state = remove_pod(managers, state, uid)
    return state


def rebuilt(managers: Managers, records: Sequence[PodRecord]) -> tuple[NodeState, tuple[str, ...]]:
    """A state made from the records alone; a pod whose resources no longer fit is left out, with a note."""
    state = restore(managers, NodeState())
    notes: list[str] = []
    for record in records:
        try:
            state = _with_record(managers, state, record)
        except StateError as error:
            notes.append(f"pod {record.namespace}/{record.name} cannot keep what it held: {error.message}")
    return state, tuple(notes)


def _with_record(managers: Managers, state: NodeState, record: PodRecord) -> NodeState:
    held = union(record.cpus.values())
    if record.pod_cpus is not None:
        held |= record.pod_cpus
    free = state.cpu.default - managers.cpu.reserved
    if not held <= free:
        raise StateError(f"CPUs {held - free} are not free")
    cpu = CpuState(
        default=state.cpu.default - held,
        entries=_entered(state.cpu.entries, record.uid, record.cpus),
        pod_entries=_podded(state.cpu.pod_entries, record.uid, record.pod_cpus),
    )
    memory = MemoryState(
        nodes=state.memory.nodes,
        entries=_entered(state.memory.entries, record.uid, record.blocks),
        pod_entries=_podded(state.memory.pod_entries, record.uid, record.pod_blocks),
    )
    found = restore(managers, NodeState(cpu=cpu, memory=managers.memory.rebooked(memory)))
    broken = next(memory_invariants(found.memory), None)
    if broken:
        raise StateError(broken)
    return found


def _entered(
    entries: Mapping[PodUid, Mapping[str, V]], uid: PodUid, held: Mapping[str, V]
) -> Mapping[PodUid, Mapping[str, V]]:
    return {**entries, uid: held} if held else entries


def _podded(entries: Mapping[PodUid, V], uid: PodUid, held: V | None) -> Mapping[PodUid, V]:
    return entries if held is None else {**entries, uid: held}


def readmitted(managers: Managers, state: NodeState, known: Sequence[Remembered]) -> Recovered:
    """Take every known pod over: those that hold their resources keep them, the others get anew."""
    kept: list[tuple[Remembered, Admitted]] = []
    lost: list[tuple[Remembered, Rejected]] = []
    notes: list[str] = []
    for entry in known:
        decision = _kept(managers, state, entry) or admit(managers, state, entry.pod)
        state = decision.state
        name = entry.pod.full_name
        if isinstance(decision, Rejected):
            lost.append((entry, decision))
            notes.append(f"pod {name} can no longer be placed: {decision.reason}: {decision.message}")
            continue
        kept.append((entry, decision))
        if not holds(state, entry.record):
            notes.append(f"pod {name} had lost what it held and was placed anew")
    return Recovered(state=state, kept=tuple(kept), lost=tuple(lost), notes=tuple(notes))


def _kept(managers: Managers, state: NodeState, entry: Remembered) -> Admitted | None:
    """The decision to leave a pod as it is, if it holds what its record says."""
    if not holds(state, entry.record):
        return None
    today = admit(managers, state, entry.pod)
    if isinstance(today, Admitted) and today.state == state:
        return today
    trace = tuple(step for step in today.trace if not isinstance(step, Refused))
    return Admitted(state=state, hints={}, trace=trace)


def holds(state: NodeState, record: PodRecord) -> bool:
    """Tell whether the pod holds exactly what its record says."""
    uid, cpu, memory = record.uid, state.cpu, state.memory
    return (
        cpu.entries.get(uid, {}) == record.cpus
        and cpu.pod_entries.get(uid) == record.pod_cpus
        and memory.entries.get(uid, {}) == record.blocks
        and memory.pod_entries.get(uid) == record.pod_blocks
    )
