"""Checks of a stored state, in the kubelet's words."""

from __future__ import annotations

import pytest

from agent.cpumanager.static import StaticCpuManager
from agent.domain.idset import CpuSet
from agent.domain.pod import PodUid
from agent.domain.settings import Gates
from agent.domain.state import CpuState
from agent.errors import StateError
from tests.cpumanager.build import machine, settings, static

MACHINE = machine(8, threads=1)
PLAIN = static(MACHINE)
STRICT = static(MACHINE, settings({"strict-cpu-reservation": "true"}))


def stored(default: str, pods: dict[str, str] | None = None, **entries: str) -> CpuState:
    """``u="1-2"`` is the only container of pod u."""
    return CpuState(
        default=CpuSet.parse(default),
        entries={PodUid(uid): {"c": CpuSet.parse(cpus)} for uid, cpus in entries.items()},
        pod_entries={PodUid(uid): CpuSet.parse(cpus) for uid, cpus in (pods or {}).items()},
    )


def test_an_empty_state_becomes_the_initial_one() -> None:
    assert PLAIN.restore(CpuState()) == stored("0-7")
    assert STRICT.restore(CpuState()) == stored("1-7")


@pytest.mark.parametrize(
    "state",
    [stored("0-7"), stored("0,3-7", u="1-2"), stored("0,5-7", {"u": "1-4"}, u="1-2")],
    ids=["unused", "container", "pod"],
)
def test_a_sound_state_is_kept(state: CpuState) -> None:
    assert PLAIN.restore(state) == state


REFUSED = [
    (PLAIN, stored("", u="1"), "default cpuset cannot be empty"),
    (PLAIN, stored("1-7"), 'not all reserved cpus: "0" are present in defaultCpuSet: "1-7"'),
    (
        STRICT,
        stored("0-7"),
        'some of strictly reserved cpus: "0" are present in defaultCpuSet: "0-7"',
    ),
    (
        PLAIN,
        stored("0-6", u="6-7"),
        'pod: u, container: c cpuset: "6-7" overlaps with default cpuset "0-6"',
    ),
    (
        PLAIN,
        stored("0,2-7"),
        'current set of available CPUs "0-7" doesn\'t match with CPUs in state "0,2-7"',
    ),
    (
        PLAIN,
        stored("0-6", {"u": "7-8"}, u="7"),
        'current set of available CPUs "0-7" doesn\'t match with CPUs in state "0-8"',
    ),
]


@pytest.mark.parametrize(("manager", "state", "message"), REFUSED, ids=[m for *_, m in REFUSED])
def test_an_unsound_state_is_refused(manager: StaticCpuManager, state: CpuState, message: str) -> None:
    with pytest.raises(StateError) as refusal:
        manager.restore(state)
    assert refusal.value.message == message


def test_without_the_gate_pod_entries_do_not_count() -> None:
    shut = static(MACHINE, settings(gates=Gates(pod_level_resource_managers=False)))
    assert shut.restore(stored("0,3-7", {"u": "1-2"}, u="1-2")) == stored("0,3-7", u="1-2")
