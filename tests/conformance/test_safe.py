"""Where numalet's default (`Fidelity.SAFE`) leaves the kubelet's decisions, the kubelet's do harm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agent.domain.idset import CpuSet
from agent.domain.settings import Fidelity
from agent.domain.state import NodeState, invariants
from agent.manifest import pod_from_object
from agent.replay.cases import mismatches
from agent.replay.checkpoint import cpu_state
from agent.replay.history import replay_history
from agent.replay.take import replay_take
from tests.conformance.vectors import cases
from tests.properties.soundness import overlaps


def test_a_safe_choice_of_cpus_differs_only_where_the_kubelet_hands_out_a_taken_cpu() -> None:
    different = 0
    for line, case in cases("take"):
        safe = replay_take(case["in"], Fidelity.SAFE)
        if not mismatches(case, safe):
            continue
        different += 1
        available = CpuSet.parse(case["in"]["available"])
        assert not CpuSet.parse(case["out"]["cpus"]) <= available, line
        assert CpuSet.parse(safe["cpus"]) <= available, line
        assert len(CpuSet.parse(safe["cpus"])) == case["in"]["n"], line
    assert different


def test_a_safe_history_leaves_the_kubelets_only_where_that_one_breaks_its_own_rules() -> None:
    different = 0
    for line, case in _cases_that_can_differ():
        safe = replay_history(case["in"], Fidelity.SAFE)
        if not mismatches(case, safe):
            continue
        different += 1
        assert _harm(case, safe), f"line {line}: {mismatches(case, safe)[0]}"
    assert different


def _cases_that_can_differ() -> Iterator[tuple[int, dict[str, Any]]]:
    """Cores or sockets of unequal size, or a shared pool that no reserved CPU keeps from being emptied."""
    for line, case in cases("admit"):
        strict = case["in"]["config"].get("cpuOptions", {}).get("strict-cpu-reservation") == "true"
        if strict or _has_unequal_units(case["in"]["machine"]["cpus"]):
            yield line, case


def _has_unequal_units(cpus: list[list[int]]) -> bool:
    return any(len({_count(cpus, column, cpu[column]) for cpu in cpus}) > 1 for column in (1, 2))


def _count(cpus: list[list[int]], column: int, unit: int) -> int:
    return sum(cpu[column] == unit for cpu in cpus)


def _harm(case: Mapping[str, Any], safe: Mapping[str, Any]) -> bool:
    """Whether the kubelet's start, or its state after the first step that differs, is broken.

    Where both refuse a pod, what differs is a word or where in a group of NUMA nodes bytes are free.
    """
    out = case["out"]
    if "error" in out or out["init"] != safe["init"]:
        return _has_unequal_units(case["in"]["machine"]["cpus"]) or _offers_more_than_there_is(out["init"])
    steps = zip(case["in"]["steps"], out["steps"], safe["steps"], strict=False)
    step, theirs, ours = next(step for step in steps if step[1] != step[2])
    if theirs.get("admit") is ours.get("admit") is False:
        return True
    return _is_broken(case, NodeState(cpu=cpu_state(theirs["cpu"]))) or _overlaps(step, theirs)


def _offers_more_than_there_is(init: Mapping[str, Any]) -> bool:
    """Whether a NUMA node has more allocatable than total: the kubelet's unsigned numbers wrapped round."""
    nodes = init.get("mem", {}).get("nodes", {}).values()
    return any(table[2] > table[0] for _, _, tables in nodes for table in tables.values())


def _is_broken(case: Mapping[str, Any], state: NodeState) -> bool:
    init = case["out"]["init"]
    online = CpuSet.of(cpu[0] for cpu in case["in"]["machine"]["cpus"])
    reserved = CpuSet.parse(init["reserved"])
    strictly = reserved - CpuSet.parse(init["cpu"]["default"])
    lost = reserved - strictly - state.cpu.default
    return bool(lost) or not state.cpu.default or any(invariants(state, online, strictly))


def _overlaps(step: Mapping[str, Any], theirs: Mapping[str, Any]) -> bool:
    if "isolation" not in theirs:
        return False
    sets = theirs["cpuAffinity"]
    alone = [name for name, level in theirs["isolation"].items() if level == "container"]
    return any(overlaps(pod_from_object(step["pod"]), {name: CpuSet.parse(sets[name]) for name in alone}))
