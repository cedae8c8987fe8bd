"""What a person can do about what is wrong with the node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from agent.containermanager.snapshot import Snapshot
from agent.containermanager.verdict import DISCOVERY_ERROR, ENFORCEMENT_ERROR, STORAGE_ERROR

_OF_FAILURE: Final[Mapping[str, str]] = {
    STORAGE_ERROR: "make room on, or repair, the disk of the state directory; writing is tried again every"
    " reconcile period",
    ENFORCEMENT_ERROR: "numalet verify says what the kernel lacks; it is tried again every reconcile period",
    DISCOVERY_ERROR: "see: journalctl -u numalet; the machine is looked at again every reconcile period",
}
_OF_MANIFEST: Final = "correct the file: it is read again as soon as it changes"


def remedy_of(snapshot: Snapshot, problem: str) -> str:
    """The way out of one of the snapshot's ``troubles``, empty where there is nothing to be done."""
    if problem in snapshot.failures:
        return _OF_FAILURE.get(problem.partition(":")[0], "")
    if problem in snapshot.manifests:
        return _OF_MANIFEST
    for uid in snapshot.degraded:
        name = snapshot.pods[uid].pod.full_name
        if problem.startswith(f"pod {name} is degraded"):
            return f"bring back what is missing, or place it anew: numalet delete {name}, then apply it"
    return ""
