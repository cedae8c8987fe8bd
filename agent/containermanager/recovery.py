"""From what was on disk to a sound state: nothing acknowledged is lost, nothing is half there.

Pure. Entries without a pod record were never acknowledged and are released; a pod that holds exactly
what its record says stays, whatever machine and policies would say of it today; one whose entries are
gone is admitted anew; a state that is not sound is rebuilt from what the records say each pod holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent.admission import Admitted, Managers, Rejected, adapted, admit, remove_pod
from agent.checkpoint.podrecord import PodRecord
from agent.domain.idset import NO_CPUS
from agent.domain.pod import Pod, PodUid
from agent.domain.settings import CpuPolicy, MemoryPolicy
from agent.domain.state import CpuState, MemoryState, NodeState
from agent.domain.trace import Refused


@dataclass(frozen=True, slots=True)
class Remembered:
    """A pod and the record that it was admitted."""

    pod: Pod
    record: PodRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """The state to go on with, and the decision about each known pod in order of admission.

    ``notes`` say who was placed anew or can be no longer, ``remarks`` who holds more than before.
    """

    state: NodeState
    kept: tuple[tuple[Remembered, Admitted], ...]
    lost: tuple[tuple[Remembered, Rejected], ...]
    notes: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


def without_strangers(managers: Managers, state: NodeState, known: frozenset[PodUid]) -> NodeState:
    """Release every pod that has no record."""
    for uid in sorted(state.pods() - known):
        state = remove_pod(managers, state, uid)
    return state


def rebuilt(managers: Managers, records: Sequence[PodRecord]) -> tuple[NodeState, tuple[str, ...]]:
    """A state made from the records alone; who cannot keep what it held is left out, with a note."""
    notes: list[str] = []
    kept: dict[PodUid, PodRecord] = {}
    taken = NO_CPUS
    for record in records:
        as_one = record.pod_cpus is not None or record.pod_blocks is not None
        why = ""
        if not record.held.isdisjoint(taken):
            why = f"another pod holds CPUs {record.held & taken}"
        elif as_one and not managers.gates.pod_level_resource_managers:
            why = "it holds it as a whole, and the feature gate PodLevelResourceManagers is off"
        if why:
            notes.append(f"pod {record.namespace}/{record.name} cannot keep what it held: {why}")
            continue
        taken |= record.held
        kept[record.uid] = record
    return adapted(managers, _of_records(kept)), tuple(notes)


def _of_records(records: dict[PodUid, PodRecord]) -> NodeState:
    """What the pods hold by their records, on no machine yet."""
    return NodeState(
        cpu=CpuState(
            entries={uid: record.cpus for uid, record in records.items() if record.cpus},
            pod_entries={uid: r.pod_cpus for uid, r in records.items() if r.pod_cpus is not None},
        ),
        memory=MemoryState(
            entries={uid: record.blocks for uid, record in records.items() if record.blocks},
            pod_entries={uid: r.pod_blocks for uid, r in records.items() if r.pod_blocks is not None},
        ),
    )


def readmitted(managers: Managers, state: NodeState, known: Sequence[Remembered]) -> Recovered:
    """Take every known pod over: those that hold their resources keep them, the others get anew."""
    kept: list[tuple[Remembered, Admitted]] = []
    lost: list[tuple[Remembered, Rejected]] = []
    notes: list[str] = []
    remarks: list[str] = []
    for entry in known:
        decision = _kept(managers, state, entry) or admit(managers, state, entry.pod)
        state = decision.state
        name = entry.pod.full_name
        if isinstance(decision, Rejected):
            lost.append((entry, decision))
            notes.append(f"pod {name} can no longer be placed: {decision.reason}: {decision.message}")
            continue
        kept.append((entry, decision))
        if _holds_all_of(state, entry.record):
            if not holds(state, entry.record):
                remarks.append(f"pod {name} was given what the policies of now have for it")
        else:
            notes.append(f"pod {name} lost what it held and was placed anew")
    return Recovered(
        state=adapted(managers, state),
        kept=tuple(kept),
        lost=tuple(lost),
        notes=tuple(notes),
        remarks=tuple(remarks),
    )


def _kept(managers: Managers, state: NodeState, entry: Remembered) -> Admitted | None:
    """The decision to leave a pod what it holds, if that is what its record says of what is handed out now.

    A policy that was turned on may add a resource that the pod held nothing of.
    """
    settings, record = managers.settings, entry.record
    has_cpus = settings.cpu_policy is CpuPolicy.NONE or _holds_cpus(state.cpu, record)
    has_memory = settings.memory_policy is MemoryPolicy.NONE or _holds_memory(state.memory, record)
    if not (has_cpus and has_memory):
        return None
    today = admit(managers, state, entry.pod)
    if isinstance(today, Admitted) and _holds_all_of(today.state, entry.record):
        return today
    trace = tuple(step for step in today.trace if not isinstance(step, Refused))
    return Admitted(state=state, hints={}, trace=trace)


def holds(state: NodeState, record: PodRecord) -> bool:
    """Tell whether the pod holds exactly what its record says."""
    return _holds_cpus(state.cpu, record) and _holds_memory(state.memory, record)


def _holds_all_of(state: NodeState, record: PodRecord) -> bool:
    """Tell whether the pod holds what its record says, apart from resources that this has nothing of."""
    no_cpus = not record.cpus and record.pod_cpus is None
    no_memory = not record.blocks and record.pod_blocks is None
    return (no_cpus or _holds_cpus(state.cpu, record)) and (no_memory or _holds_memory(state.memory, record))


def _holds_cpus(cpu: CpuState, record: PodRecord) -> bool:
    uid = record.uid
    return cpu.entries.get(uid, {}) == record.cpus and cpu.pod_entries.get(uid) == record.pod_cpus


def _holds_memory(memory: MemoryState, record: PodRecord) -> bool:
    uid = record.uid
    return memory.entries.get(uid, {}) == record.blocks and memory.pod_entries.get(uid) == record.pod_blocks
