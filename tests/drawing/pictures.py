"""Pictures to draw: machines bare, and with every kind of holder on them."""

from __future__ import annotations

from dataclasses import replace

from agent.domain.topology import Topology
from agent.drawing.picture import Holder, Kind, Picture, bare_picture

HOSTILE = '"><script>alert(1)</script>&\x00\x1b[31m'
HOLDERS = (
    Holder(Kind.RESERVED),
    Holder(Kind.EXCLUSIVE, "default/a", "main"),
    Holder(Kind.EXCLUSIVE, "default/a", "other"),
    Holder(Kind.POD_SHARED, "default/a"),
    Holder(Kind.NODE_SHARED),
    Holder(Kind.EXCLUSIVE, HOSTILE, HOSTILE),
    Holder(Kind.POD_SHARED, HOSTILE),
    Holder(Kind.ISOLATED),
)


def full_picture(topology: Topology) -> Picture:
    """Holders of every kind in turn, a third of the memory held, a tenth reserved."""
    bare = bare_picture(topology)
    memory = {
        node: tuple(replace(kind, held=kind.total // 3, reserved=kind.total // 10) for kind in kinds)
        for node, kinds in bare.memory.items()
    }
    holders = {cpu.id: HOLDERS[place % len(HOLDERS)] for place, cpu in enumerate(topology.cpus)}
    return Picture(topology=topology, holders=holders, memory=memory)
