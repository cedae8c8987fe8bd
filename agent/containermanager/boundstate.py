"""What bound units and cgroups had before they were bound: remembered on disk, so that it can be given back.

Neither outlives a boot, so what another boot wrote is forgotten.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from agent.checkpoint.store import BINDINGS_FILE, Store
from agent.domain.binding import Binding, BindingKind
from agent.errors import StateError

_BOOT: Final = "bootId"

Texts = Mapping[str, str]
"""Unit properties by name, or cgroup files by name, as texts."""


class BoundOriginals:
    """By binding. Writing raises StateError. A file that is no such record is an error, not a reason to forget."""

    def __init__(self, store: Store, boot_id: str) -> None:
        self._store = store
        self._boot_id = boot_id
        self._known: dict[Binding, Texts] | None = None

    def all(self) -> Mapping[Binding, Texts]:
        """All that is remembered."""
        if self._known is None:
            raw = self._store.read(BINDINGS_FILE)
            self._known = {} if raw is None else self._read(raw)
        return self._known

    def remember(self, binding: Binding, found: Texts) -> None:
        """Remember, on disk when this returns."""
        self._write({**self.all(), binding: found})

    def forget(self, binding: Binding) -> None:
        """It was given back, or is gone."""
        self._write({other: found for other, found in self.all().items() if other != binding})

    def _write(self, known: dict[Binding, Texts]) -> None:
        document: dict[str, Any] = {_BOOT: self._boot_id}
        for kind in BindingKind:
            document[kind.value] = {b.name: dict(known[b]) for b in sorted(known, key=str) if b.kind is kind}
        if known:
            self._store.write(BINDINGS_FILE, json.dumps(document, indent=1).encode() + b"\n")
        else:
            self._store.remove(BINDINGS_FILE)
        self._known = known

    def _read(self, raw: bytes) -> dict[Binding, Texts]:
        try:
            document = json.loads(raw)
            if document[_BOOT] != self._boot_id:
                return {}
            return {
                Binding(kind, name): {file: str(text) for file, text in found.items()}
                for kind in BindingKind
                for name, found in document[kind.value].items()
            }
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            hint = f"remove {BINDINGS_FILE} from the state directory; a reboot undoes what it was to undo"
            raise StateError(
                f"{BINDINGS_FILE} is no record of what bound units had before: {error}", hint=hint
            ) from error
