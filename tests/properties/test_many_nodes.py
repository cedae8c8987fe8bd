"""Machines with 16 and 64 NUMA nodes are decided on, or refused with the reason, in no time."""

from __future__ import annotations

import time

import pytest

from agent.admission import Admitted, admit, new_managers, restore
from agent.domain.pod import CPU, MEMORY, Container, Pod, PodUid
from agent.domain.quantity import Quantity, parse_quantity
from agent.domain.settings import CpuPolicy, MemoryPolicy, Settings, TopologyPolicy, TopologyScope
from agent.domain.state import NodeState
from tests.properties.choices import MIB, equal
from tests.properties.machines import MANY_NODES, with_memory
from tests.properties.soundness import faults
from tests.sysfs.machines import discovered


@pytest.mark.parametrize("policy", TopologyPolicy, ids=lambda policy: policy.value)
@pytest.mark.parametrize("name", sorted(MANY_NODES))
def test_pods_on_a_machine_with_very_many_nodes(name: str, policy: TopologyPolicy) -> None:
    machine, reserved = with_memory(discovered(name)), Quantity.bytes(64 * MIB)
    settings = Settings(
        cpu_policy=CpuPolicy.STATIC,
        node_reserved={CPU: parse_quantity("1"), MEMORY: reserved},
        memory_policy=MemoryPolicy.STATIC,
        reserved_memory={machine.nodes[0].id: {MEMORY: reserved}},
        topology_policy=policy,
        topology_scope=TopologyScope.POD,
    )
    managers = new_managers(settings, machine)
    state, pods = restore(managers, NodeState()), []
    start = time.process_time()
    for number, cpus in enumerate(("1", "3", "9", "2")):
        container = Container(name="app", resources=equal(cpus, 64 * MIB))
        pod = Pod(name="p", namespace="ns", uid=PodUid(f"u{number}"), containers=(container,))
        decision = admit(managers, state, pod)
        if isinstance(decision, Admitted):
            pods.append(pod)
            assert admit(managers, decision.state, pod).state == decision.state
        else:
            assert decision.reason == "TopologyAffinityError" or "NUMA nodes" in decision.message
            assert decision.state == state
        state = decision.state
    assert pods
    assert list(faults(managers, state, pods)) == []
    assert time.process_time() - start < 10
