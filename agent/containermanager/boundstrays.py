"""Who else may run on the exclusive CPUs that a slice keeps for a bound container in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from agent.cgroup.backend import CgroupBackend, EnforcementError
from agent.cgroup.bound import is_related
from agent.cgroup.layout import CgroupDir, ancestors
from agent.cgroup.tree import CPUS_EFFECTIVE, cpus_in
from agent.domain.idset import NO_CPUS, CpuSet


def strays(outside: CgroupBackend, bound: Sequence[tuple[str, CgroupDir, CpuSet]]) -> Iterator[str]:
    """A sentence for each cgroup beside one of ``bound`` (name, place, exclusive CPUs), or beside one above it."""
    places = [place for _, place, _ in bound]
    for name, place, exclusive in bound:
        for above in ancestors(place):
            for other in _beside(outside, above, places):
                cpus = _used(outside, other) & exclusive
                if cpus:
                    yield f"cgroup {other} may run on CPUs {cpus}, too, which {above} keeps for {name}: move it out"


def _beside(outside: CgroupBackend, above: CgroupDir, places: Sequence[CgroupDir]) -> Iterator[CgroupDir]:
    """The cgroups in ``above`` that nothing is bound to, nor anything in them."""
    with suppress(EnforcementError):  # it is not there
        for other in outside.children(above):
            if not any(is_related(other, place) for place in places):
                yield other


def _used(outside: CgroupBackend, place: CgroupDir) -> CpuSet:
    with suppress(EnforcementError):  # it goes
        if outside.populated(place):
            return cpus_in(outside.read(place, CPUS_EFFECTIVE))
    return NO_CPUS
