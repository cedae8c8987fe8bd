"""What the owner tells of its work while it does it: each verdict, and how long each stage took."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import Enum

from agent.admission import Managers
from agent.domain.pod import Pod
from agent.domain.trace import Refused, Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A verdict and how it came about; ``reason`` is empty for a pod that was admitted.

    ``trace`` is empty where the machine could not be looked at, so that nothing was decided.
    """

    pod: Pod
    managers: Managers
    trace: Trace
    reason: str = ""

    @property
    def is_undone(self) -> bool:
        """Whether the pod fitted, and what it was given was taken back: disk or kernel failed."""
        return bool(self.reason) and not any(isinstance(step, Refused) for step in self.trace)


class Stage(Enum):
    """The parts of an admission that take time."""

    DECIDE = "decide"
    PERSIST = "persist"
    ENFORCE = "enforce"


Observer = Callable[[Decided], None]
Timed = Callable[[Stage], AbstractContextManager[None]]
"""A context that is entered for the time of one stage."""


def untimed(_stage: Stage) -> AbstractContextManager[None]:
    """A `Timed` that looks at no clock."""
    return nullcontext()
