"""What is wrong with the node: failures that make it not ready, and problems to know of."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from agent.errors import HostError, StateError

T = TypeVar("T")

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Health:
    """Failures by kind, until the same work succeeds; problems by who found them. Its owner locks."""

    failures: dict[str, str] = field(default_factory=dict)
    recovery: tuple[str, ...] = ()
    hardware: tuple[str, ...] = ()
    manifests: tuple[str, ...] = ()

    @property
    def problems(self) -> tuple[str, ...]:
        """All of them, as sentences."""
        return (*self.recovery, *self.hardware, *self.manifests)

    def mending(self, kind: str, work: Callable[[], T]) -> T | None:
        """Do ``work`` and outlive its failure (then None): it is told once, and so is its end."""
        try:
            done = work()
        except (StateError, HostError) as error:
            if self.failures.get(kind) != error.message:
                log.error("not ready: %s: %s", kind, error.message)  # noqa: TRY400 - a clear sentence needs no traceback
            self.failures[kind] = error.message
            return None
        if self.failures.pop(kind, None) is not None:
            log.info("ready again: no %s any more", kind)
        return done
