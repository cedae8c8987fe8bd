"""What a reload changes: which values take effect now, and which with a restart."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from agent.config.model import Config
from agent.config.table import FIELDS, Field, Reload


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One key whose value is another; values as `dump` writes them, None where left open."""

    key: str
    before: Any
    after: Any
    reload: Reload

    def __str__(self) -> str:
        """Render as ``logLevel: info -> debug``."""
        return f"{self.key}: {_shown(self.before)} -> {_shown(self.after)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloaded:
    """``config`` is what is in force then; ``refused`` says what is wrong, and then nothing changes."""

    config: Config
    live: tuple[Change, ...] = ()
    restart: tuple[Change, ...] = ()
    refused: tuple[str, ...] = ()


def reloaded(running: Config, wanted: Config) -> Reloaded:
    """What becomes of ``running`` where the file now says ``wanted``."""
    changed = [
        field for field in FIELDS.values() if getattr(running, field.name) != getattr(wanted, field.name)
    ]
    live = [field for field in changed if field.reload is not Reload.RESTART]
    values = {field.name: getattr(wanted, field.name) for field in live}
    return Reloaded(
        config=replace(running, **values),
        live=tuple(_change(field, running, wanted) for field in live),
        restart=tuple(_change(field, running, wanted) for field in changed if field not in live),
    )


def _change(field: Field, running: Config, wanted: Config) -> Change:
    before, after = field.written(running), field.written(wanted)
    return Change(key=field.key, before=before, after=after, reload=field.reload)


def _shown(value: Any) -> str:
    return "(computed)" if value is None else f'"{value}"' if isinstance(value, str) else str(value)
