"""Building a policy from settings, and the policy that does nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.cpumanager.policy import NoneCpuManager, new_cpu_manager
from agent.domain.idset import NO_CPUS, CpuSet
from agent.domain.outcome import Isolation
from agent.domain.pod import CPU
from agent.domain.settings import CpuPolicy, Settings, TopologyPolicy
from agent.domain.state import CpuState
from agent.domain.trace import WHOLE_POD, Pool, Shared
from agent.errors import ConfigError
from tests.cpumanager.build import NO_HINT, container, machine, pod, settings, static

HT = machine(8)

REFUSED = [
    (
        replace(settings(), node_reserved={}),
        "[cpumanager] unable to determine reserved CPU resources for static policy",
    ),
    (
        settings(reserved="0"),
        (
            "[cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu"
            " to be greater than zero"
        ),
    ),
    (
        replace(settings(reserved="3"), reserved_cpus=CpuSet.parse("0,4")),
        (
            "new static policy error: [cpumanager] unable to reserve the required amount of CPUs"
            " (size of 0,4 did not equal 3)"
        ),
    ),
    (
        settings(reserved="9"),
        (
            "new static policy error: [cpumanager] unable to reserve the required amount of CPUs"
            " (size of  did not equal 9)"
        ),
    ),
    (
        replace(settings(reserved="2"), reserved_cpus=CpuSet.parse("0,99")),
        (
            "new static policy error: [cpumanager] unable to build the reserved physical CPUs"
            " from the reserved set: unknown CPU ID: 99"
        ),
    ),
    (
        settings({"full-pcpus": "true"}),
        'new static policy error: unknown CPU Manager Policy option: "full-pcpus"',
    ),
    (
        settings({"align-by-socket": "true"}, topology_policy=TopologyPolicy.SINGLE_NUMA_NODE),
        (
            "new static policy error: Topolgy manager single-numa-node policy is incompatible"
            " with CPUManager align-by-socket policy option"
        ),
    ),
    (
        Settings(cpu_policy=CpuPolicy.NONE, cpu_options={"b": "1", "a": "2"}),
        "new none policy error: None policy: received unsupported options=map[a:2 b:1]",
    ),
]


@pytest.mark.parametrize(("given", "message"), REFUSED, ids=[m for _, m in REFUSED])
def test_settings_that_do_not_fit_are_refused(given: Settings, message: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        new_cpu_manager(given, HT)
    assert refusal.value.message == message


@pytest.mark.parametrize(
    ("given", "reserved", "physical"),
    [
        (settings(reserved="1"), "0", "0,4"),
        (settings(reserved="1500m"), "0,4", "0,4"),
        (settings(reserved="3"), "0-1,4", "0-1,4-5"),
        (replace(settings(reserved="2"), reserved_cpus=CpuSet.parse("1-2")), "1-2", "1-2,5-6"),
    ],
    ids=["one", "rounded up", "whole core first", "named"],
)
def test_reserved_cpus(given: Settings, reserved: str, physical: str) -> None:
    manager = static(HT, given)
    assert str(manager.reserved) == reserved
    assert str(manager.reserved_physical) == physical
    assert manager.allocatable == HT.online - manager.reserved


def test_policy_none_gives_nothing() -> None:
    manager = new_cpu_manager(Settings(), HT)
    assert isinstance(manager, NoneCpuManager)
    one = pod("u", container("c", "2"))
    state = manager.restore(CpuState())
    assert manager.allocatable == manager.reserved == manager.reserved_physical == NO_CPUS
    assert manager.wishes(state, one, one.containers[0], NO_CPUS) == {}
    assert manager.pod_wishes(state, one) == {}
    alone = manager.allocate(state, one, one.containers[0], NO_HINT, NO_CPUS)
    whole = manager.allocate_pod(state, one, NO_HINT)
    why = "the CPU manager policy is none"
    assert alone.steps == (Shared("c", CPU, Pool.NODE, why),)
    assert whole.steps == (Shared(WHOLE_POD, CPU, Pool.NODE, why),)
    assert alone.state == whole.state == state == CpuState()
    assert manager.isolation(state, one, one.containers[0]) is Isolation.HOST
    assert manager.cpus_of(state, one.uid, "c") == NO_CPUS
    assert manager.remove_container(state, one.uid, "c") == state
    assert manager.remove_pod(state, one.uid) == state
