"""Checks of a stored state at start (KEP-1769)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from agent.domain.idset import NO_NODES, NodeMask
from agent.domain.outcome import Isolation
from agent.domain.pod import MEMORY, PodUid
from agent.domain.settings import Gates
from agent.domain.state import Blocks, MemoryState
from agent.domain.topology import NodeId
from agent.errors import StateError
from agent.memorymanager.policy import NO_REUSE
from agent.memorymanager.policy_none import NoneMemoryManager
from agent.memorymanager.policy_static import StaticMemoryManager
from tests.memorymanager.build import (
    HUGE_2MI,
    MIB,
    NO_HINT,
    admit,
    app,
    block,
    hint,
    init,
    manager,
    pod,
    resources,
    sharing,
)

STATIC = manager([10, 10, 10])
U1 = PodUid("u1")
DIFFERENT = "[memorymanager] the expected machine state is different from the real one"


def _used(static: StaticMemoryManager = STATIC) -> MemoryState:
    fresh = static.restore(MemoryState())
    return admit(static, fresh, pod(init("i", 12), app("a", 15)), hint("0-1"))


def _with_blocks(*blocks: Blocks) -> MemoryState:
    held = {f"c{i}": these for i, these in enumerate(blocks)}
    return replace(STATIC.restore(MemoryState()), entries={U1: held})


def _with_node(state: MemoryState, **changes: object) -> MemoryState:
    node = NodeId(0)
    return replace(state, nodes={**state.nodes, node: replace(state.nodes[node], **changes)})  # type: ignore[arg-type] # fields by name


def test_an_empty_state_becomes_the_initial_one() -> None:
    assert STATIC.restore(MemoryState()) == MemoryState(nodes=STATIC.initial)


def test_a_state_that_holds_is_kept_as_it_is() -> None:
    assert STATIC.restore(_used()) == _used()


def test_within_a_group_only_the_sums_have_to_agree() -> None:
    two = pod(app("a", 9), app("b", 8))
    state = admit(STATIC, STATIC.restore(MemoryState()), two, hint("0-1"))
    shifted = STATIC.remove_container(state, U1, "a")
    assert shifted.nodes[NodeId(1)].tables[MEMORY].reserved == 7 * MIB
    assert STATIC.restore(shifted) == shifted


def test_a_pods_own_blocks_count_instead_of_its_containers() -> None:
    static = manager([100, 100])
    one = pod(app("a", 10), sharing("b"), sharing("c"), budget=resources(64))
    state = static.allocate_pod(static.restore(MemoryState()), one, NO_HINT).state
    assert static.restore(state) == state


REFUSED: list[tuple[str, Callable[[], MemoryState], str]] = [
    (
        "entries-without-machine-state",
        lambda: replace(_used(), nodes={}),
        "[memorymanager] machine state can not be empty when it has memory assignments",
    ),
    (
        "unknown-node",
        lambda: _with_blocks((block("0", 1),), (block("1,7", 1),)),
        "[memorymanager] (pod: u1, container: c1) the memory assignment uses the NUMA that does not exist",
    ),
    (
        "unknown-node-of-a-pod",
        lambda: replace(_with_blocks((block("0", 1),)), pod_entries={U1: (block("7", 1),)}),
        "[memorymanager] (pod: u1, container: ) the memory assignment uses the NUMA that does not exist",
    ),
    (
        "unknown-type",
        lambda: _with_blocks((block("0", 1, HUGE_2MI),)),
        "[memorymanager] (pod: u1, container: c0) the memory assignment uses memory resource that does not exist",
    ),
    (
        "pod-without-containers",
        lambda: replace(_used(), pod_entries={PodUid("u9"): (block("2", 1),)}),
        "[memorymanager] pod u9 has a pod memory assignment but no container memory assignments",
    ),
    ("entry-lost", lambda: replace(_used(), entries={}), DIFFERENT),
    ("other-number-of-assignments", lambda: _with_node(_used(), assignments=9), DIFFERENT),
    ("other-cells", lambda: _with_node(_used(), cells=NodeMask.of((0, 2))), DIFFERENT),
    ("type-gone", lambda: _with_node(_used(), tables={}), DIFFERENT),
    ("more-memory", lambda: _used(manager([11, 10, 10])), DIFFERENT),
    ("node-gone", lambda: _used(manager([10, 10])), DIFFERENT),
]


@pytest.mark.parametrize(
    ("stored", "text"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
def test_states_that_do_not_hold_are_refused(stored: Callable[[], MemoryState], text: str) -> None:
    with pytest.raises(StateError) as refused:
        STATIC.restore(stored())
    assert refused.value.message == text


def test_with_the_gate_off_pods_own_blocks_are_forgotten() -> None:
    gates = Gates(pod_level_resource_managers=False)
    stored = replace(MemoryState(), pod_entries={U1: (block("0", 1),)})
    assert manager([10, 10, 10], gates=gates).restore(stored) == MemoryState(nodes=STATIC.initial)


def test_policy_none_holds_nothing() -> None:
    none = NoneMemoryManager()
    one = pod(app("a", 5))
    empty = none.restore(_used())
    assert empty == MemoryState()
    assert none.allocatable == ()
    assert (none.wishes(empty, one, one.containers[0], NO_REUSE), none.pod_wishes(empty, one)) == ({}, {})
    assert none.allocate(empty, one, one.containers[0], NO_HINT, NO_REUSE).state == empty
    assert none.allocate_pod(empty, one, NO_HINT).state == empty
    assert none.started(empty, one, one.containers[0]) == empty
    assert none.remove_container(empty, U1, "a") == none.remove_pod(empty, U1) == empty
    assert none.isolation(empty, one, one.containers[0]) is Isolation.HOST
    assert none.nodes_of(empty, U1, "a") == NO_NODES
