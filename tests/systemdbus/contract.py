"""What every `SystemdManager` does: the same tests run on the fake and, in the VM, on the real one."""

from __future__ import annotations

import pytest

from agent.domain.idset import NO_CPUS, CpuSet, NodeMask
from agent.systemdbus.manager import SystemdError, SystemdManager
from agent.systemdbus.place import LIMITS, place_of, properties_of
from agent.systemdbus.properties import (
    ACTIVE_STATE,
    ALLOWED_CPUS,
    ALLOWED_MEMORY_NODES,
    CONTROL_GROUP,
    CPU_QUOTA,
    LOAD_STATE,
)

SLICE = "numalettest.slice"


class SystemdContract:
    """Subclasses give the fixture ``systemd``, on a machine with CPUs 0-11 and NUMA nodes 0 and 1.

    ``idle`` is a service that has a file and does not run.
    """

    def test_the_slices_of_the_host_are_there(self, systemd: SystemdManager) -> None:
        shown = systemd.properties("system.slice")
        assert (shown[LOAD_STATE], shown[ACTIVE_STATE]) == ("loaded", "active")
        assert shown[CONTROL_GROUP] == "/system.slice"
        assert shown[ALLOWED_CPUS] == NO_CPUS

    def test_a_unit_that_is_nowhere_is_not_found_which_is_no_error(self, systemd: SystemdManager) -> None:
        shown = systemd.properties("numalet-nowhere.service")
        assert (shown[LOAD_STATE], shown[ACTIVE_STATE]) == ("not-found", "inactive")

    def test_a_slice_is_made_changed_and_stopped(self, systemd: SystemdManager) -> None:
        systemd.start_transient(SLICE, {ALLOWED_CPUS: CpuSet.parse("1,9-11"), CPU_QUOTA: 1_500_000})
        try:
            shown = systemd.properties(SLICE)
            assert shown[ACTIVE_STATE] == "active"
            assert shown[ALLOWED_CPUS] == CpuSet.parse("1,9-11")
            assert shown[CPU_QUOTA] == 1_500_000
            systemd.set_properties(
                SLICE, {ALLOWED_CPUS: CpuSet.parse("0"), ALLOWED_MEMORY_NODES: NodeMask.of([1])}
            )
            shown = systemd.properties(SLICE)
            assert shown[ALLOWED_CPUS] == CpuSet.parse("0")
            assert shown[ALLOWED_MEMORY_NODES] == NodeMask.of([1])
            systemd.set_properties(SLICE, {ALLOWED_CPUS: NO_CPUS})
            assert systemd.properties(SLICE)[ALLOWED_CPUS] == NO_CPUS
            assert [unit.name for unit in systemd.units(["numalettest*"])] == [SLICE]
        finally:
            systemd.stop(SLICE)
        assert systemd.properties(SLICE)[ACTIVE_STATE] == "inactive"

    def test_many_units_are_told_and_asked_at_once(self, systemd: SystemdManager) -> None:
        below = [f"numalettest-{number}.slice" for number in range(101)]
        systemd.start_transient(SLICE, {})
        systemd.start_transient(below[100], {})
        try:
            systemd.set_properties_of({SLICE: {CPU_QUOTA: 500_000}, below[100]: {CPU_QUOTA: 700_000}})
            shown = systemd.properties_of([SLICE, *below])
            assert [*shown] == [SLICE, *below]
            assert (shown[SLICE][CPU_QUOTA], shown[below[100]][CPU_QUOTA]) == (500_000, 700_000)
            assert systemd.states([below[100], below[0]]) == {below[100]: "active", below[0]: "inactive"}
        finally:
            systemd.stop(below[100])
            systemd.stop(SLICE)
        assert systemd.states([below[100]]) == {below[100]: "inactive"}

    def test_a_service_that_does_not_run_takes_limits_and_gives_them_up(
        self, systemd: SystemdManager, idle: str
    ) -> None:
        shown = systemd.properties(idle)
        before = {name: shown[name] for name in LIMITS}
        assert (shown[LOAD_STATE], shown[ACTIVE_STATE], shown["Id"]) == ("loaded", "inactive", idle)
        assert place_of(idle, shown) == f"system.slice/{idle}"
        files = {
            "cpuset.cpus": "1",
            "cpuset.mems": "1",
            "cpu.max": "150000 100000",
            "cpu.weight": "50",
            "memory.max": "8192",
        }
        systemd.set_properties(idle, properties_of(files))
        assert {name: systemd.properties(idle)[name] for name in LIMITS} == properties_of(files)
        systemd.set_properties(idle, before)
        assert {name: systemd.properties(idle)[name] for name in LIMITS} == before

    def test_what_was_never_set_is_forgotten_without_a_word(self, systemd: SystemdManager) -> None:
        systemd.forget_property(["system.slice"], ALLOWED_MEMORY_NODES)
        assert systemd.properties("system.slice")[ALLOWED_MEMORY_NODES] == NodeMask()

    def test_a_transient_unit_is_made_once(self, systemd: SystemdManager) -> None:
        systemd.start_transient(SLICE, {})
        try:
            with pytest.raises(SystemdError) as caught:
                systemd.start_transient(SLICE, {})
        finally:
            systemd.stop(SLICE)
        assert caught.value.code == "org.freedesktop.systemd1.UnitExists"
        assert SLICE in caught.value.message

    def test_a_slice_that_is_loaded_is_started(self, systemd: SystemdManager) -> None:
        systemd.start_loaded(SLICE)
        try:
            assert systemd.properties(SLICE)[ACTIVE_STATE] == "active"
            systemd.start_loaded(SLICE)
        finally:
            systemd.stop(SLICE)

    def test_stopping_what_does_not_run_is_fine(self, systemd: SystemdManager) -> None:
        systemd.stop("numalet-nowhere.service")

    def test_a_property_of_no_known_type_is_refused_before_anything_is_sent(
        self, systemd: SystemdManager
    ) -> None:
        with pytest.raises(SystemdError, match="Nonsense"):
            systemd.set_properties("system.slice", {"Nonsense": 1})
