"""What the host had before numalet confined it: remembered on disk, so that it can be given back.

Runtime settings do not outlive a boot, so what another boot wrote is forgotten.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from agent.checkpoint.store import HOST_FILE, Store
from agent.domain.idset import CpuSet
from agent.errors import StateError

SLICES: Final = "slices"
IRQS: Final = "irqs"
PARTITIONS: Final = "partitions"
_KINDS: Final = (SLICES, IRQS, PARTITIONS)
_BOOT: Final = "bootId"


class Originals:
    """CPU sets by kind (`SLICES`, `IRQS`) and name; an empty set means that nothing was set.

    Of `PARTITIONS` the names are cgroup roots below which there are some, their sets are empty.

    Writing raises StateError. A file that is no such record is an error, not a reason to forget.
    """

    def __init__(self, store: Store, boot_id: str) -> None:
        self._store = store
        self._boot_id = boot_id
        self._known: dict[str, dict[str, CpuSet]] | None = None

    def of(self, kind: str) -> Mapping[str, CpuSet]:
        """What is remembered of a kind."""
        return self._load()[kind]

    def remember(self, kind: str, found: Mapping[str, CpuSet]) -> None:
        """Remember, on disk when this returns, what is not remembered yet."""
        known = self._load()
        new = {name: cpus for name, cpus in found.items() if name not in known[kind]}
        if new:
            known[kind] |= new
            try:
                self._save()
            except StateError:
                self._known = None  # as on the disk
                raise

    def forget(self, kind: str) -> None:
        """All of a kind was given back."""
        known = self._load()
        known[kind] = {}
        if any(known.values()):
            self._save()
        else:
            self._store.remove(HOST_FILE)

    def _load(self) -> dict[str, dict[str, CpuSet]]:
        if self._known is None:
            raw = self._store.read(HOST_FILE)
            self._known = {kind: {} for kind in _KINDS} if raw is None else self._read(raw)
        return self._known

    def _read(self, raw: bytes) -> dict[str, dict[str, CpuSet]]:
        try:
            document = json.loads(raw)
            if document[_BOOT] != self._boot_id:
                return {kind: {} for kind in _KINDS}
            found = {PARTITIONS: {}} | document  # versions before 0.2 know of none
            return {kind: {name: CpuSet.parse(text) for name, text in found[kind].items()} for kind in _KINDS}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            hint = f"remove {HOST_FILE} from the state directory; a reboot undoes what it was to undo"
            raise StateError(
                f"{HOST_FILE} is no record of the host's own settings: {error}", hint=hint
            ) from error

    def _save(self) -> None:
        known = self._load()
        document = {
            _BOOT: self._boot_id,
            **{
                kind: {name: str(cpus) for name, cpus in sorted(sets.items())} for kind, sets in known.items()
            },
        }
        self._store.write(HOST_FILE, json.dumps(document, indent=1).encode() + b"\n")
