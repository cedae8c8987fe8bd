"""Choosing the NUMA nodes of one allocation from the merged hint (KEP-1769, Allocate).

Without affinity the manager takes the best of its own hints; where the merged affinity alone does
not suffice, the best of its own hints that contain it. A preferred hint stays preferred, or the
allocation is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.domain.hints import AnyNode, Hint, Hints
from agent.domain.idset import NodeMask
from agent.domain.pod import ResourceName
from agent.domain.quantity import Quantity
from agent.domain.settings import Fidelity
from agent.domain.state import NodeMemory
from agent.errors import AdmissionError
from agent.memorymanager.hintsearch import SingleOrMulti, best_mask, calculate_hints, containing, satisfies
from agent.memorymanager.machinestate import MachineState
from agent.memorymanager.requests import Requests
from agent.memorymanager.reuse import MemoryReuse


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """One request on one machine state, looking for nodes."""

    machine: MachineState
    requests: Requests
    reuse: MemoryReuse
    fidelity: Fidelity

    def choose(self, hint: Hint) -> NodeMask:
        """The nodes to allocate on; raises AdmissionError in the kubelet's words."""
        nodes, preferred = hint.affinity, hint.preferred
        if isinstance(nodes, AnyNode):
            hints = self._default_hints()
            nodes = self._best(hints, preferred=preferred, which="default")
            preferred = bool(hints.preferred)
        rule = SingleOrMulti.of(self.machine)
        splits = self.fidelity is Fidelity.SAFE and rule.would_split(nodes.bits)
        if splits or not satisfies(self.machine, nodes, self.requests):
            nodes = self._best(self._extended_hints(nodes), preferred=preferred, which="extended")
        if rule.violated_by(nodes.bits):
            raise self._refusal("preferred hint violates NUMA node allocation")
        return nodes

    def _default_hints(self) -> Hints:
        hints = calculate_hints(self.machine, self.requests, self.reuse)
        if hints is None:
            raise self._refusal(
                "failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"
            )
        return hints

    def _extended_hints(self, nodes: NodeMask) -> Hints:
        hints = calculate_hints(self.machine, self.requests, self.reuse)
        extended = containing(hints, nodes) if hints else None
        if extended is None:
            raise self._refusal("failed to find NUMA nodes to extend the current topology hint")
        return extended

    def _best(self, hints: Hints, *, preferred: bool, which: str) -> NodeMask:
        if preferred and not hints.preferred:
            raise self._refusal(f"failed to find the {which} preferred hint")
        return best_mask(hints)

    def _refusal(self, message: str) -> AdmissionError:
        return AdmissionError(f"[memorymanager] {message}", hint=self._situation())

    def _situation(self) -> str:
        """Per NUMA node what there is of each requested type, for people."""
        wanted = ", ".join(f"{kind} {Quantity.bytes(size)}" for kind, size in self.requests.items())
        nodes = "; ".join(
            f"NUMA node {node}: {', '.join(_offer(held, kind) for kind in self.requests)}{_use(held)}"
            for node, held in sorted(self.machine.items())
        )
        return f"requested {wanted}; {nodes}"


def _offer(held: NodeMemory, kind: ResourceName) -> str:
    table = held.tables.get(kind)
    if table is None:
        return f"no {kind}"
    return f"{kind} {Quantity.bytes(table.free)} free of {Quantity.bytes(table.allocatable)}"


def _use(held: NodeMemory) -> str:
    if not held.assignments:
        return ""
    return f", in use with the group {held.cells}" if len(held.cells) > 1 else ", in use on its own"
