"""The machine the owner works on: topology, settings, and the managers made for both."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Self

from agent.admission import Managers, new_managers
from agent.config.check import memory_hint
from agent.domain.idset import NO_CPUS, CpuSet
from agent.domain.settings import Settings
from agent.domain.state import CpuState
from agent.domain.topology import Topology
from agent.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Machine:
    """One topology under one set of settings. Not slotted: what each pod's plan asks for is worked out once."""

    topology: Topology
    settings: Settings
    managers: Managers

    @classmethod
    def of(cls, topology: Topology, settings: Settings, arithmetic: str) -> Self:
        """Build the managers; raises ConfigError with ``arithmetic`` where reserved memory does not add up."""
        try:
            managers = new_managers(settings, topology)
        except ConfigError as error:
            error.hint = memory_hint(error, arithmetic)
            raise
        return cls(topology=topology, settings=settings, managers=managers)

    @cached_property
    def withheld(self) -> CpuSet:
        """The CPUs that no pod is given, not to share either: none where no CPU policy hands any out."""
        shareable = self.managers.cpu.adapted(CpuState()).default
        return self.topology.online - shareable if shareable else NO_CPUS

    def sparing(self, held: CpuSet) -> Self:
        """The machine that reserves CPUs nobody holds, where there are and the operator named none.

        Which ones the topology suggests changes as CPUs come and go.
        """
        reserved = self.managers.cpu.reserved
        free = self.topology.online - held - reserved
        wanted = len(reserved & held)
        if self.settings.reserved_cpus is not None or not wanted or len(free) < wanted:
            return self
        settings = replace(self.settings, reserved_cpus=reserved - held | CpuSet.of(islice(free, wanted)))
        return replace(self, settings=settings, managers=new_managers(settings, self.topology))
