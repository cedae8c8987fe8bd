"""Every recorded machine is read as an independent parser (hwloc 2.9) reads it, or differs on purpose."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from agent.domain.idset import CpuSet
from agent.domain.topology import Topology
from tests.sysfs.machines import FOLDER, NAMES, discovered

FACTS: dict[str, dict[str, Any]] = json.loads((FOLDER / "facts.json").read_text())

ONE_PER_NODE = "package id -1 is unknown: one pseudo-socket per NUMA node, not one per core"
NO_PACKAGES = "no package is reported: the machine is one socket"
NO_SIBLINGS = "no thread siblings are reported: each CPU is a core"
NEARBY_CPUS = "hwloc gives memory-only nodes the CPUs nearby; the kernel lists none"

DIFFERENCES: dict[tuple[str, str], tuple[str, Any]] = {
    ("256ppc-8n8s4t", "packages"): (
        ONE_PER_NODE,
        ["0-31", "32-63", "64-95", "96-127", "128-159", "160-191", "192-223", "224-255"],
    ),
    ("ppc64-POWER7-64cpu", "packages"): (ONE_PER_NODE, ["0-63"]),
    ("sparc64", "packages"): (ONE_PER_NODE, ["6-7,10-11,14-15"]),
    ("2ps3-2t", "packages"): (NO_PACKAGES, ["0-1"]),
    ("4fake-4gr1nu1pu", "cores"): (NO_SIBLINGS, ["0", "1", "2", "3"]),
    ("fakememinitiators-1np2c+1npp+gi", "node CPUs"): (
        NEARBY_CPUS,
        {"0": "0-1", "1": "2-3", "2": "4-5", "3": "6-7"} | {str(node): "" for node in range(4, 11)},
    ),
    ("intel-snc2-pmem-112cpu", "node CPUs"): (
        NEARBY_CPUS,
        {str(node): str(CpuSet.of(range(node, 112, 4))) for node in range(4)}
        | {str(node): "" for node in range(4, 8)},
    ),
}


def _sorted(sets: Iterable[CpuSet]) -> list[str]:
    return sorted(str(cpus) for cpus in sets)


def _read(topology: Topology) -> dict[str, Any]:
    return {
        "cpus": str(topology.online),
        "cores": _sorted(topology.cores.values()),
        "packages": _sorted(topology.sockets.values()),
        "l3": _sorted(cpus for cpus in topology.uncores.values() if cpus.isdisjoint(topology.cacheless)),
        "node CPUs": {str(node.id): str(node.cpus) for node in topology.nodes},
        "node memory": {str(node.id): node.memory for node in topology.nodes},
    }


def _fact(name: str, what: str) -> Any:
    facts = FACTS[name]
    if what.startswith("node "):
        key = {"node CPUs": "cpus", "node memory": "memory"}[what]
        return {node: fact[key] for node, fact in facts["nodes"].items()}
    return sorted(facts[what]) if isinstance(facts[what], list) else facts[what]


def test_there_are_26_machines_and_facts_about_each() -> None:
    assert len(NAMES) == 26
    assert sorted(FACTS) == NAMES


@pytest.mark.parametrize("what", ["cpus", "cores", "packages", "l3", "node CPUs", "node memory"])
@pytest.mark.parametrize("name", NAMES)
def test_discovery_agrees_with_the_facts(name: str, what: str) -> None:
    read = _read(discovered(name))[what]
    if (name, what) in DIFFERENCES:
        _, expected = DIFFERENCES[name, what]
        assert expected != _fact(name, what), "no difference any more"
        assert read == (sorted(expected) if isinstance(expected, list) else expected)
    else:
        assert read == _fact(name, what)


@pytest.mark.parametrize("name", NAMES)
def test_a_machine_is_consistent_in_itself(name: str) -> None:
    topology = discovered(name)
    assert [cpu.id for cpu in topology.cpus] == sorted(topology.online)
    assert [node.id for node in topology.nodes] == sorted(topology.all_nodes)
    assert topology.online <= topology.possible
    assert topology.online.isdisjoint(topology.offline)
    assert all(core == min(threads) for core, threads in topology.cores.items())
    for node in topology.nodes:
        assert node.cpus == topology.node_cpus.get(node.id, CpuSet())
        assert len(node.distances) in {0, len(topology.nodes)}


@pytest.mark.parametrize("name", NAMES)
def test_warnings_are_few_and_name_no_placeholder(name: str) -> None:
    warnings = discovered(name).warnings
    assert len(warnings) <= 5
    assert len(set(warnings)) == len(warnings)
    assert not any("{" in warning for warning in warnings)
