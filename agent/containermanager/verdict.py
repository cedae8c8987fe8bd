"""The answer to a pod that was handed in."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from agent.domain.pod import Pod

ALREADY_EXISTS: Final = "AlreadyExists"
"""Another pod holds the name or the uid; nothing was decided."""
STORAGE_ERROR: Final = "StorageError"
ENFORCEMENT_ERROR: Final = "EnforcementError"
INVALID_POD: Final = "InvalidPod"
"""The pod's uid cannot name a file or a cgroup, or its manifest cannot be stored."""
MACHINE_FAULTS: Final = frozenset({STORAGE_ERROR, ENFORCEMENT_ERROR})
"""The pod fits; the machine failed. It may be handed in again."""


class VerdictKind(Enum):
    """What became of a pod that was handed in."""

    ADMITTED = "admitted"
    UNCHANGED = "unchanged"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The answer to `ContainerManager.admit`; ``reason`` and what follows only for a refusal."""

    pod: Pod
    kind: VerdictKind
    reason: str = ""
    message: str = ""
    remedy: str = ""
