"""The answer to a pod that was handed in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from agent.checkpoint.store import StorageError
from agent.containermanager.binder import BindingError
from agent.containermanager.snapshot import AdmittedPod, EndedPod
from agent.domain.pod import Pod
from agent.errors import HostError, NumaletError

ALREADY_EXISTS: Final = "AlreadyExists"
"""Another pod holds the name or the uid; nothing was decided."""
STORAGE_ERROR: Final = "StorageError"
ENFORCEMENT_ERROR: Final = "EnforcementError"
DISCOVERY_ERROR: Final = "DiscoveryError"
"""The machine changed and could not be looked at since: nobody knows what there is to give."""
BINDING_ERROR: Final = "BindingError"
"""A container cannot be the unit or cgroup that its pod's annotation names."""
INVALID_POD: Final = "InvalidPod"
"""The pod's uid cannot name a file or a cgroup, or its manifest cannot be stored."""
UID_IN_USE: Final = "UidInUse"
"""Processes of an earlier pod of this uid are in the way."""
PASSING: Final = frozenset({BINDING_ERROR, UID_IN_USE})
"""The pod fits; the machine lacks what it is bound to, or is not rid of something yet. No fault of the node's."""
MACHINE_FAULTS: Final = PASSING | {STORAGE_ERROR, ENFORCEMENT_ERROR, DISCOVERY_ERROR}
"""The pod fits, and the machine is not ready for it. It may be handed in again."""


def fault_of(error: NumaletError) -> str:
    """The reason to give for an admission that was undone."""
    if isinstance(error, StorageError):
        return STORAGE_ERROR
    if isinstance(error, BindingError):
        return BINDING_ERROR
    return ENFORCEMENT_ERROR if isinstance(error, HostError) else INVALID_POD


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


def uid_in_use(pod: Pod, left: Sequence[str]) -> tuple[str, str, str]:
    """The words of the refusal of a pod that has no container for the processes in ``left``, which are cgroups."""
    message = f"processes of an earlier pod of uid {pod.uid} run in {', '.join(left)}, which are no containers of this one"
    return UID_IN_USE, message, "end them, apply the pod as it was, or give this one another uid"


def name_taken(pod: Pod, held: AdmittedPod | EndedPod, *, is_leaving: bool) -> Verdict:
    """The verdict on a pod whose uid or name ``held`` has."""
    who, has_ended = f"pod {held.pod.full_name} (uid {held.pod.uid})", isinstance(held, EndedPod)
    if held.pod == pod and not is_leaving:
        message = f"it ended; to run it again: numalet delete {pod.full_name}" if has_ended else ""
        return Verdict(pod=pod, kind=VerdictKind.UNCHANGED, message=message)
    if is_leaving:
        message, remedy = f"{who} is being removed", "try again when it is gone"
    else:
        other = "another spec" if held.pod.uid == pod.uid else f"another uid than {pod.uid}"
        became = "has ended" if has_ended else "is already admitted"
        message = f"{who} from {held.source} {became} with {other}"
        remedy = f"first: numalet delete {held.pod.full_name}"
    return Verdict(pod=pod, kind=VerdictKind.REJECTED, reason=ALREADY_EXISTS, message=message, remedy=remedy)
