"""CPU sets as systemd's byte arrays: the lowest byte first, whatever the number of CPUs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.domain.idset import NO_CPUS, CpuSet, NodeMask
from agent.systemdbus.properties import (
    ALLOWED_CPUS,
    ALLOWED_MEMORY_NODES,
    CPU_QUOTA,
    cpus_from_bytes,
    from_the_bus,
    on_the_bus,
    to_bytes,
)


@pytest.mark.parametrize(
    ("cpus", "raw"),
    [
        ("", b""),
        ("0", b"\x01"),
        ("7", b"\x80"),
        ("8", b"\x00\x01"),
        ("10-23", b"\x00\xfc\xff"),
        ("0-3,64", b"\x0f" + bytes(7) + b"\x01"),
        ("1,127-128", b"\x02" + bytes(14) + b"\x80\x01"),
    ],
)
def test_bit_b_of_byte_a_is_cpu_8a_plus_b(cpus: str, raw: bytes) -> None:
    assert to_bytes(CpuSet.parse(cpus)) == raw
    assert cpus_from_bytes(raw) == CpuSet.parse(cpus)


@given(st.sets(st.integers(0, 4095)))
def test_any_set_comes_back(ids: set[int]) -> None:
    assert cpus_from_bytes(to_bytes(CpuSet.of(ids))) == CpuSet.of(ids)


def test_bytes_beyond_the_last_cpu_add_nothing() -> None:
    """systemd pads to whole words of 64 CPUs."""
    assert cpus_from_bytes(b"\x05" + bytes(15)) == CpuSet.parse("0,2")
    assert cpus_from_bytes(bytes(16)) == NO_CPUS


def test_each_property_has_its_type_on_the_bus_and_comes_back_as_what_it_was() -> None:
    assert on_the_bus(ALLOWED_CPUS, CpuSet.parse("9")) == ("ay", b"\x00\x02")
    assert from_the_bus(ALLOWED_CPUS, b"\x00\x02") == CpuSet.parse("9")
    assert from_the_bus(ALLOWED_MEMORY_NODES, b"\x02") == NodeMask.of([1])
    assert on_the_bus(CPU_QUOTA, 500_000) == ("t", 500_000)
    assert on_the_bus("PIDs", (1, 2)) == ("au", [1, 2])
    assert from_the_bus("DropInPaths", ["/run/a.conf"]) == ("/run/a.conf",)


def test_a_property_of_unknown_type_is_named() -> None:
    with pytest.raises(ValueError, match="'AllowedCpus'"):
        on_the_bus("AllowedCpus", CpuSet.parse("9"))
