"""Quality of service: of a pod, and of one container inside a pod with pod-level resources.

Sources: KEP-2837 (pod-level resources), KEP-5526 (Guaranteed-equivalent containers).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from operator import attrgetter

from agent.domain.pod import Container, Pod, Resources

_is_pinned = attrgetter("is_pinned")
_is_stated = attrgetter("is_stated")


class QosClass(Enum):
    """`.status.qosClass`."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


def qos_class(pod: Pod) -> QosClass:
    """The pod's class: from `.spec.resources` alone where it is set, else from all containers."""
    if pod.has_pod_level_resources:
        return _class_of([pod.resources])
    return _class_of([container.resources for container in pod.containers])


def is_guaranteed_equivalent(container: Container) -> bool:
    """KEP-5526: cpu and memory both non-zero, each request equal to its limit."""
    return container.resources.is_pinned


def why_qos(pod: Pod) -> str:
    """One clause that says what the class follows from."""
    where = ".spec.resources" if pod.has_pod_level_resources else "its containers"
    match qos_class(pod):
        case QosClass.GUARANTEED:
            return f"every cpu and memory request in {where} equals its limit"
        case QosClass.BURSTABLE:
            return f"{where} state cpu or memory, but not every request equals its limit"
        case QosClass.BEST_EFFORT:
            return f"{where} state no cpu or memory"


def _class_of(stated: Sequence[Resources]) -> QosClass:
    if stated and all(map(_is_pinned, stated)):
        return QosClass.GUARANTEED
    return QosClass.BURSTABLE if any(map(_is_stated, stated)) else QosClass.BEST_EFFORT
