"""Encoding the checkpoints, which is done once a decision."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle

from agent.admission import remove_pod
from agent.checkpoint.codec import encode_cpu, encode_memory
from agent.checkpoint.codec.memo import Memo
from agent.domain.state import NodeState
from scripts.bench.machines import thousand_cpus
from scripts.bench.registry import benchmark

PODS = 1000
WRITES = 100
"""After as many, the memo knows all there is to know about so many pods."""


def _alternately(encode: Callable[[NodeState], object]) -> Callable[[], object]:
    """Encode the state of `PODS` pods, then without one of them, and so on."""
    node = thousand_cpus(PODS)
    states = cycle((node.state, remove_pod(node.managers, node.state, next(iter(node.pods)))))
    for _ in range(WRITES):
        encode(next(states))
    return lambda: encode(next(states))


@benchmark(aim=None)
def cpu_1000_pods() -> Callable[[], object]:
    """cpu_manager_state with 1,000 pods, one of which comes or goes."""
    memo = Memo()
    return _alternately(lambda state: encode_cpu("static", state.cpu, memo=memo))


@benchmark(aim=None)
def memory_1000_pods() -> Callable[[], object]:
    """memory_manager_state, the same."""
    memo = Memo()
    return _alternately(lambda state: encode_memory("Static", state.memory, memo=memo))
