"""Start-up checks and the machine state they lead to (KEP-1769)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from agent.domain.pod import MEMORY, ResourceName
from agent.domain.quantity import Quantity, parse_quantity
from agent.domain.settings import Fidelity, MemoryPolicy, Settings
from agent.domain.state import MemoryState, MemoryTable
from agent.domain.topology import NodeId, NumaNode, Topology
from agent.errors import ConfigError
from agent.memorymanager.policy import new_memory_manager
from agent.memorymanager.policy_none import NoneMemoryManager
from tests.memorymanager.build import HUGE_2MI, MIB, settings, topology

TWO_NODES = topology([4096, 4096])
Reserved = Mapping[int, Mapping[str, Quantity]]


def q(text: str) -> Quantity:
    return parse_quantity(text)


REFUSED = [
    pytest.param(
        {}, {}, "[memorymanager] you should specify the system reserved memory", id="nothing-reserved"
    ),
    pytest.param(
        {0: {"hugepages-2Mi": q("2Mi")}},
        {},
        "[memorymanager] you should specify the system reserved memory",
        id="hugepages-do-not-count",
    ),
    pytest.param(
        {99: {"memory": q("1Gi")}},
        {},
        "the reserved memory configuration references a NUMA node 99 that does not exist on this machine",
        id="unknown-node",
    ),
    pytest.param(
        {0: {"memory": q("1Gi")}, 1: {"memory": q("356Mi")}},
        {"memory": q("777Mi")},
        'the total amount "1380Mi" of type "memory" is not equal to the value "777Mi"'
        " determined by Node Allocatable feature",
        id="sum-differs",
    ),
    pytest.param(
        {0: {"memory": q("1Gi")}},
        {"memory": q("1Gi"), "hugepages-2Mi": q("4Mi")},
        'the total amount "0" of type "hugepages-2Mi" is not equal to the value "4Mi"'
        " determined by Node Allocatable feature",
        id="hugepages-kept-back-nowhere",
    ),
]


@pytest.mark.parametrize(("reserved", "node_reserved", "text"), REFUSED)
def test_reserved_memory_that_does_not_fit_is_refused(
    reserved: Reserved, node_reserved: Mapping[str, Quantity], text: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        new_memory_manager(settings(reserved, **node_reserved), TWO_NODES)
    assert refused.value.message == text


def test_a_sum_that_differs_is_shown_as_arithmetic() -> None:
    reserved = {0: {"memory": q("1Gi")}, 1: {"memory": q("356Mi")}}
    with pytest.raises(ConfigError) as refused:
        new_memory_manager(settings(reserved, memory=q("777Mi")), TWO_NODES)
    assert "1Gi on node 0 + 356Mi on node 1" in refused.value.hint


def test_a_zero_amount_of_hugepages_may_be_reserved() -> None:
    reserved = {0: {"memory": q("100Mi"), "hugepages-2Mi": q("0")}}
    assert new_memory_manager(settings(reserved, cpu=q("2")), TWO_NODES).allocatable


def test_policy_none_looks_at_no_reserved_memory() -> None:
    made = new_memory_manager(Settings(memory_policy=MemoryPolicy.NONE), TWO_NODES)
    assert isinstance(made, NoneMemoryManager)


def _tables(
    node: NumaNode, reserved: Mapping[str, Quantity], fidelity: Fidelity = Fidelity.SAFE
) -> Mapping[ResourceName, MemoryTable]:
    under = replace(settings({node.id: reserved}), fidelity=fidelity)
    made = new_memory_manager(under, Topology(cpus=(), nodes=(node,)))
    return made.restore(MemoryState()).nodes[node.id].tables


def test_memory_offers_what_reserved_memory_and_huge_pages_leave() -> None:
    node = NumaNode(id=NodeId(3), memory=1000 * MIB, hugepages={2048: 100})
    tables = _tables(node, {"memory": q("50Mi"), "hugepages-2Mi": q("20Mi")})
    assert tables == {
        HUGE_2MI: MemoryTable(
            total=200 * MIB, system_reserved=20 * MIB, allocatable=180 * MIB, reserved=0, free=180 * MIB
        ),
        MEMORY: MemoryTable(
            total=1000 * MIB, system_reserved=50 * MIB, allocatable=750 * MIB, reserved=0, free=750 * MIB
        ),
    }


def test_where_more_is_reserved_than_there_is_nothing_is_left_but_in_the_kubelet_it_wraps_round() -> None:
    node = NumaNode(id=NodeId(0), memory=100 * MIB, hugepages={2048: 100})
    reserved = {"memory": q("1Mi")}
    assert _tables(node, reserved)[MEMORY].allocatable == 0
    assert _tables(node, reserved, Fidelity.KUBELET)[MEMORY].allocatable == (1 << 64) - 101 * MIB


def test_allocatable_lists_each_node_and_type_with_something_to_give() -> None:
    made = new_memory_manager(settings({0: {"memory": q("1Gi")}}), topology([4096, 1024, 0], [0, 8]))
    assert [(str(b.nodes), b.type, b.size // MIB) for b in made.allocatable] == [
        ("0", MEMORY, 3072),
        ("1", HUGE_2MI, 16),
        ("1", MEMORY, 1024),
    ]
