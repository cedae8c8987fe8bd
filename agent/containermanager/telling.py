"""What the owner's log says of a decision or a change: one sentence, without how it was arrived at."""

from __future__ import annotations

from agent.containermanager.machine import Machine
from agent.domain.state import NodeState
from agent.domain.trace import CpusGranted, Kept, MemoryGranted, Shared, Trace
from agent.explain.sentences import explain


def granted(trace: Trace) -> str:
    """What a pod was given."""
    steps = tuple(s for s in trace if isinstance(s, CpusGranted | MemoryGranted | Shared | Kept))
    return "; ".join(explain(steps))


def plugged(before: Machine, after: Machine, state: NodeState) -> str:
    """What came and went, and what is there to share now."""
    was, now = before.topology, after.topology
    return (
        f"CPUs {was.online - now.online or 'none'} went offline, CPUs {now.online - was.online or 'none'}"
        f" came online; NUMA nodes {now.all_nodes}, shared pool {state.cpu.default or 'empty'},"
        f" reserved CPUs {after.managers.cpu.reserved or 'none'}"
    )
