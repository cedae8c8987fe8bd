"""`numalet topology --svg` and ``--text``: the machine, and who holds it where a daemon knows."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import click

from agent.api.client import ControlClient, ControlError
from agent.cli.common import machine_topology
from agent.cli.recorded import Recorded, path_of
from agent.domain.pod import ResourceName
from agent.domain.topology import CpuId, NodeId, Topology
from agent.drawing.picture import Holder, Kind, Memory, Picture, bare_picture
from agent.drawing.svg import standalone
from agent.drawing.text import ASCII, UNICODE, text
from agent.errors import NumaletError

Json = dict[str, Any]


def taken_picture(machine: Recorded | None, socket_path: Path) -> Picture:
    """A recorded machine bare; a bundle's and this one as the daemon holds it, or bare with a note."""
    topology = machine_topology(path_of(machine))
    if machine is not None:
        return _recorded_picture(machine, topology)
    client = ControlClient(socket_path)
    try:
        return held_picture(topology, client.call("GET", "/v1/cpus"), client.call("GET", "/v1/nodes"))
    except ControlError as error:
        if error.status:
            raise
        click.echo(f"numalet: {error.message}: the bare machine is drawn", err=True)
        return bare_picture(topology)


def _recorded_picture(machine: Recorded, topology: Topology) -> Picture:
    cpus, nodes = machine.answer("cpus"), machine.answer("nodes")
    if cpus is None or nodes is None:
        if machine.root:
            click.echo(f"numalet: {machine}: no daemon answered there: the bare machine is drawn", err=True)
        return bare_picture(topology)
    try:
        return held_picture(topology, cpus, nodes)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NumaletError(f"{machine}: api/cpus.json or api/nodes.json is not a daemon's answer") from error


def held_picture(topology: Topology, cpus: Json, nodes: Json) -> Picture:
    """The machine with what the daemon says of its CPUs and memory."""
    bare = bare_picture(topology)
    holders = {
        CpuId(cpu["id"]): Holder(Kind(cpu["kind"]), cpu["pod"], cpu["container"])
        for cpu in cpus["cpus"]
        if cpu["id"] in topology.online  # it may have gone meanwhile
    }
    memory = {NodeId(node["id"]): _memory(node["memory"]) for node in nodes["numaNodes"] if node["memory"]}
    return Picture(topology=topology, holders={**bare.holders, **holders}, memory={**bare.memory, **memory})


def _memory(tables: Json) -> tuple[Memory, ...]:
    return tuple(
        Memory(
            type=ResourceName(kind),
            total=table["total"],
            reserved=table["systemReserved"],
            held=table["reserved"],
        )
        for kind, table in tables.items()
        if table["total"]
    )


def write_svg(picture: Picture, file: str) -> None:
    """To ``file``, or ``-`` for standard output."""
    drawing = standalone(picture)
    if file == "-":
        click.echo(drawing, nl=False)
    else:
        Path(file).write_text(drawing, encoding="utf-8")


def print_text(picture: Picture) -> None:
    """As wide as the terminal; with lines of Unicode where that is a terminal which has them."""
    encoding = (getattr(sys.stdout, "encoding", "") or "").lower().replace("-", "")
    glyphs = UNICODE if sys.stdout.isatty() and encoding == "utf8" else ASCII
    click.echo(text(picture, shutil.get_terminal_size((100, 24)).columns, glyphs), nl=False)
