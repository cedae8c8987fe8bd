"""Replaying CPU assignments: ``{"machine", "available", "n", "mode", …}`` -> the CPUs or the error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.cpumanager.assignment import Strategy, take
from agent.cpumanager.distribute import Distributed
from agent.cpumanager.packed import Packed
from agent.cpumanager.tables import cpu_tables
from agent.domain.idset import CpuSet
from agent.domain.settings import Fidelity
from agent.errors import AdmissionError
from agent.replay.machine import topology_of

Json = dict[str, Any]


def replay_take(case: Mapping[str, Any], fidelity: Fidelity = Fidelity.KUBELET) -> Json:
    """Answer one case in the schema's ``out`` form."""
    tables = cpu_tables(topology_of(case["machine"]), fidelity)
    try:
        taken = take(tables, CpuSet.parse(case["available"]), case["n"], _strategy(case))
    except AdmissionError as error:
        return {"error": error.message, "reason": ""}
    return {"cpus": str(taken.cpus)}


def _strategy(case: Mapping[str, Any]) -> Strategy:
    spread = case["sort"] == "spread"
    if case["mode"] == "distributed":
        return Distributed(group_size=case["group"], spread=spread)
    return Packed(spread=spread, uncore=case["uncore"])
