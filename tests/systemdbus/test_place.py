"""Where a unit's cgroup is, and how limits are said to systemd (systemd.slice(5), systemd.resource-control(5))."""

from __future__ import annotations

import pytest

from agent.domain.idset import CpuSet, NodeMask
from agent.systemdbus.place import place_of, properties_of, property_text, property_value, slice_path
from agent.systemdbus.properties import INFINITY, Properties


@pytest.mark.parametrize(
    ("name", "path"),
    [("a.slice", "a.slice"), ("a-b-c.slice", "a.slice/a-b.slice/a-b-c.slice"), ("-.slice", "")],
)
def test_each_dash_of_a_slice_is_a_level(name: str, path: str) -> None:
    assert slice_path(name) == path


@pytest.mark.parametrize(
    ("shown", "place"),
    [
        ({"ControlGroup": "/system.slice/x.service", "Slice": "other.slice"}, "system.slice/x.service"),
        ({"ControlGroup": "", "Slice": "a-b.slice"}, "a.slice/a-b.slice/x.service"),
        ({"Slice": "-.slice"}, "x.service"),
        ({}, "system.slice/x.service"),
    ],
)
def test_a_unit_is_where_systemd_says_or_will_be_in_its_slice(shown: Properties, place: str) -> None:
    assert place_of("x.service", shown) == place


def test_files_become_properties() -> None:
    files = {
        "cpuset.cpus": "2-3,9",
        "cpuset.mems": "1",
        "cpu.max": "150000 100000",
        "cpu.weight": "79",
        "memory.max": "4096",
    }
    assert properties_of(files) == {
        "AllowedCPUs": CpuSet.of([2, 3, 9]),
        "AllowedMemoryNodes": NodeMask.of([1]),
        "CPUQuotaPerSecUSec": 1_500_000,
        "CPUQuotaPeriodUSec": 100_000,
        "CPUWeight": 79,
        "MemoryMax": 4096,
    }
    assert properties_of({"cpu.max": "max 100000", "memory.max": "max"}) == {
        "CPUQuotaPerSecUSec": INFINITY,
        "CPUQuotaPeriodUSec": 100_000,
        "MemoryMax": INFINITY,
    }
    for name, value in properties_of(files).items():
        assert property_value(name, property_text(value)) == value


def test_what_is_no_property_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"pids\.max is no unit property"):
        properties_of({"pids.max": "1"})
