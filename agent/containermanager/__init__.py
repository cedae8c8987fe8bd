"""The owner of `NodeState`: admits and removes pods, keeps disk and kernel in line with it."""

from agent.containermanager.observing import Decided, Stage
from agent.containermanager.owner import ContainerManager
from agent.containermanager.snapshot import AdmittedPod, EndedPod, RejectedPod, Snapshot
from agent.containermanager.verdict import ALREADY_EXISTS, MACHINE_FAULTS, Verdict, VerdictKind

__all__ = [
    "ALREADY_EXISTS",
    "MACHINE_FAULTS",
    "AdmittedPod",
    "ContainerManager",
    "Decided",
    "EndedPod",
    "RejectedPod",
    "Snapshot",
    "Stage",
    "Verdict",
    "VerdictKind",
]
