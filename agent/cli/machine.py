"""`numalet topology` and `numalet record`."""

from __future__ import annotations

from pathlib import Path

import click

from agent.cli.common import machine_option, machine_topology, output_option, print_json
from agent.cli.topology import topology_json, topology_text


@click.command()
@machine_option
@output_option
def topology(machine: Path | None, output: str) -> None:
    """Show CPUs, cores, sockets, caches and NUMA nodes as numalet sees them.

    \b
    numalet topology
    numalet topology --machine db7.json.xz -o json
    """
    found = machine_topology(machine)
    if output == "json":
        print_json(topology_json(found))
    else:
        click.echo(topology_text(found), nl=False)


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
def record(file: Path) -> None:
    """Save this machine's topology to FILE (.json, or .json.xz to compress it).

    The recording holds topology, caches, memory sizes and huge pages of this host, nothing else.
    Every command with --machine reads it.

    \b
    numalet record db7.json.xz
    """
    from agent.sysfs.discovery import discover  # noqa: PLC0415 - only this command reads sysfs
    from agent.sysfs.reader import HostSysfs  # noqa: PLC0415
    from agent.sysfs.recorded import record as take_recording  # noqa: PLC0415
    from agent.sysfs.recorded import save_recording  # noqa: PLC0415

    recording = take_recording(HostSysfs(Path("/")), file.name.split(".")[0])
    save_recording(recording, file)
    click.echo(f"{file}: {len(discover(recording).cpus)} CPUs recorded")
