"""Where cpuset partitions were made, so that they can be dissolved when no daemon runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from agent.cgroup.backend import CgroupBackend, apply
from agent.cgroup.diff import diff
from agent.cgroup.tree import Wanted, WantedDir, top_down
from agent.containermanager.hoststate import PARTITIONS, Originals
from agent.domain.idset import NO_CPUS


class HostPartitions:
    """The partitions below ``root``, remembered beside what the host had. Raises StateError."""

    def __init__(self, root: str, originals: Originals) -> None:
        self._root = root
        self._originals = originals

    def begin(self) -> None:
        """There will be some: remembered when this returns."""
        self._originals.remember(PARTITIONS, {self._root: NO_CPUS})


def dissolve(originals: Originals, backend: Callable[[Path], CgroupBackend]) -> None:
    """Make members of all partitions there may be, and leave everything else as it is. Raises HostError, StateError."""
    roots = originals.of(PARTITIONS)
    for root in roots:
        cgroups = backend(Path(root))
        seen = cgroups.observe()
        as_it_is = Wanted(dirs={directory: WantedDir() for directory in top_down(seen.dirs)})
        apply(cgroups, diff(as_it_is, seen))
    if roots:
        originals.forget(PARTITIONS)
