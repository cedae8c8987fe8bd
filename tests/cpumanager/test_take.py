"""Properties of any assignment, and the fast distribution against the literal one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.cpumanager.assignment import Strategy, take
from agent.cpumanager.distribute import Distributed
from agent.cpumanager.packed import Packed
from agent.cpumanager.tables import cpu_tables
from agent.domain.idset import CpuSet
from agent.domain.topology import Topology
from agent.domain.trace import Rule
from agent.errors import AdmissionError
from tests.cpumanager.build import machine
from tests.cpumanager.literal import distribute

STRATEGIES: list[Strategy] = [
    Packed(),
    Packed(uncore=True),
    Packed(spread=True),
    Distributed(),
    Distributed(group_size=2),
    Distributed(spread=True),
]


@st.composite
def machines(draw: st.DrawFn) -> Topology:
    """Regular and not so regular ones: CPUs may be offline."""
    nodes = draw(st.sampled_from([1, 2, 4]))
    sockets = draw(st.sampled_from([1, 2, 4]))
    threads = draw(st.sampled_from([1, 2, 4]))
    cpus = 4 * threads * draw(st.integers(1, 4))
    offline = draw(st.frozensets(st.integers(1, cpus - 1), max_size=3))
    uncores = draw(st.sampled_from([0, 2, 4]))
    return machine(cpus, nodes=nodes, sockets=sockets, threads=threads, uncores=uncores, offline=offline)


@given(topology=machines(), data=st.data(), strategy=st.sampled_from(STRATEGIES))
def test_exactly_as_many_free_cpus_are_taken_as_asked_for(
    topology: Topology, data: st.DataObject, strategy: Strategy
) -> None:
    ids = [cpu.id for cpu in topology.cpus]
    available = CpuSet.of(data.draw(st.sets(st.sampled_from(ids))))
    n = data.draw(st.integers(0, len(available)))
    tables = cpu_tables(topology)
    taken = take(tables, available, n, strategy)
    assert len(taken.cpus) == n
    assert taken.cpus <= available
    assert taken == take(tables, available, n, strategy)
    assert sum(len(pick.cpus) for pick in taken.picks) == n
    assert CpuSet.of(cpu for pick in taken.picks for cpu in pick.cpus) == taken.cpus


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_more_than_there_is_cannot_be_taken(strategy: Strategy) -> None:
    with pytest.raises(AdmissionError) as refusal:
        take(cpu_tables(machine(8)), CpuSet.parse("1,3,5"), 4, strategy)
    assert refusal.value.message == ("not enough cpus available to satisfy request: requested=4, available=3")


@given(
    free=st.lists(st.integers(1, 16), min_size=8, max_size=8),
    n=st.integers(1, 60),
    group=st.sampled_from([1, 2]),
)
def test_the_fast_distribution_is_the_literal_one(free: list[int], n: int, group: int) -> None:
    """Per node: which CPUs of a node are taken is the packed assignment's business."""
    topology = machine(128, nodes=8, sockets=1, threads=1)
    cpus = [sorted(node.cpus) for node in topology.nodes]
    available = CpuSet.of(cpu for own, count in zip(cpus, free, strict=True) for cpu in own[:count])
    n = min(n * group, sum(free) // group * group)
    order = sorted(range(8), key=lambda node: (free[node], node))
    widths = range(-(-n // 16), min(n // group, 8) + 1)
    expected = distribute([free[node] for node in order], widths, n, group)
    taken = take(cpu_tables(topology), available, n, Distributed(group_size=group))
    if expected is None or n == 0:
        assert all(pick.rule is not Rule.DISTRIBUTED for pick in taken.picks)
    else:
        per_node = [len(taken.cpus & topology.nodes[node].cpus) for node in order]
        assert per_node == expected


PICKS = [
    (machine(16, nodes=2, sockets=2), Packed(), 8, [(Rule.WHOLE_NODE, "0-3,8-11")]),
    (machine(16, nodes=4, sockets=2), Packed(), 4, [(Rule.WHOLE_NODE, "0-1,8-9")]),
    (machine(16, nodes=4, sockets=2), Packed(), 8, [(Rule.WHOLE_SOCKET, "0-3,8-11")]),
    (machine(16), Packed(), 3, [(Rule.WHOLE_CORE, "0,8"), (Rule.SINGLE_CPU, "1")]),
    (machine(16), Packed(spread=True), 3, [(Rule.SPREAD_CPU, "0-2")]),
    (machine(16, uncores=4), Packed(uncore=True), 4, [(Rule.WHOLE_UNCORE, "0-1,8-9")]),
    (machine(16, uncores=4), Packed(uncore=True), 3, [(Rule.PARTIAL_UNCORE, "0-1,8")]),
    (
        machine(16, nodes=2, sockets=2),
        Distributed(),
        10,
        [(Rule.DISTRIBUTED, "0-2,8-9"), (Rule.DISTRIBUTED, "4-6,12-13")],
    ),
]


@pytest.mark.parametrize(("topology", "strategy", "n", "picks"), PICKS)
def test_the_trace_names_the_rule_of_each_pick(
    topology: Topology, strategy: Strategy, n: int, picks: list[tuple[Rule, str]]
) -> None:
    taken = take(cpu_tables(topology), topology.online, n, strategy)
    assert [(pick.rule, str(pick.cpus)) for pick in taken.picks] == picks


def test_a_core_with_a_taken_thread_is_not_a_whole_core_on_an_uneven_machine() -> None:
    """Kubernetes issue 140495: with CPU 7 offline the average core of this machine has one thread."""
    topology = machine(8, offline=frozenset({7}))
    taken = take(cpu_tables(topology), CpuSet.parse("1-3,4"), 2, Packed())
    assert taken.cpus <= CpuSet.parse("1-4")
