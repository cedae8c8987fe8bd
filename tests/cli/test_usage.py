"""What is used is the difference of two looks at real files; what is not there is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.cli.usage import Look, Reading, cpu_shares, look, read_cgroup, use_between
from agent.domain.idset import CpuSet

GIB = 1 << 30
FILES = {
    "cpu.stat": "usage_usec 5000000\nuser_usec 1\nnr_periods 40\nnr_throttled 10\nthrottled_usec 2500\n",
    "memory.current": f"{GIB}\n",
    "memory.max": f"{2 * GIB}\n",
    "pids.current": "3\n",
}


def cgroup(directory: Path, **changed: str) -> Path:
    directory.mkdir(exist_ok=True)
    for name, text in (FILES | {name.replace("_", ".", 1): text for name, text in changed.items()}).items():
        (directory / name).write_text(text)
    return directory


def reading(usage: int, periods: int = 0, throttled: int = 0, throttled_usec: int = 0) -> Reading:
    return Reading(
        usage_usec=usage,
        periods=periods,
        throttled=throttled,
        throttled_usec=throttled_usec,
        memory=GIB,
        limit=None,
        processes=1,
    )


def at(seconds: float, cgroups: dict[str, Reading], cpus: dict[int, dict[str, float]] | None = None) -> Look:
    return Look(at=seconds, pods=(), cgroups=cgroups, cpus=cpus or {})


def test_a_cgroup_is_read_from_its_files(tmp_path: Path) -> None:
    assert read_cgroup(cgroup(tmp_path)) == Reading(
        usage_usec=5_000_000,
        periods=40,
        throttled=10,
        throttled_usec=2500,
        memory=GIB,
        limit=2 * GIB,
        processes=3,
    )


def test_a_cgroup_without_limits_quota_and_pids_controller_is_read_too(tmp_path: Path) -> None:
    cgroup(tmp_path, cpu_stat="usage_usec 7\n", memory_max="max\n")
    (tmp_path / "pids.current").unlink()
    (tmp_path / "cgroup.procs").write_text("11\n12\n")
    found = read_cgroup(tmp_path)
    assert found is not None
    assert (found.usage_usec, found.periods, found.limit, found.processes) == (7, 0, None, 2)


def test_a_cgroup_that_is_gone_is_left_out(tmp_path: Path) -> None:
    assert read_cgroup(tmp_path / "gone") is None
    pod = {"cgroup": str(tmp_path / "gone"), "containers": [], "ephemeralContainers": []}
    assert look([pod], CpuSet()).cgroups == {}


def test_use_is_time_used_and_periods_throttled_per_second_between_two_looks() -> None:
    before = at(10.0, {"a": reading(1_000_000, 100, 5, 100_000), "gone": reading(1)})
    after = at(12.0, {"a": reading(4_000_000, 120, 10, 300_000), "new": reading(1)})
    uses = use_between(before, after)
    assert uses.keys() == {"a"}
    assert (uses["a"].cpus, uses["a"].throttled, uses["a"].throttled_seconds) == (1.5, 0.25, 0.1)


def test_a_cgroup_that_was_made_anew_between_two_looks_has_used_nothing_rather_than_less() -> None:
    use = use_between(at(1, {"a": reading(9_000_000, 9, 9, 9)}), at(2, {"a": reading(5)}))["a"]
    assert (use.cpus, use.throttled, use.throttled_seconds) == (0, 0, 0)


def test_a_cpus_time_is_told_by_state() -> None:
    before = {
        0: {"user": 1.0, "nice": 0.0, "system": 0.0, "irq": 0.0, "softirq": 0.0, "steal": 0.0, "idle": 5.0}
    }
    after = {
        0: {"user": 2.0, "nice": 0.0, "system": 0.5, "irq": 0.0, "softirq": 0.5, "steal": 0.0, "idle": 7.0},
        1: {"user": 1.0},
    }
    [(cpu, shares)] = cpu_shares(at(1, {}, before), at(2, {}, after))
    assert cpu == 0
    assert shares == pytest.approx(
        {"user": 0.25, "nice": 0, "system": 0.125, "irq": 0, "softirq": 0.125, "steal": 0, "busy": 0.5}
    )


def test_a_cpu_that_did_not_tick_is_idle() -> None:
    same = {3: {"user": 1.0, "idle": 5.0}}
    assert dict(cpu_shares(at(1, {}, same), at(2, {}, same)))[3]["busy"] == 0


def test_the_cpus_of_this_host_are_looked_at_by_their_numbers() -> None:
    online = CpuSet.parse(Path("/sys/devices/system/cpu/online").read_text())
    assert set(look([], online).cpus) == set(online)
    assert look([], CpuSet.parse("0-4095")).cpus == {}
