"""What went wrong for other people with hints, NUMA nodes and reserved memory: the cases E1 to E9.

E1 and E2 for the merge alone are in `tests.topologymanager.test_merge`.
"""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from agent.admission import Admitted, admit, new_managers, restore
from agent.config import Config
from agent.containermanager.machine import Machine
from agent.domain.hints import Hints
from agent.domain.idset import NodeMask
from agent.domain.pod import CPU, MEMORY
from agent.domain.quantity import parse_quantity
from agent.domain.settings import TopologyPolicy, TopologyScope
from agent.domain.state import NodeState
from agent.domain.topology import NodeId, NumaNode
from agent.errors import ConfigError
from tests.containermanager.node import GIB, pod, topology

POLICIES = [TopologyPolicy.BEST_EFFORT, TopologyPolicy.RESTRICTED, TopologyPolicy.SINGLE_NUMA_NODE]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.value)
def test_e1_a_pod_on_eight_full_numa_nodes_is_decided_at_once(policy: TopologyPolicy) -> None:
    machine = topology(64, 8)
    managers = new_managers(Config(topology_policy=policy).settings(machine), machine)
    state = restore(managers, NodeState())
    start = time.process_time()
    admit(managers, state, pod("a", cpu="20", memory="9Gi"))
    assert time.process_time() - start < 1, "the kubelet needs minutes"


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.value)
def test_e2_32_memory_only_nodes_do_not_enlarge_the_search_for_cpus(policy: TopologyPolicy) -> None:
    two = topology(16, 2)
    more = tuple(NumaNode(id=NodeId(node), memory=GIB) for node in range(2, 34))
    machine = replace(two, nodes=(*two.nodes, *more))
    managers = new_managers(Config(topology_policy=policy).settings(machine), machine)
    decision = admit(managers, restore(managers, NodeState()), pod("a", cpu="4", memory="1Gi"))
    assert isinstance(decision, Admitted)
    assert decision.hints["main"].affinity == NodeMask.of([0])


def test_e3_only_the_narrowest_hints_are_preferred() -> None:
    machine = topology(16, 4)
    settings = Config(topology_scope=TopologyScope.CONTAINER).settings(machine)
    managers = new_managers(settings, machine)
    state = restore(managers, NodeState())
    wish = managers.cpu.pod_wishes(state.cpu, pod("a", cpu="1"))[CPU]
    assert isinstance(wish, Hints)
    assert [NodeMask(bits) for bits in wish.preferred] == [NodeMask.of([node]) for node in range(4)]


def test_e4_a_flag_where_a_number_belongs_is_explained() -> None:
    machine = topology()
    config = Config(topology_options={"max-allowable-numa-nodes": "true"})
    with pytest.raises(ConfigError) as refused:
        new_managers(config.settings(machine), machine)
    assert "unable to convert policy option to integer" in refused.value.message
    assert "is an integer, 8 or more" in refused.value.hint


def test_e9_reserved_memory_that_does_not_add_up_is_shown_as_a_sum() -> None:
    machine = topology()
    config = Config(
        kube_reserved={MEMORY: parse_quantity("500Mi")},
        reserved_memory={NodeId(0): {MEMORY: parse_quantity("1Gi")}},
    )
    with pytest.raises(ConfigError) as refused:
        Machine.of(machine, config.settings(machine), config.reservation_arithmetic(machine))
    assert (
        'the total amount "1Gi" of type "memory" is not equal to the value "600Mi"' in refused.value.message
    )
    assert "1Gi on node 0" in refused.value.hint
    assert "kubeReserved 500Mi + systemReserved 0 + evictionHard 100Mi = 600Mi" in refused.value.hint
