"""Bars: each pool has its sign and at least one cell, and the cells are the CPUs in proportion."""

from __future__ import annotations

from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.cli.bars import WIDTH, Pools, apportioned, cpu_bar, legend, share_bar


def node(**sets: str) -> dict[str, Any]:
    return {"reserved": "", "shared": "", "exclusive": "", "podShared": "", **sets}


def test_every_cpu_is_a_sign_where_they_fit() -> None:
    pools = Pools.of(node(reserved="0", shared="0,6-7", exclusive="1-5", podShared="4-5"))
    assert pools.words() == "1 reserved, 3 exclusive, 2 pod shared, 2 node shared"
    assert click.unstyle(cpu_bar(pools, unicode=False)) == "[RXXXPP.." + " " * (WIDTH - 8) + "]"
    assert click.unstyle(cpu_bar(pools, unicode=True)) == "[▒███▓▓░░" + " " * (WIDTH - 8) + "]"
    assert click.unstyle(legend(unicode=False)) == "R reserved  X exclusive  P pod shared  . node shared"


def test_reserved_cpus_are_counted_once_whether_they_are_shared_or_not() -> None:
    assert Pools.of(node(reserved="0-1", shared="2-3")).counts == (2, 0, 0, 2)
    assert Pools.of(node(reserved="0-1", shared="0-3")).counts == (2, 0, 0, 2)


def test_a_node_without_cpus_has_an_empty_bar() -> None:
    pools = Pools.of(node())
    assert (cpu_bar(pools, unicode=False), pools.words()) == ("[" + " " * WIDTH + "]", "no CPUs")


@given(st.lists(st.integers(0, 4096), min_size=4, max_size=4), st.integers(8, 64))
def test_cells_are_shared_out_in_proportion_and_nothing_that_is_there_vanishes(
    counts: list[int], cells: int
) -> None:
    given = apportioned(counts, min(cells, sum(counts)))
    assert sum(given) == min(cells, sum(counts))
    assert all((count == 0) == (cell == 0) for count, cell in zip(counts, given, strict=True))
    for count, cell in zip(counts, given, strict=True):
        assert abs(cell - count * sum(given) / max(1, sum(counts))) < 4


@pytest.mark.parametrize(
    ("part", "whole", "full"), [(0, 10, 0), (5, 10, WIDTH // 2), (10, 10, WIDTH), (1, 10**9, 1), (0, 0, 0)]
)
def test_a_share_is_drawn(part: int, whole: int, full: int) -> None:
    assert share_bar(part, whole, unicode=False) == "[" + "#" * full + "." * (WIDTH - full) + "]"
