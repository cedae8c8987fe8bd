"""Sets of ids and the kernel's two text formats, cpuset(7) FORMATS."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.domain.idset import NO_CPUS, CpuSet, NodeMask, iter_bits, union

LISTS: list[tuple[str, set[int]]] = [
    ("", set()),
    ("\n", set()),
    ("0", {0}),
    ("0-4,9", {0, 1, 2, 3, 4, 9}),
    ("0-2,7,12-14\n", {0, 1, 2, 7, 12, 13, 14}),
    ("3,1,2", {1, 2, 3}),
    ("0-3,2-5", set(range(6))),
    ("16-30:2/4", {16, 17, 20, 21, 24, 25, 28, 29}),
    ("0-31:1/2", set(range(0, 32, 2))),
    ("0-9:3/4", {0, 1, 2, 4, 5, 6, 8, 9}),
    ("2047", {2047}),
    (" 0-1, 3 ", {0, 1, 3}),
    ("0-1\0", {0, 1}),
]


@pytest.mark.parametrize(("text", "ids"), LISTS, ids=[repr(text) for text, _ in LISTS])
def test_the_list_format_is_read(text: str, ids: set[int]) -> None:
    assert set(CpuSet.parse(text)) == ids


@pytest.mark.parametrize(
    "text",
    ["x", "1-", "-1", "3-1", "1,,2", "1,", "0-3:0/2", "0-3:3/2", "0-3:1", "1:1/2", "65536", "9" * 12, "٣"],
)
def test_what_is_not_a_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        CpuSet.parse(text)


@pytest.mark.parametrize(
    ("ids", "text"),
    [
        ((), ""),
        ((5,), "5"),
        ((0, 1), "0-1"),
        ((0, 2), "0,2"),
        ((9, 1, 2, 3), "1-3,9"),
        ((63, 64, 65), "63-65"),
    ],
)
def test_the_text_is_canonical(ids: tuple[int, ...], text: str) -> None:
    assert str(CpuSet.of(ids)) == text


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("00000001", {0}),
        ("40000000,00000000,00000000", {94}),
        ("000000ff,000e3862", {1, 5, 6, 11, 12, 13, 17, 18, 19, *range(32, 40)}),
        ("", set()),
        ("f\n", {0, 1, 2, 3}),
    ],
)
def test_the_mask_format_is_read(text: str, ids: set[int]) -> None:
    assert set(CpuSet.parse_mask(text)) == ids


@pytest.mark.parametrize("text", ["-1", "0x1", "g", "1_0", "123456789,0"])
def test_what_is_not_a_mask_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        CpuSet.parse_mask(text)


ids = st.sets(st.integers(0, 2047), max_size=80)


@given(ids)
def test_text_and_set_round_trip(members: set[int]) -> None:
    cpus = CpuSet.of(members)
    assert CpuSet.parse(str(cpus)) == cpus
    assert list(cpus) == sorted(members) == list(iter_bits(cpus.bits))
    assert len(cpus) == len(members)
    assert bool(cpus) == bool(members)


@given(ids, ids)
def test_algebra_is_that_of_sets(left: set[int], right: set[int]) -> None:
    a, b = CpuSet.of(left), CpuSet.of(right)
    assert set(a | b) == left | right == set(union([a, b]))
    assert set(a & b) == left & right
    assert set(a - b) == left - right
    assert (a <= b) == (left <= right)
    assert a.isdisjoint(b) == left.isdisjoint(right)
    assert all((cpu in a) == (cpu in left) for cpu in left | right)
    assert (a == b) == (left == right)
    assert a != b or hash(a) == hash(b)


@given(st.text(alphabet="0123456789-,:/ ", max_size=16))
def test_any_text_gives_a_set_or_a_value_error(text: str) -> None:
    try:
        cpus = CpuSet.parse(text)
    except ValueError:
        return
    assert CpuSet.parse(str(cpus)) == cpus


def test_cpus_and_nodes_never_compare_equal() -> None:
    assert CpuSet(3) != NodeMask(3)
    assert repr(NodeMask(3)) == 'NodeMask("0-1")'
    assert repr(NO_CPUS) == 'CpuSet("")'


def test_a_refusal_names_the_part_and_what_it_is() -> None:
    with pytest.raises(ValueError, match=r"'x' is not a NUMA node or a range \(expected e\.g\. \"0-3,8\"\)"):
        NodeMask.parse("0,x")
