"""What is on disk: both checkpoints and a record per pod, written so that a crash leaves all or none.

Admission writes both checkpoints, then the record: without its record an entry is stale and is released
at the next start. Removal drops the record first. A record is thus what makes a pod known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Self, TypeVar

from agent.checkpoint.codec import decode_cpu, decode_memory, encode_cpu, encode_memory, require_policy
from agent.checkpoint.codec.file import NO_EXTRA, Decoded, Extra
from agent.checkpoint.codec.memo import Memo
from agent.checkpoint.podrecord import PodRecord, decode_record, encode_record
from agent.checkpoint.store import CPU_FILE, MEMORY_FILE, Store, record_name
from agent.domain.pod import PodUid
from agent.domain.settings import Settings
from agent.domain.state import CpuState, MemoryState, NodeState
from agent.errors import StateError

S = TypeVar("S", CpuState, MemoryState)

_ASIDE: Final = ".corrupt-"


@dataclass(frozen=True, slots=True)
class Damage:
    """A file that cannot be used, and a sentence that says why; ``aside``: it is there, and to be kept."""

    name: str
    text: str
    aside: bool = True

    @classmethod
    def of(cls, name: str, error: StateError) -> Self:
        """The damage that ``error`` tells of."""
        detail = f" ({error.hint})" if error.hint else ""
        return cls(name, f"{name} could not be used: {error.message}{detail}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What was found. A state is None where its file is missing or damaged.

    ``remarks`` are sentences about what lies there and is not ours.
    """

    cpu: CpuState | None
    memory: MemoryState | None
    records: tuple[PodRecord, ...] = ()
    damages: tuple[Damage, ...] = ()
    remarks: tuple[str, ...] = ()


@dataclass(slots=True)
class Journal:
    """The state directory as the owner uses it.

    What could not be written is owed: every `save` makes up for it first, until it succeeds.
    """

    store: Store
    settings: Settings
    now: Callable[[], str]
    _cpu_extra: Extra = NO_EXTRA
    _memory_extra: Extra = NO_EXTRA
    _cpu_memo: Memo = field(default_factory=Memo)
    _memory_memo: Memo = field(default_factory=Memo)
    _owed: dict[PodUid, PodRecord | None] = field(default_factory=dict)
    _asides: set[str] = field(default_factory=set)
    _unsaved: bool = False

    @property
    def is_behind(self) -> bool:
        """Whether the disk lacks something that was to be written, because that failed."""
        return self._unsaved or bool(self._owed) or bool(self._asides)

    def load(self) -> Loaded:
        """Read everything, change nothing. Raises StorageError."""
        damages: list[Damage] = []
        remarks: list[str] = []
        gates, settings = self.settings.gates, self.settings
        cpu = self._load(CPU_FILE, lambda raw: decode_cpu(raw, gates=gates), damages)
        memory = self._load(MEMORY_FILE, lambda raw: decode_memory(raw, gates=gates), damages)
        if cpu:
            self._cpu_extra = cpu.extra
        if memory:
            self._memory_extra = memory.extra
        listing = self.store.records()
        strange = [name for name in listing.ignored if _ASIDE not in name]
        records = [record for uid in listing.pods if (record := self._record(uid, damages))]
        if records:  # a first start has neither
            unusable = {damage.name for damage in damages}
            missing = [name for name, found in ((CPU_FILE, cpu), (MEMORY_FILE, memory)) if not found]
            damages += [
                Damage(name, f"{name} is missing", aside=False) for name in missing if name not in unusable
            ]
        return Loaded(
            cpu=_of_policy(CPU_FILE, cpu, settings.cpu_policy.value, damages, remarks),
            memory=_of_policy(MEMORY_FILE, memory, settings.memory_policy.value, damages, remarks),
            records=tuple(sorted(records, key=lambda record: (record.admitted_at, record.uid))),
            damages=tuple(damages),
            remarks=(*remarks, *(f"pods/{name} is not a pod record and was left alone" for name in strange)),
        )

    def _load(
        self, name: str, decode: Callable[[bytes], Decoded[S]], damages: list[Damage]
    ) -> Decoded[S] | None:
        raw = self.store.read(name)
        if raw is None:
            return None
        try:
            decoded = decode(raw)
        except StateError as error:
            damages.append(Damage.of(name, error))
            return None
        if not decoded.verified:
            damages.append(Damage(name, f"{name} could not be used: it has no checksum"))
            return None
        return decoded

    def _record(self, uid: PodUid, damages: list[Damage]) -> PodRecord | None:
        name = record_name(uid)
        raw = self.store.read(name)
        if raw is None:
            return None
        try:
            record = decode_record(raw)
        except StateError as error:
            damages.append(Damage.of(name, error))
            return None
        if record.uid != uid:
            damages.append(
                Damage(name, f"{name} could not be used: it is the record of pod uid {record.uid}")
            )
            return None
        return record

    def set_aside(self, name: str) -> str:
        """Keep a damaged file under another name, never delete it; returns the name.

        Raises StorageError; then the next `save` does it, before it writes anything.
        """
        self._asides.add(name)
        aside = self.store.quarantine(name, self.now()).name
        self._asides.discard(name)
        return aside

    def save(self, state: NodeState) -> None:
        """Write both checkpoints. Raises StorageError; each file is then the old or the new one."""
        self._unsaved = True
        for name in sorted(self._asides):
            if self.store.read(name) is None:  # it was, and then the directory could not be synced
                self._asides.discard(name)
            else:
                self.set_aside(name)
        for uid, record in sorted(self._owed.items()):
            self._settle(uid, record)
        cpu_policy, memory_policy = self.settings.cpu_policy.value, self.settings.memory_policy.value
        cpu = encode_cpu(cpu_policy, state.cpu, extra=self._cpu_extra, memo=self._cpu_memo)
        memory = encode_memory(memory_policy, state.memory, extra=self._memory_extra, memo=self._memory_memo)
        self.store.write_together({CPU_FILE: cpu, MEMORY_FILE: memory})
        self._unsaved = False

    def add(self, record: PodRecord) -> None:
        """Make a pod known. Raises StorageError, StateError for a pod that cannot be recorded."""
        self._settle(record.uid, record)

    def drop(self, uid: PodUid) -> None:
        """Make a pod unknown. Raises StorageError."""
        self._settle(uid, None)

    def owe(self, uid: PodUid, record: PodRecord | None) -> None:
        """Let the next `save` write a pod's record first, or remove it where there is to be none."""
        self._owed[uid] = record

    def _settle(self, uid: PodUid, record: PodRecord | None) -> None:
        """Bring one record to disk, or off it. Owed from now on, and no longer once that is done."""
        name = record_name(uid)
        data = None if record is None else encode_record(record)
        self._owed[uid] = record
        if data is None:
            self.store.remove(name)
        else:
            self.store.write(name, data)
        del self._owed[uid]


def _of_policy(
    name: str, decoded: Decoded[S] | None, policy: str, damages: list[Damage], remarks: list[str]
) -> S | None:
    """The state if the configured policy wrote it: another's holds what this one cannot keep, or nothing."""
    if decoded is None:
        return None
    try:
        require_policy(decoded, policy)
    except StateError as error:
        if decoded.state.entries or decoded.state.pod_entries:
            damages.append(Damage(name, f"{name}: {error.message}", aside=False))
        else:
            remarks.append(f"{name}: {error.message}; nothing was held, so it starts anew")
        return None
    return decoded.state
