"""Replaying merges: ``{"nodes", "distances", "policy", "options", "providers"}`` -> hint and verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.domain.hints import ANY_NODE_BITS, NO_PREFERENCE, Hints, Impossible, Wish, Wishes
from agent.domain.idset import NodeMask
from agent.domain.pod import ResourceName
from agent.domain.settings import Settings, TopologyPolicy
from agent.domain.topology import NodeId, NumaNode, Topology
from agent.errors import ConfigError
from agent.replay.history import hint_json
from agent.topologymanager.options import policy_options
from agent.topologymanager.policy import new_topology_manager

Json = dict[str, Any]


def replay_merge(case: Mapping[str, Any]) -> Json:
    """Answer one merge in the schema's ``out`` form."""
    settings = Settings(
        topology_policy=TopologyPolicy(case["policy"]), topology_options=case.get("options", {})
    )
    try:
        # The vectors were made below the manager: there policy none reads the options too, and
        # errors lack the manager's prefix.
        policy_options(settings.topology_options)
        manager = new_topology_manager(settings, _topology(case))
    except ConfigError as error:
        return {"error": error.message.removeprefix("cannot discover NUMA topology: "), "reason": ""}
    merged = manager.merge([_wishes(provider) for provider in case["providers"]], "main")
    return {"admit": merged.admitted, "hint": hint_json(merged.hint)}


def _topology(case: Mapping[str, Any]) -> Topology:
    """Rows of distances stand in the order of the nodes, a row's columns are node ids."""
    ids, rows = case["nodes"], case.get("distances")
    distances = [tuple(row[node] for node in ids) for row in rows] if rows else [()] * len(ids)
    nodes = zip(ids, distances, strict=True)
    return Topology(cpus=(), nodes=tuple(NumaNode(id=NodeId(node), distances=row) for node, row in nodes))


def _wishes(provider: Mapping[str, Any] | None) -> Wishes:
    return {ResourceName(name): _wish(hints) for name, hints in (provider or {}).items()}


def _wish(hints: list[Mapping[str, Any]] | None) -> Wish:
    if hints is None:
        return NO_PREFERENCE
    if not hints:
        return Impossible("recorded as impossible")
    masks = [(ANY_NODE_BITS if h["m"] is None else NodeMask.of(h["m"]).bits, h["p"]) for h in hints]
    return Hints(
        preferred=tuple(mask for mask, preferred in masks if preferred),
        other=tuple(mask for mask, preferred in masks if not preferred),
    )
