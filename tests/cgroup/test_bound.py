"""What a bound container is to have, worked out from its pod's part of the plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.cgroup.bound import bound_settings, is_related
from agent.cgroup.layout import CgroupDir
from agent.cgroup.tree import Room, Setting, Wanted, WantedDir

POD = CgroupDir("podx")


def part(**files: dict[str, str]) -> Wanted:
    places = {
        "pod": "podx",
        "pool": "podx/shared.pool",
        "pooled": "podx/shared.pool/db",
        "apart": "podx/db",
    }
    return Wanted(
        dirs={
            CgroupDir(places[name]): WantedDir(
                settings={file.replace("_", "."): Setting(text) for file, text in settings.items()}
            )
            for name, settings in files.items()
        }
    )


def texts(wanted: Wanted) -> dict[str, str]:
    return {file: setting.text for file, setting in bound_settings(wanted, POD, "db").items()}


def test_a_container_that_stands_apart_has_its_own_but_keeps_to_its_pods_memory() -> None:
    wanted = part(
        pod={"cpuset_cpus": "2-5", "cpu_max": "max 100000", "memory_max": "4096"},
        apart={
            "cpuset_cpus": "2-3",
            "cpuset_mems": "0",
            "cpu_max": "max 100000",
            "cpu_weight": "79",
            "memory_max": "8192",
            "memory_oom_group": "1",
        },
    )
    assert texts(wanted) == {
        "cpuset.cpus": "2-3",
        "cpuset.mems": "0",
        "cpu.max": "max 100000",
        "cpu.weight": "79",
        "memory.max": "4096",
    }


def test_a_container_in_the_pool_has_the_pools_sets_and_the_tightest_limits() -> None:
    wanted = part(
        pod={"cpuset_cpus": "2-5", "cpu_max": "max 100000", "memory_max": "max", "cpu_weight": "200"},
        pool={"cpuset_cpus": "4-5", "cpuset_mems": "0", "cpu_max": "150000 100000", "memory_max": "4096"},
        pooled={"cpu_max": "max 100000", "cpu_weight": "1", "memory_max": "max"},
    )
    assert texts(wanted) == {
        "cpuset.cpus": "4-5",
        "cpuset.mems": "0",
        "cpu.max": "150000 100000",
        "cpu.weight": "1",
        "memory.max": "4096",
    }


def test_a_set_that_only_leaves_room_is_none_of_its_own() -> None:
    wanted = part(pool={"cpuset_cpus": "4-5"}, pooled={"cpu_weight": "1"})
    pooled = CgroupDir("podx/shared.pool/db")
    roomy = replace(wanted.dirs[pooled], settings={"cpuset.cpus": Room("4-5", least="4-5")})
    found = bound_settings(replace(wanted, dirs={**wanted.dirs, pooled: roomy}), POD, "db")
    assert found == {"cpuset.cpus": Setting("4-5")}


def test_a_container_that_has_no_cpu_now_is_left_as_it_is() -> None:
    assert bound_settings(part(pod={"cpuset_cpus": "2"}), POD, "db") == {}


@pytest.mark.parametrize(
    ("one", "other", "related"),
    [("a", "a", True), ("a/b", "a", True), ("a", "a/b", True), ("a", "ab", False), ("a/b", "a/c", False)],
)
def test_cgroups_are_related_if_one_is_in_the_other(one: str, other: str, *, related: bool) -> None:
    assert is_related(CgroupDir(one), CgroupDir(other)) is related
