"""`numalet topology` and `numalet record`."""

from __future__ import annotations

from pathlib import Path

import click

from agent.cli.common import machine_topology, output_option, print_json, socket_option
from agent.cli.recorded import Recorded, path_of, recorded_options
from agent.cli.topology import topology_json, topology_text


@click.command()
@recorded_options
@click.option(
    "--svg", metavar="FILE", help="Draw it as SVG into FILE (- for standard output): who holds each CPU."
)
@click.option("--text", "as_text", is_flag=True, help="Draw it for the terminal: who holds each CPU.")
@socket_option
@output_option
def topology(
    *, machine: Recorded | None, svg: str | None, as_text: bool, socket_path: Path, output: str
) -> None:
    """Show CPUs, cores, sockets, caches and NUMA nodes as numalet sees them.

    A picture shows what the daemon has handed out, too, where one answers, or did for a bundle.

    \b
    numalet topology
    numalet topology --text
    numalet topology --svg node.svg
    numalet topology --machine db7.json.xz -o json
    numalet topology --bundle node7.tar.gz --text
    """
    if sum((svg is not None, as_text, output == "json")) > 1:
        raise click.UsageError("--svg, --text and -o json exclude each other")
    if svg is not None or as_text:
        _draw(machine, svg, socket_path)
        return
    found = machine_topology(path_of(machine))
    if output == "json":
        print_json(topology_json(found))
    else:
        click.echo(topology_text(found), nl=False)


def _draw(machine: Recorded | None, svg: str | None, socket_path: Path) -> None:
    from agent.cli.picture import print_text, taken_picture, write_svg  # noqa: PLC0415 - only for pictures

    picture = taken_picture(machine, socket_path)
    if svg is None:
        print_text(picture)
    else:
        write_svg(picture, svg)


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
