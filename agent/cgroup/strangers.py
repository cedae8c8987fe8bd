"""Cgroups of pods that nobody knows.

One without processes is removed like any other that is not planned. One with processes stays, whoever
they are, but is confined to the node shared pool, so that no slice is ever shared with it. Every cpuset
in it is set, not only the pod's: should the pod become known, nothing in it has a wider set to fall
back to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from agent.cgroup import layout
from agent.cgroup.layout import CgroupDir, Kind
from agent.cgroup.tree import CPUS, CPUS_EFFECTIVE, Observed, Setting, Wanted, WantedDir, cpus_in, top_down
from agent.domain.idset import NO_CPUS, CpuSet

_CONFINED = frozenset({Kind.POD, Kind.POOL, Kind.CONTAINER})


def strangers(wanted: Wanted, observed: Observed) -> Mapping[CgroupDir, CpuSet]:
    """The populated cgroups of pods that are not wanted, each with the CPUs its processes may run on."""
    found = [directory for directory in observed.dirs if _is_strange(directory, wanted, observed)]
    return {pod: _cpus_of(pod, observed) for pod in top_down(found)}


def _is_strange(directory: CgroupDir, wanted: Wanted, observed: Observed) -> bool:
    return (
        directory not in wanted.dirs
        and directory not in wanted.held
        and layout.kind_of(directory) is Kind.POD
        and observed.dirs[directory].populated
    )


def _cpus_of(pod: CgroupDir, observed: Observed) -> CpuSet:
    """What the innermost cgroups that we read may use; those a workload made lie within them."""
    cpus = NO_CPUS
    for directory in _within(pod, observed):
        seen = observed.dirs[directory]
        if seen.populated and layout.kind_of(directory) is not Kind.POD:
            cpus |= cpus_in(seen.files.get(CPUS_EFFECTIVE, ""))
    return cpus or cpus_in(observed.dirs[pod].files.get(CPUS_EFFECTIVE, ""))


def _within(pod: CgroupDir, observed: Observed) -> Iterator[CgroupDir]:
    return (d for d in observed.dirs if d == pod or d.startswith(pod + "/"))


def confining(wanted: Wanted, observed: Observed) -> Wanted:
    """``wanted``, and all strangers in the node shared pool; where that is empty they are left as they are."""
    shared = {CPUS: Setting(str(wanted.shared))} if wanted.shared else {}
    kept = {
        directory: WantedDir(settings=shared if _is_to_confine(directory, wanted, observed) else {})
        for pod in strangers(wanted, observed)
        for directory in _within(pod, observed)
    }
    if not kept:
        return wanted
    dirs = {**wanted.dirs, **kept}
    return replace(wanted, dirs={directory: dirs[directory] for directory in top_down(dirs)})


def _is_to_confine(directory: CgroupDir, wanted: Wanted, observed: Observed) -> bool:
    """Whether it is one of ours with a cpuset, or gets one as soon as the controller is enabled above it."""
    above = wanted.dirs.get(layout.parent_of(directory))
    has_cpuset = CPUS in observed.dirs[directory].files or (above is not None and "cpuset" in above.subtree)
    return has_cpuset and layout.kind_of(directory) in _CONFINED
