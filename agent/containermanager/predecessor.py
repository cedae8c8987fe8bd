"""Processes that an earlier pod of the same uid left: its record was lost, they live on as a stranger's.

A pod that has a container for each of them takes them over. One that has not would let them loose on its own
CPUs, since they are inside of its cgroup, so it has to wait until they are gone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from agent.cgroup import layout
from agent.cgroup.backend import CgroupBackend
from agent.cgroup.layout import CgroupDir, Kind
from agent.cgroup.tree import top_down
from agent.domain.pod import PodUid
from agent.domain.qos import QosClass

_INNER = frozenset({Kind.POD, Kind.POOL})


def left_behind(cgroups: CgroupBackend, uid: PodUid, own: Collection[CgroupDir]) -> tuple[CgroupDir, ...]:
    """The cgroups of pods of this uid, of any QoS class, in which processes live and that are not among ``own``.

    ``own`` are the containers' of the pod that is to come. Raises HostError, and ValueError for a uid that
    cannot name a cgroup.
    """
    return tuple(
        directory
        for qos in QosClass
        if cgroups.exists(pod := layout.pod_dir(uid, qos))
        for directory in _inhabited(cgroups, pod)
        if directory not in own
    )


def _inhabited(cgroups: CgroupBackend, pod: CgroupDir) -> Iterator[CgroupDir]:
    """The containers of a pod, or whatever is in their place, with processes; itself and its pool if they have any."""
    for directory in top_down(cgroups.observe(pod).dirs):
        if layout.kind_of(directory) in _INNER:
            is_inhabited = bool(cgroups.procs(directory))
        else:
            is_topmost = layout.kind_of(layout.parent_of(directory)) in _INNER
            is_inhabited = is_topmost and cgroups.populated(directory)
        if is_inhabited:
            yield directory
