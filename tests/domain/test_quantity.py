"""Quantities against the grammar and rounding that k8s.io/apimachinery documents."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.domain.quantity import MAX_VALUE, NANO, Format, Quantity, parse_quantity

GIB = 1 << 30

EXACT = [
    ("0", 0),
    ("1", NANO),
    ("+1", NANO),
    ("-1", -NANO),
    ("007", 7 * NANO),
    ("1.", NANO),
    (".5", NANO // 2),
    ("0.1", NANO // 10),
    ("1n", 1),
    ("1u", 1_000),
    ("1m", 1_000_000),
    ("1k", 10**3 * NANO),
    ("1M", 10**6 * NANO),
    ("1G", 10**9 * NANO),
    ("1T", 10**12 * NANO),
    ("1P", 10**15 * NANO),
    ("1E", 10**18 * NANO),
    ("1Ki", 2**10 * NANO),
    ("1Mi", 2**20 * NANO),
    ("1Gi", 2**30 * NANO),
    ("1Ti", 2**40 * NANO),
    ("1Pi", 2**50 * NANO),
    ("1Ei", 2**60 * NANO),
    ("1.5Gi", 3 * GIB * NANO // 2),
    ("1e3", 1_000 * NANO),
    ("1E3", 1_000 * NANO),
    ("1e+3", 1_000 * NANO),
    ("25e-1", 5 * NANO // 2),
    ("0e999999", 0),
]


@pytest.mark.parametrize(("text", "nano"), EXACT, ids=[text for text, _ in EXACT])
def test_a_quantity_is_read_exactly(text: str, nano: int) -> None:
    assert parse_quantity(text).nano == nano


BAD = [
    "", "-", "+", ".", " 1", "1 ", "2 cores", "1e", "1e+", "1ee3", "1K", "1ki", "1mi", "1g", "1Gib", "1 Gi",
    "0x10", "1_000", "1,5", "1..5", "--1", "NaN", "inf", "٣", "1e3Gi", "1" * 300, "1\n", "1e9999999",
]  # fmt: skip


@pytest.mark.parametrize("text", BAD, ids=[repr(text[:8]) for text in BAD])
def test_what_the_grammar_does_not_allow_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        parse_quantity(text)


@pytest.mark.parametrize(
    ("text", "nano"),
    [("0.1n", 1), ("1e-30", 1), ("-1e-30", -1), ("1.0000000001", NANO + 1), ("1e-999999", 1)],
)
def test_what_is_finer_than_nano_is_rounded_away_from_zero(text: str, nano: int) -> None:
    assert parse_quantity(text).nano == nano


@pytest.mark.parametrize("text", ["9223372036854775808", "16Ei", "1e30", "1e999999", "99999E"])
def test_a_value_beyond_int64_is_capped(text: str) -> None:
    assert parse_quantity(text).value == MAX_VALUE
    assert parse_quantity("-" + text).value == -MAX_VALUE


ROUNDED = [
    ("100m", 1, 100),
    ("1500m", 2, 1500),
    ("1u", 1, 1),
    ("-1500m", -2, -1500),
    ("-1u", -1, -1),
    ("3", 3, 3000),
]


@pytest.mark.parametrize(("text", "value", "milli"), ROUNDED, ids=[text for text, *_ in ROUNDED])
def test_whole_and_milli_units_are_rounded_away_from_zero(text: str, value: int, milli: int) -> None:
    quantity = parse_quantity(text)
    assert (quantity.value, quantity.milli) == (value, milli)


CANONICAL = [
    ("0", "0"),
    ("0Gi", "0"),
    ("1Gi", "1Gi"),
    ("1024Mi", "1Gi"),
    ("777Mi", "777Mi"),
    ("1.5Gi", "1536Mi"),
    ("1Ki", "1Ki"),
    ("0.5Ki", "512"),
    ("1023", "1023"),
    ("1024", "1024"),
    ("0.1Gi", "107374182400m"),
    ("0.5", "500m"),
    ("1500m", "1500m"),
    ("2000m", "2"),
    ("2e0", "2"),
    ("1e3", "1e3"),
    ("1000", "1k"),
    ("1500e0", "1500"),
    ("12e6", "12e6"),
    ("0.0001", "100u"),
    ("-2000m", "-2"),
    ("-1Gi", "-1Gi"),
    ("1E", "1E"),
    ("16Ei", "9223372036854775807"),
    ("8Ei", "9223372036854775807"),
    ("7Ei", "7Ei"),
]


@pytest.mark.parametrize(("text", "canonical"), CANONICAL, ids=[text for text, _ in CANONICAL])
def test_the_canonical_text_has_the_largest_suffix_without_a_fraction(text: str, canonical: str) -> None:
    assert str(parse_quantity(text)) == canonical


SUMS = [
    (["1Gi", "1Gi"], "2Gi"),
    (["1500Mi", "1416Mi"], "2916Mi"),
    (["500m", "1500m"], "2"),
    (["0", "1Gi"], "1Gi"),
    (["1Gi", "1000"], "1073742824"),
    (["1e3", "1"], "1001"),
    (["1", "1e3"], "1001"),
    (["0.1", "0.2"], "300m"),
]


@pytest.mark.parametrize(("texts", "total"), SUMS, ids=[" + ".join(texts) for texts, _ in SUMS])
def test_a_sum_is_exact_and_written_as_its_first_part(texts: list[str], total: str) -> None:
    first, *rest = map(parse_quantity, texts)
    for quantity in rest:
        first = first + quantity
    assert str(first) == total


def test_whole_and_bytes_differ_in_their_text_only() -> None:
    assert str(Quantity.whole(1024)) == "1024"
    assert str(Quantity.bytes(1024)) == "1Ki"
    assert Quantity.whole(1024).nano == Quantity.bytes(1024).nano


nanos = st.integers(-MAX_VALUE * NANO, MAX_VALUE * NANO)


@given(nanos, st.sampled_from(Format))
def test_the_canonical_text_reads_back_as_the_same_amount(nano: int, fmt: Format) -> None:
    assert parse_quantity(str(Quantity(nano, fmt))).nano == nano


@given(st.text(alphabet="0123456789.+-eEinumkKMGTP ", max_size=12))
def test_any_text_gives_a_quantity_or_a_value_error(text: str) -> None:
    try:
        quantity = parse_quantity(text)
    except ValueError:
        return
    assert abs(quantity.nano) <= MAX_VALUE * NANO
