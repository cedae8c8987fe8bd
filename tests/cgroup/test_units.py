import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.cgroup.units import (
    UNLIMITED,
    Bytes,
    CpuMax,
    Micros,
    MilliCpu,
    Shares,
    cpu_max_of,
    limit_text,
    linear_weight_of,
    parse_cpu_max,
    parse_hugetlb_size,
    parse_limit,
    parse_weight,
    shares_of,
    weight_of,
)

WEIGHTS = [
    (0, 2, 1, 1),
    (1, 2, 1, 1),
    (2, 2, 1, 1),
    (100, 102, 4, 17),
    (250, 256, 10, 35),
    (500, 512, 20, 59),
    (1000, 1024, 39, 100),
    (2000, 2048, 79, 174),
    (4000, 4096, 157, 303),
    (8000, 8192, 313, 532),
    (16000, 16384, 625, 942),
    (10_000_000, 262_144, 10_000, 10_000),
]


@pytest.mark.parametrize(
    ("milli", "shares", "linear", "weight"), WEIGHTS, ids=[f"{row[0]}m" for row in WEIGHTS]
)
def test_a_cpu_request_becomes_shares_and_either_weight(
    milli: int, shares: int, linear: int, weight: int
) -> None:
    assert shares_of(MilliCpu(milli)) == shares
    assert linear_weight_of(Shares(shares)) == linear
    assert weight_of(Shares(shares)) == weight


def test_no_shares_at_all_have_weight_zero_in_both_formulas() -> None:
    assert weight_of(Shares(0)) == linear_weight_of(Shares(0)) == 0


@given(st.integers(2, 262_144), st.integers(2, 262_144))
def test_more_shares_never_weigh_less_and_stay_in_the_kernels_range(one: int, two: int) -> None:
    low, high = sorted((one, two))
    assert 1 <= weight_of(Shares(low)) <= weight_of(Shares(high)) <= 10_000


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        (UNLIMITED, "max 100000"),
        (MilliCpu(2000), "200000 100000"),
        (MilliCpu(1500), "150000 100000"),
        (MilliCpu(10), "1000 100000"),
        (MilliCpu(1), "1000 100000"),
        (MilliCpu(0), "1000 100000"),
    ],
    ids=["unlimited", "whole", "fraction", "exactly the minimum", "below the minimum", "nothing left"],
)
def test_a_cpu_limit_becomes_cpu_max(limit: MilliCpu, text: str) -> None:
    assert str(cpu_max_of(limit)) == text
    assert parse_cpu_max(text) == cpu_max_of(limit)


def test_the_quota_scales_with_the_period() -> None:
    assert str(cpu_max_of(MilliCpu(2500), Micros(10_000))) == "25000 10000"


def test_cpu_max_without_a_period_has_the_kernels_default() -> None:
    assert parse_cpu_max("max\n") == CpuMax(UNLIMITED)


@pytest.mark.parametrize("text", ["", "1 2 3", "half 100000", "-1 100000", "1e5 100000", "٣ 100000"])
def test_text_that_is_no_cpu_max_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a"):
        parse_cpu_max(text)


@pytest.mark.parametrize(
    ("limit", "page", "text"),
    [
        (UNLIMITED, 4096, "max"),
        (Bytes(4096), 4096, "4096"),
        (Bytes(5000), 4096, "4096"),
        (Bytes(70_000), 65_536, "65536"),
    ],
    ids=["unlimited", "whole page", "rounded down", "64 KiB pages"],
)
def test_a_byte_limit_is_written_as_the_kernel_will_show_it(limit: Bytes, page: int, text: str) -> None:
    assert limit_text(limit, page) == text


@pytest.mark.parametrize(("text", "limit"), [("max\n", UNLIMITED), ("0", 0), ("8589934592\n", 8 << 30)])
def test_limits_are_read(text: str, limit: object) -> None:
    assert parse_limit(text) == limit


@pytest.mark.parametrize("text", ["", "MAX", "-1", "1G", "1.5"])
def test_text_that_is_no_limit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a number"):
        parse_limit(text)


def test_weights_are_read_within_the_kernels_range() -> None:
    assert parse_weight("100\n") == 100
    for text in ("0", "10001"):
        with pytest.raises(ValueError, match="not within"):
            parse_weight(text)


@pytest.mark.parametrize(
    ("size", "name"),
    [(64 << 10, "64KB"), (2 << 20, "2MB"), (512 << 20, "512MB"), (1 << 30, "1GB"), (16 << 30, "16GB")],
    ids=str,
)
def test_huge_page_sizes_are_read_as_the_kernel_names_them(size: int, name: str) -> None:
    assert parse_hugetlb_size(name) == size


@pytest.mark.parametrize("name", ["", "MB", "2Mi", "xMB"])
def test_other_huge_page_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not a"):
        parse_hugetlb_size(name)
