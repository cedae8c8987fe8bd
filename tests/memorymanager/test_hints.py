"""Hints: which sets of NUMA nodes can serve a request (KEP-1769)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.domain.hints import Hints, Impossible
from agent.domain.idset import NodeMask
from agent.domain.pod import MEMORY, Container, Pod, PodUid, ResourceName, Resources
from agent.domain.quantity import Quantity, parse_quantity
from agent.domain.settings import Gates
from agent.domain.state import Blocks, MemoryState, MemoryTable, NodeMemory
from agent.domain.topology import NodeId
from agent.memorymanager.hintsearch import calculate_hints
from agent.memorymanager.machinestate import MachineState
from agent.memorymanager.policy import NO_REUSE, MemoryReuse
from agent.memorymanager.policy_static import StaticMemoryManager
from agent.memorymanager.requests import Requests
from tests.memorymanager.build import (
    HUGE_2MI,
    MIB,
    admit,
    app,
    block,
    hint,
    init,
    manager,
    masks,
    pod,
    resources,
    sharing,
    sidecar,
)
from tests.memorymanager.literal import literal_hints

FRESH = [
    pytest.param([10, 10], 10, ["0", "1"], ["0-1"], id="one-node-suffices"),
    pytest.param([10, 10], 11, ["0-1"], [], id="needs-both"),
    pytest.param([10, 30, 10], 20, ["1"], ["0-1", "0,2", "1-2", "0-2"], id="exact-sum-of-two-small-ones"),
    pytest.param(
        [10, 0, 10], 5, ["0", "2"], ["0-1", "0,2", "1-2", "0-2"], id="node-without-memory-only-pads"
    ),
]


@pytest.mark.parametrize(("memory", "request_", "preferred", "other"), FRESH)
def test_masks_of_a_fresh_machine(
    memory: list[int], request_: int, preferred: list[str], other: list[str]
) -> None:
    static = manager(memory)
    one = pod(app("a", request_))
    wishes = static.wishes(static.restore(MemoryState()), one, one.containers[0], NO_REUSE)
    assert masks(wishes) == (preferred, other)


def test_every_type_gets_the_same_masks_and_all_must_fit() -> None:
    static = manager([10, 30, 30], [10, 0, 10])
    one = pod(app("a", 20, 10))
    wishes = static.wishes(static.restore(MemoryState()), one, one.containers[0], NO_REUSE)
    assert masks(wishes, HUGE_2MI) == masks(wishes, MEMORY) == (["2"], ["0-1", "0,2", "1-2", "0-2"])


def _after(static: StaticMemoryManager, *pods: tuple[Pod, str]) -> MemoryState:
    state = static.restore(MemoryState())
    for one, nodes in pods:
        state = admit(static, state, one, hint(nodes))
    return state


def _wished(static: StaticMemoryManager, state: MemoryState, request: int) -> tuple[list[str], list[str]]:
    one = pod(app("new", request), uid="new")
    return masks(static.wishes(state, one, one.containers[0], NO_REUSE))


def test_a_node_that_serves_alone_is_in_no_wider_mask() -> None:
    static = manager([10, 10, 10])
    state = _after(static, (pod(app("a", 1)), "0"))
    assert _wished(static, state, 2) == (["0", "1", "2"], ["1-2"])


def test_a_node_in_a_group_serves_only_that_group() -> None:
    static = manager([10, 10, 10, 10])
    state = _after(static, (pod(app("a", 15)), "0-1"))
    assert _wished(static, state, 2) == (["2", "3"], ["0-1", "2-3"])


def test_preferred_follows_capacity_not_occupancy() -> None:
    static = manager([10, 10, 10])
    state = _after(static, (pod(app("a", 9), uid="a"), "0"))
    state = admit(static, state, pod(app("b", 15), uid="b"), hint("1-2"))
    assert _wished(static, state, 3) == ([], ["1-2"])


def test_what_init_containers_leave_counts_on_exactly_their_mask() -> None:
    static = manager([10, 10])
    one = pod(init("i", 8), app("a", 9))
    state = static.restore(MemoryState())
    first = static.allocate(state, one, one.containers[0], hint("0"), NO_REUSE)
    assert masks(static.wishes(first.state, one, one.containers[1], NO_REUSE)) == (["1"], [])
    assert masks(static.wishes(first.state, one, one.containers[1], first.reuse)) == (["0", "1"], [])


def test_no_mask_at_all_is_no_opinion() -> None:
    static = manager([10, 10])
    one = pod(app("a", 21))
    state = static.restore(MemoryState())
    assert static.wishes(state, one, one.containers[0], NO_REUSE) == {}
    assert static.pod_wishes(state, one) == {}


def test_held_memory_is_the_one_hint() -> None:
    static = manager([10, 10])
    one = pod(app("a", 5, 0), app("b", 12))
    held = static.allocate(static.restore(MemoryState()), one, one.containers[0], hint("1"), NO_REUSE)
    wishes = static.wishes(held.state, one, one.containers[0], held.reuse)
    assert wishes == {MEMORY: Hints((0b10,))}


def test_held_memory_of_another_size_is_no_opinion() -> None:
    static = manager([10, 10])
    state = _after(static, (pod(app("a", 5)), "1"))
    one = pod(app("a", 6))
    assert static.wishes(state, one, one.containers[0], NO_REUSE) == {}


def test_a_pods_own_blocks_are_compared_with_its_budget() -> None:
    static = manager([100, 100])
    one = pod(app("a", 5), sharing("b"), budget=resources(64))
    state = static.allocate_pod(static.restore(MemoryState()), one, hint("1")).state
    assert static.pod_wishes(state, one) == {MEMORY: Hints((0b10,))}


def test_a_pod_without_budget_that_holds_memory_compares_its_first_container() -> None:
    static = manager([100, 100])
    single, double = pod(app("a", 5)), pod(app("a", 5), app("b", 5))
    assert static.pod_wishes(_after(static, (single, "1")), single) == {MEMORY: Hints((0b10,))}
    assert static.pod_wishes(_after(static, (double, "1")), double) == {}


def test_an_empty_shared_pool_is_impossible_for_every_type_of_the_budget() -> None:
    static = manager([100], [50])
    one = pod(app("a", 10, 8), sharing("b"), budget=resources(64, 8))
    reason = (
        "pod rejected, sum of exclusive container hugepages-2Mi requests equals pod budget,"
        " leaving no memory for shared containers"
    )
    wishes = static.pod_wishes(static.restore(MemoryState()), one)
    assert wishes == {HUGE_2MI: Impossible(reason), MEMORY: Impossible(reason)}


BURSTABLE = Resources(requests={MEMORY: Quantity.bytes(MIB)})
ODD = Resources(
    requests={**resources(1).requests, MEMORY: parse_quantity("1500m")},
    limits={**resources(1).limits, MEMORY: parse_quantity("1500m")},
)
LEFT_ALONE = [
    pytest.param(pod(Container(name="a", resources=BURSTABLE)), Gates(), id="burstable"),
    pytest.param(
        pod(app("a", 1), budget=resources(2)),
        Gates(pod_level_resource_managers=False),
        id="managers-gate-off",
    ),
    pytest.param(
        pod(app("a", 1), budget=resources(2)), Gates(pod_level_resources=False), id="resources-gate-off"
    ),
    pytest.param(pod(Container(name="a", resources=ODD)), Gates(), id="fraction-of-a-byte"),
]


@pytest.mark.parametrize(("one", "gates"), LEFT_ALONE)
def test_no_opinion_about_pods_the_policy_leaves_alone(one: Pod, gates: Gates) -> None:
    static = manager([100], gates=gates)
    state = static.restore(MemoryState())
    assert static.wishes(state, one, one.containers[0], NO_REUSE) == {}
    assert static.pod_wishes(state, one) == {}


def test_a_container_that_wants_no_exclusive_memory_is_left_alone_in_container_scope() -> None:
    static = manager([100])
    one = pod(sharing("a"), sidecar("s", 1), budget=resources(64))
    state = static.restore(MemoryState())
    assert static.wishes(state, one, one.containers[0], NO_REUSE) == {}
    assert static.allocate(state, one, one.containers[0], hint("0"), NO_REUSE).state == state


def test_sixteen_nodes_are_searched_completely() -> None:
    static = manager([10] * 16, [4] * 16)
    one = pod(app("a", 25, 20))
    wish = static.wishes(static.restore(MemoryState()), one, one.containers[0], NO_REUSE)[MEMORY]
    assert isinstance(wish, Hints)
    assert wish.complete
    assert (len(wish.preferred), len(wish.preferred) + len(wish.other)) == (560, 65535 - 16 - 120)


def test_beyond_sixteen_nodes_preferred_masks_stay_exact() -> None:
    static = manager([10] * 40)
    one = pod(app("a", 15))
    wish = static.wishes(static.restore(MemoryState()), one, one.containers[0], NO_REUSE)[MEMORY]
    assert isinstance(wish, Hints)
    assert not wish.complete
    assert len(wish.preferred) == 40 * 39 // 2


def test_beyond_sixteen_nodes_those_that_hold_nothing_are_left_out() -> None:
    static = manager([10] * 8 + [0] * 24)
    one = pod(app("a", 15))
    wish = static.wishes(static.restore(MemoryState()), one, one.containers[0], NO_REUSE)[MEMORY]
    assert isinstance(wish, Hints)
    assert wish.complete
    assert len(wish.preferred) == 28


def test_a_request_wider_than_what_is_searched_is_impossible_with_a_reason() -> None:
    static = manager([10] * 40)
    one = pod(app("a", 395))
    wish = static.wishes(static.restore(MemoryState()), one, one.containers[0], NO_REUSE)[MEMORY]
    assert isinstance(wish, Impossible)
    assert "40 NUMA nodes" in wish.reason


SIZES = st.integers(0, 6)


@st.composite
def occupied_machines(draw: st.DrawFn) -> MachineState:
    """Machines with any mixture of free, single and grouped nodes, agreeing or not."""
    ids = draw(st.lists(st.integers(0, 9), min_size=1, max_size=5, unique=True))
    nodes: dict[NodeId, NodeMemory] = {}
    for node in sorted(ids):
        group = NodeMask.of({node, *draw(st.sets(st.sampled_from(ids), max_size=3))})
        used = draw(st.booleans())
        tables = {}
        for kind in draw(st.sampled_from(((MEMORY,), (HUGE_2MI, MEMORY)))):
            allocatable = draw(SIZES)
            reserved = draw(st.integers(0, allocatable)) if used else 0
            tables[kind] = MemoryTable(
                total=allocatable,
                system_reserved=0,
                allocatable=allocatable,
                reserved=reserved,
                free=allocatable - reserved,
            )
        cells = group if used else NodeMask.of((node,))
        nodes[NodeId(node)] = NodeMemory(assignments=int(used), cells=cells, tables=tables)
    return nodes


REQUESTS: st.SearchStrategy[Requests] = st.fixed_dictionaries(
    {MEMORY: st.integers(1, 12)}, optional={HUGE_2MI: st.integers(0, 8)}
)


@given(machine=occupied_machines(), requests=REQUESTS, data=st.data())
def test_the_search_finds_what_the_rules_spelled_out_find(
    machine: MachineState, requests: dict[ResourceName, int], data: st.DataObject
) -> None:
    node = data.draw(st.sampled_from(sorted(machine)))
    reuse = MemoryReuse({(machine[node].cells.bits, MEMORY): data.draw(st.integers(0, 4))})
    found = calculate_hints(machine, requests, reuse)
    preferred, other = literal_hints(machine, requests, reuse)
    assert (set(found.preferred), set(found.other)) == (preferred, other) if found else not preferred | other


def test_held_blocks_of_a_type_that_is_no_longer_asked_for_are_no_opinion() -> None:
    static = manager([10, 10])
    blocks: Blocks = (block("0", 1, HUGE_2MI), block("0", 5))
    state = replace(static.restore(MemoryState()), entries={PodUid("u1"): {"a": blocks}})
    one = pod(app("a", 5))
    assert static.wishes(state, one, one.containers[0], NO_REUSE) == {}
