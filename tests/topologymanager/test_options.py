"""Options that are refused, with the kubelet's words, and what they change."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from agent.domain.settings import Settings, TopologyPolicy, TopologyScope
from agent.domain.topology import NodeId, NumaNode, Topology
from agent.errors import ConfigError
from agent.topologymanager.options import policy_options
from agent.topologymanager.policy import new_topology_manager

CLOSEST = "prefer-closest-numa-nodes"
MOST = "max-allowable-numa-nodes"


def machine(nodes: int, distances: int | None = None) -> Topology:
    row = tuple(range(10, 10 + (nodes if distances is None else distances)))
    return Topology(cpus=(), nodes=tuple(NumaNode(id=NodeId(node), distances=row) for node in range(nodes)))


def settings_of(options: Mapping[str, str], policy: TopologyPolicy = TopologyPolicy.RESTRICTED) -> Settings:
    return Settings(topology_policy=policy, topology_scope=TopologyScope.POD, topology_options=options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fast": "true"}, 'unknown Topology Manager Policy option: "fast"'),
        (
            {"numa-allocation-strategy": "x"},
            'unknown Topology Manager Policy option: "numa-allocation-strategy"',
        ),
        ({'a"\n\u00e9\x01\u200b': ""}, r'unknown Topology Manager Policy option: "a\"\né\x01\u200b"'),
        (
            {CLOSEST: "yes"},
            f'bad value for option "{CLOSEST}": strconv.ParseBool: parsing "yes": invalid syntax',
        ),
        (
            {CLOSEST: "tRUE"},
            f'bad value for option "{CLOSEST}": strconv.ParseBool: parsing "tRUE": invalid syntax',
        ),
        (
            {MOST: "true"},
            f'unable to convert policy option to integer "{MOST}": strconv.Atoi: parsing "true": invalid syntax',
        ),
        (
            {MOST: ""},
            f'unable to convert policy option to integer "{MOST}": strconv.Atoi: parsing "": invalid syntax',
        ),
        (
            {MOST: "1_0"},
            f'unable to convert policy option to integer "{MOST}": strconv.Atoi: parsing "1_0": invalid syntax',
        ),
        (
            {MOST: "9223372036854775808"},
            (
                f'unable to convert policy option to integer "{MOST}":'
                ' strconv.Atoi: parsing "9223372036854775808": value out of range'
            ),
        ),
        ({MOST: "7"}, f'the minimum value of "{MOST}" should not be less than 8'),
        ({MOST: "-16"}, f'the minimum value of "{MOST}" should not be less than 8'),
        ({MOST: "10"}, "unsupported on machines with more than 10 NUMA Nodes"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
)
def test_a_bad_option_is_refused_with_the_kubelets_text(options: Mapping[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        new_topology_manager(settings_of(options), machine(11))
    assert caught.value.message == message
    assert caught.value.hint


def test_true_for_a_number_of_nodes_is_told_to_be_an_integer() -> None:
    """E4: an old page of the documentation said ``max-allowable-numa-nodes=true``."""
    with pytest.raises(ConfigError) as caught:
        policy_options({MOST: "true"})
    assert "is an integer, 8 or more" in caught.value.hint


@pytest.mark.parametrize("shown", [0, 1])
def test_the_closest_nodes_need_distances_from_every_node(shown: int) -> None:
    with pytest.raises(ConfigError, match="cannot discover NUMA topology: error getting NUMA distances"):
        new_topology_manager(settings_of({CLOSEST: "true"}), machine(2, shown))


@pytest.mark.parametrize("text", ["1", "t", "T", "TRUE", "true", "True"])
def test_gos_true_values_turn_the_closest_nodes_on(text: str) -> None:
    manager = new_topology_manager(settings_of({CLOSEST: text}), machine(2))
    assert manager.distances == {0: {0: 10, 1: 11}, 1: {0: 10, 1: 11}}


@pytest.mark.parametrize("text", ["0", "f", "F", "FALSE", "false", "False"])
def test_gos_false_values_need_no_distances(text: str) -> None:
    assert new_topology_manager(settings_of({CLOSEST: text}), machine(2, 0)).distances is None


@pytest.mark.parametrize("text", ["8", "+16", "0000000000000000000000000008", "9223372036854775807"])
def test_a_limit_that_the_machine_keeps_is_accepted(text: str) -> None:
    manager = new_topology_manager(settings_of({MOST: text}), machine(8))
    assert (manager.policy, manager.scope) == (TopologyPolicy.RESTRICTED, TopologyScope.POD)


def test_without_an_option_there_is_no_limit_of_nodes() -> None:
    assert len(new_topology_manager(settings_of({}), machine(64)).nodes) == 64


def test_policy_none_looks_at_no_option() -> None:
    settings = settings_of({MOST: "7", "fast": ""}, TopologyPolicy.NONE)
    assert new_topology_manager(settings, machine(12, 0)).policy is TopologyPolicy.NONE
