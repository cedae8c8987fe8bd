"""What a container that runs in a cgroup outside of our subtree is to have there.

Nothing of the pod's encloses that cgroup: what it would inherit or be limited by in its pod is written
to it itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from agent.cgroup import layout
from agent.cgroup.layout import CgroupDir
from agent.cgroup.tree import CPU_MAX, CPU_WEIGHT, CPUS, MEMORY_MAX, MEMS, Room, Setting, Wanted
from agent.cgroup.units import Unlimited, parse_cpu_max, parse_limit

BOUND_FILES: Final = (CPUS, MEMS, CPU_MAX, CPU_WEIGHT, MEMORY_MAX)
"""The files that are set there."""

_INHERITED: Final = (CPUS, MEMS)


def bound_settings(wanted: Wanted, pod: CgroupDir, container: str) -> Mapping[str, Setting]:
    """The contents by file for ``container`` of the pod planned at ``pod``; empty where it has no CPU.

    Sets are the nearest above, limits the tightest: each container's own, so several of them may use more
    together than their pod's limit.
    """
    places = (layout.container_dir(pod, container), layout.pooled_dir(pod, container))
    own = next((place for place in places if place in wanted.dirs), None)
    if own is None:
        return {}
    line = [wanted.dirs[place].settings for place in (own, *layout.ancestors(own)) if place in wanted.dirs]
    return dict(_settings(line))


def _settings(line: list[Mapping[str, Setting]]) -> Iterator[tuple[str, Setting]]:
    for file in BOUND_FILES:
        stated = [files[file] for files in line if file in files and not isinstance(files[file], Room)]
        if not stated:
            continue
        if file in _INHERITED or file == CPU_WEIGHT:
            yield file, stated[0]
        else:
            yield file, min(stated, key=lambda setting: _amount(setting.text))


def _amount(text: str) -> float:
    """A limit as a number: CPUs, or bytes."""
    if " " in text:
        bandwidth = parse_cpu_max(text)
        quota = bandwidth.quota
        return float("inf") if isinstance(quota, Unlimited) else quota / bandwidth.period
    limit = parse_limit(text)
    return float("inf") if isinstance(limit, Unlimited) else limit


def is_related(one: CgroupDir, other: CgroupDir) -> bool:
    """Whether two cgroups are the same, or one is in the other."""
    return one == other or one.startswith(f"{other}/") or other.startswith(f"{one}/")
