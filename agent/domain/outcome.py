"""What a manager's step gives back: the next state, what a pod may reuse, and the trace."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from agent.domain.trace import Trace

S = TypeVar("S")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[S, R]):
    """A manager's next ``state``; ``reuse`` is what later containers of the same pod may take over."""

    state: S
    reuse: R
    steps: Trace = ()


class Isolation(Enum):
    """How far a container is kept apart, per manager (KEP-5526, resource isolation level)."""

    HOST = "host"
    """No entry: it lives in the node shared pool."""
    POD = "pod"
    """It lives in its pod's shared pool."""
    CONTAINER = "container"
    """It holds an exclusive slice."""
