"""Checks of a stored CPU state against this machine and these settings, with the kubelet's texts."""

from __future__ import annotations

from dataclasses import dataclass, replace

from agent.domain.idset import CpuSet, union
from agent.domain.state import CpuState
from agent.errors import StateError


@dataclass(frozen=True, slots=True, kw_only=True)
class StateCheck:
    """``online`` are the CPUs a state must account for: all, less strictly reserved ones."""

    online: CpuSet
    reserved: CpuSet
    strict_reservation: bool
    pod_entries: bool

    def restored(self, state: CpuState) -> CpuState:
        """The state to go on with; an empty one becomes the initial one. Raises StateError."""
        if not self.pod_entries and state.pod_entries:
            state = replace(state, pod_entries={})
        if not state.default:
            if state.entries:
                raise StateError("default cpuset cannot be empty")
            return replace(state, default=self.online)
        self._check_reserved(state)
        self._check_disjoint(state)
        self._check_complete(state)
        return state

    def _check_reserved(self, state: CpuState) -> None:
        shared = self.reserved & state.default
        if self.strict_reservation:
            if shared:
                raise StateError(
                    f'some of strictly reserved cpus: "{shared}" are present in defaultCpuSet: "{state.default}"'
                )
        elif shared != self.reserved:
            raise StateError(
                f'not all reserved cpus: "{self.reserved}" are present in defaultCpuSet: "{state.default}"'
            )

    def _check_disjoint(self, state: CpuState) -> None:
        for uid, containers in sorted(state.entries.items()):
            for name, cpus in sorted(containers.items()):
                if not cpus.isdisjoint(state.default):
                    raise StateError(
                        f'pod: {uid}, container: {name} cpuset: "{cpus}" overlaps with'
                        f' default cpuset "{state.default}"'
                    )

    def _check_complete(self, state: CpuState) -> None:
        known = state.default | union(state.pod_entries.values())
        known |= union(cpus for containers in state.entries.values() for cpus in containers.values())
        if known != self.online:
            raise StateError(
                f'current set of available CPUs "{self.online}" doesn\'t match with CPUs in state "{known}"'
            )
