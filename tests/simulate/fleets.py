"""Small fleets, stated as an operator states them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from agent.cli.simulation import simulate
from agent.simulate.cell import Cell, node_kinds
from agent.simulate.fleet import Fleet
from agent.simulate.result import Result
from agent.simulate.spec import load_fleet
from agent.sysfs.discovery import discover
from agent.sysfs.recorded import load_recording

EXAMPLE = Path(__file__).parents[2] / "docs/fleet.yaml"
Json = dict[str, Any]


def container(name: str, cpu: Any, memory: Any = "1Gi", **more: Any) -> Json:
    return {"name": name, "resources": {"limits": {"cpu": cpu, "memory": memory}}, **more}


def template(name: str, *containers: Json, lifetime: Json | None = None, **more: Any) -> Json:
    spec = {"containers": list(containers)}
    return {"name": name, "lifetime": lifetime or {"constant": "1000h"}, "spec": spec, **more}


def variant(policy: str, scope: str = "pod", **config: Any) -> Json:
    config |= {"topologyManagerPolicy": policy, "topologyManagerScope": scope}
    return {"name": f"{policy} {scope}", "config": config}


def document(*variants: Json, templates: list[Json], total: int, **more: Any) -> Json:
    """Two machines of two NUMA nodes with 5 CPUs each, of which CPU 0 is reserved."""
    shape = {"name": "small", "count": 2, "sockets": 2, "cores": 5, "memory": "64Gi"}
    for one in variants:
        one["config"]["reservedSystemCPUs"] = "0"
    return {
        "apiVersion": "numalet/v1",
        "kind": "Fleet",
        "nodes": [shape],
        "variants": list(variants),
        "pods": {"total": total, "perHour": 60, "templates": templates},
        **more,
    }


def fleet_of(stated: Json) -> Fleet:
    return load_fleet(
        json.dumps(stated).encode(), "fleet.yaml", lambda name: discover(load_recording(Path(name)))
    )


def example(pods: int) -> Fleet:
    """The example of the documentation, with fewer pods coming as fast."""
    text = EXAMPLE.read_text().replace("total: 20000", f"total: {pods}")
    assert f"total: {pods}" in text
    return load_fleet(text.encode(), "fleet.yaml", lambda _: discover(load_recording(Path("/nowhere"))))


def results(stated: Json) -> list[Result]:
    return list(simulate(fleet_of(stated), 1, lambda _: None).results)


def seeded(seed: object) -> random.Random:
    return random.Random(str(seed))  # noqa: S311 - no secret


def cell_of(fleet: Fleet, variant: int, cell: int = 0) -> Cell:
    return Cell(fleet, variant, cell, node_kinds(fleet, fleet.variants[variant]), seeded(1))
