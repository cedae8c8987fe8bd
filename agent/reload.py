"""Reading the configuration again while pods run: what changes now, what waits, what is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from threading import Lock
from typing import Any, Final

from agent.config.changes import Change, Reloaded, reloaded
from agent.config.effective import effective
from agent.config.model import Config
from agent.config.source import ConfigSource
from agent.config.table import FIELDS, Reload
from agent.containermanager import ContainerManager
from agent.containermanager.events import EventKind
from agent.containermanager.machine import Machine
from agent.errors import ConfigError, NumaletError
from agent.systemd import Notifier

Json = dict[str, Any]
Apply = Callable[[Config], None]
"""Brings one changed value into force; raises NumaletError where that fails, everything as before."""


class Configuration:
    """The configuration in force. Safe to call from several threads."""

    def __init__(
        self,
        source: ConfigSource,
        config: Config,
        owner: ContainerManager,
        look: Callable[[Config], Machine],
        notifier: Notifier,
    ) -> None:
        self.current = config
        self.live: Mapping[str, Apply] = {}
        """How each key that changes at once is brought into force."""
        self._source = source
        self._owner = owner
        self._look = look
        self._notifier = notifier
        self._lock: Final = Lock()

    def reload(self) -> Reloaded:
        """Read the file again. A problem in it changes nothing and stays in the status until it is mended."""
        with self._lock:
            self._notifier.reloading()
            try:
                outcome = self._reload()
                self.current = outcome.config
                pending = tuple(f"{change} (with a restart)" for change in outcome.restart)
                self._owner.configuration_state(outcome.refused, pending)
                self._tell(outcome)
            finally:
                self._notifier.ready(self._owner.status_line())
            return outcome

    def _reload(self) -> Reloaded:
        try:
            wanted = self._source.load_for(self._owner.snapshot().topology)
            outcome = reloaded(self.current, wanted)
            if any(change.reload is Reload.NEW_PODS for change in outcome.live):
                self._owner.configured(self._look(outcome.config))
        except ConfigError as error:
            text = f"{error.message} ({error.hint})" if error.hint else error.message
            return Reloaded(config=self.current, refused=tuple(text.split("\n")))
        except NumaletError as error:
            return Reloaded(config=self.current, refused=(error.message,))
        return self._applied(outcome, wanted)

    def _applied(self, outcome: Reloaded, wanted: Config) -> Reloaded:
        """Bring the live changes into force; one that fails is refused, and its value stays."""
        config, refused, done = outcome.config, [], []
        for change in outcome.live:
            try:
                if change.key in self.live:
                    self.live[change.key](wanted)
            except NumaletError as error:
                name = FIELDS[change.key].name
                config = replace(config, **{name: getattr(self.current, name)})
                refused.append(f"{change.key}: {error.message} ({error.hint})")
            else:
                done.append(change)
        return replace(outcome, config=config, live=tuple(done), refused=tuple(refused))

    def _tell(self, outcome: Reloaded) -> None:
        events = self._owner.events
        for text in outcome.refused:
            events.add(EventKind.CONFIGURATION_REFUSED, f"configuration refused: {text}")
        for change in outcome.live:
            when = change.reload.value
            events.add(EventKind.CONFIGURATION_CHANGED, f"configuration changed: {change} ({when})")
        for change in outcome.restart:
            text = f"configuration changed: {change} needs a restart"
            events.add(EventKind.CONFIGURATION_CHANGED, text)
        if not (outcome.refused or outcome.live or outcome.restart):
            text = f"configuration read again: nothing has changed in {self._source.name}"
            events.add(EventKind.CONFIGURATION_CHANGED, text)

    # --- what the control API shows -----------------------------------------------------------

    def reload_json(self) -> Json:
        """Reload, and what came of it."""
        outcome = self.reload()
        return {
            "live": [_json(change) for change in outcome.live],
            "restart": [_json(change) for change in outcome.restart],
            "refused": list(outcome.refused),
        }

    def effective_json(self) -> Json:
        """The whole configuration in force, with what was computed."""
        shot = self._owner.snapshot()
        made = effective(self.current, shot.topology, shot.managers.cpu.reserved)
        return {
            "source": f"the running daemon ({self._source.name})",
            "config": dict(made.document),
            "computed": dict(made.why),
        }


def _json(change: Change) -> Json:
    return {"key": change.key, "before": change.before, "after": change.after, "text": str(change)}
