"""Topology hints for CPUs."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.cpumanager.hints import HintSearch
from agent.domain.hints import Hints, Impossible
from agent.domain.idset import NO_CPUS, CpuSet
from agent.domain.topology import Topology
from tests.cpumanager.build import machine

FOUR = machine(16, nodes=4, sockets=2)


def test_the_narrowest_sets_are_preferred() -> None:
    wish = HintSearch(FOUR, align_by_socket=False).wish(FOUR.online, NO_CPUS, 5)
    assert isinstance(wish, Hints)
    assert sorted(wish.preferred) == [0b0011, 0b0101, 0b0110, 0b1001, 0b1010, 0b1100]
    assert sorted(wish.other) == [0b0111, 0b1011, 0b1101, 0b1110, 0b1111]


def test_preferred_is_what_an_empty_machine_would_need() -> None:
    """Two CPUs fit one node; where they are free only on two, no set is preferred."""
    wish = HintSearch(FOUR, align_by_socket=False).wish(CpuSet.parse("0,2"), NO_CPUS, 2)
    assert isinstance(wish, Hints)
    assert wish.preferred == ()
    assert sorted(wish.other) == [0b0011, 0b0111, 0b1011, 0b1111]


def test_every_set_has_the_reusable_cpus() -> None:
    wish = HintSearch(FOUR, align_by_socket=False).wish(FOUR.online, CpuSet.parse("2"), 2)
    assert isinstance(wish, Hints)
    assert wish.preferred == (0b0010,)


def test_with_align_by_socket_as_few_sockets_will_do() -> None:
    wish = HintSearch(FOUR, align_by_socket=True).wish(FOUR.online, NO_CPUS, 2)
    assert isinstance(wish, Hints)
    assert sorted(wish.preferred) == [0b0001, 0b0010, 0b0011, 0b0100, 0b1000, 0b1100]


def test_too_many_cpus_are_impossible() -> None:
    wish = HintSearch(FOUR, align_by_socket=False).wish(CpuSet.parse("0-3"), NO_CPUS, 5)
    assert wish == Impossible("5 CPUs requested, only 4 free on NUMA nodes 0-3")


def test_many_nodes_cut_the_search_but_not_the_preferred_hints() -> None:
    many = machine(80, nodes=20, threads=1)
    search = HintSearch(many, align_by_socket=False)
    wish = search.wish(many.online, NO_CPUS, 5)
    assert isinstance(wish, Hints)
    assert not wish.complete
    assert len(wish.preferred) == 190
    reason = search.wish(many.online, NO_CPUS, 79)
    assert reason == Impossible(
        "79 CPUs requested, no small set of NUMA nodes has as many free,"
        " and 20 nodes are too many to look at all sets"
    )


@given(data=st.data(), topology=st.sampled_from([FOUR, machine(24, nodes=3, threads=1), machine(8)]))
def test_the_search_is_the_literal_one(data: st.DataObject, topology: Topology) -> None:
    ids = sorted(topology.online)
    free = CpuSet.of(data.draw(st.sets(st.sampled_from(ids))))
    reuse = CpuSet.of(data.draw(st.sets(st.sampled_from(ids), max_size=2))) - free
    request = data.draw(st.integers(1, len(ids)))
    expected: dict[int, bool] = {}
    cpus = {node.id: node.cpus for node in topology.nodes}
    sets = [set(chosen) for k in range(1, len(cpus) + 1) for chosen in combinations(cpus, k)]
    fewest = min((len(s) for s in sets if sum(len(cpus[n]) for n in s) >= request), default=len(cpus))
    for chosen in sets:
        inside = CpuSet.of(cpu for n in chosen for cpu in cpus[n])
        if reuse <= inside and len(free & inside) + len(reuse) >= request:
            expected[sum(1 << n for n in chosen)] = len(chosen) == fewest
    wish = HintSearch(topology, align_by_socket=False).wish(free, reuse, request)
    if isinstance(wish, Hints):
        found = dict.fromkeys(wish.preferred, True) | dict.fromkeys(wish.other, False)
        assert found == expected
    else:
        assert isinstance(wish, Impossible)
        assert expected == {}


@pytest.mark.parametrize("request_", [1, 4, 5, 16, 17])
def test_the_fewest_nodes(request_: int) -> None:
    search = HintSearch(FOUR, align_by_socket=False)
    assert search.min_affinity_size(request_) == min(4, -(-request_ // 4))
