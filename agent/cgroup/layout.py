"""Where each pod's and container's cgroup is, below our root; names follow the kubelet.

``pod<uid>`` for Guaranteed pods, ``burstable/pod<uid>`` and ``besteffort/pod<uid>`` for the others;
inside a pod ``<container>`` stands apart and ``shared.pool/<container>`` shares. Interface files have
a dot in their name and container names (DNS labels) have none, so the two never collide.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from functools import lru_cache
from typing import Final, NewType

from agent.domain.pod import PodUid
from agent.domain.qos import QosClass

CgroupDir = NewType("CgroupDir", str)
"""A cgroup's path below our root, ``/``-separated, without leading slash."""

ROOT: Final = CgroupDir("")
BURSTABLE: Final = CgroupDir("burstable")
BEST_EFFORT: Final = CgroupDir("besteffort")
SHARED_POOL: Final = "shared.pool"
POD_PREFIX: Final = "pod"
QOS_DIRS: Final = (BEST_EFFORT, BURSTABLE)

_UID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,198}[A-Za-z0-9])?", re.ASCII)
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_QOS_PARENT: Final = {
    QosClass.GUARANTEED: ROOT,
    QosClass.BURSTABLE: BURSTABLE,
    QosClass.BEST_EFFORT: BEST_EFFORT,
}


class Kind(Enum):
    """What a directory below our root is."""

    ROOT = "root"
    QOS = "QoS class"
    POD = "pod"
    POOL = "shared pool of a pod"
    CONTAINER = "container of its own"
    POOLED = "container in the shared pool"
    NESTED = "made by a workload"
    FOREIGN = "not ours"


@lru_cache(maxsize=4096)
def kind_of(directory: CgroupDir) -> Kind:
    """Tell what ``directory`` is, from its path alone."""
    parts = directory.split("/") if directory else []
    if not parts:
        return Kind.ROOT
    if parts[0] in QOS_DIRS:
        del parts[0]
        if not parts:
            return Kind.QOS
    if not (parts[0].startswith(POD_PREFIX) and _UID.fullmatch(parts[0][len(POD_PREFIX) :])):
        return Kind.FOREIGN
    return _inside_pod(parts[1:])


def _inside_pod(parts: list[str]) -> Kind:
    match parts:
        case []:
            return Kind.POD
        case [name] if name == SHARED_POOL:
            return Kind.POOL
        case [name] if _LABEL.fullmatch(name):
            return Kind.CONTAINER
        case [pool, name] if pool == SHARED_POOL and _LABEL.fullmatch(name):
            return Kind.POOLED
    return Kind.NESTED


def pod_dir(uid: PodUid, qos: QosClass) -> CgroupDir:
    """The pod's cgroup; ValueError if ``uid`` cannot be a directory name."""
    if not _UID.fullmatch(uid):
        raise ValueError(f"pod uid {uid!r} cannot name a cgroup (letters, digits, '-', '_' and '.')")
    return child(_QOS_PARENT[qos], POD_PREFIX + uid)


def container_dir(pod: CgroupDir, name: str) -> CgroupDir:
    """The cgroup of a container that stands apart; ValueError if ``name`` is no DNS label."""
    if not _LABEL.fullmatch(name):
        raise ValueError(f"container name {name!r} cannot name a cgroup (a DNS label is expected)")
    return child(pod, name)


def pool_dir(pod: CgroupDir) -> CgroupDir:
    """The cgroup of everything in the pod that does not stand apart."""
    return child(pod, SHARED_POOL)


def pooled_dir(pod: CgroupDir, name: str) -> CgroupDir:
    """The cgroup of a container in its pod's shared pool; ValueError if ``name`` is no DNS label."""
    return container_dir(pool_dir(pod), name)


def container_of(directory: CgroupDir) -> tuple[PodUid, str] | None:
    """The pod and container whose cgroup this is, None if it is no container's."""
    kind = kind_of(directory)
    if kind not in {Kind.CONTAINER, Kind.POOLED}:
        return None
    parts = directory.split("/")
    pod = parts[-2] if kind is Kind.CONTAINER else parts[-3]
    return PodUid(pod.removeprefix(POD_PREFIX)), parts[-1]


def child(parent: CgroupDir, name: str) -> CgroupDir:
    """The directory ``name`` in ``parent``."""
    return CgroupDir(f"{parent}/{name}" if parent else name)


def parent_of(directory: CgroupDir) -> CgroupDir:
    """The directory that holds ``directory``; the root holds itself."""
    return CgroupDir(directory.rpartition("/")[0])


def ancestors(directory: CgroupDir) -> Iterator[CgroupDir]:
    """The directories above ``directory``, nearest first, the root left out."""
    while directory := parent_of(directory):
        yield directory


@lru_cache(maxsize=4096)
def group_of(directory: CgroupDir) -> CgroupDir:
    """The pod's cgroup that ``directory`` is or is in; the root for what is in none."""
    line = (directory, *ancestors(directory))
    return next((one for one in line if kind_of(one) is Kind.POD), ROOT)


def pod_uid_of(directory: CgroupDir) -> PodUid | None:
    """The pod whose cgroup ``directory`` is or is in, None if there is none."""
    group = group_of(directory)
    return PodUid(group.rpartition("/")[2].removeprefix(POD_PREFIX)) if group else None
