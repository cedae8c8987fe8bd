"""`numalet simulate`: which policy and scope should run on a fleet?"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from agent.cli.common import machine_topology, output_option, print_json
from agent.cli.simulated import report_text
from agent.cli.simulation import Outcome, processors, tasks
from agent.cli.simulation import simulate as run
from agent.domain.topology import Topology
from agent.drawing.chart import chart_svg
from agent.errors import ConfigError
from agent.simulate.fleet import Fleet
from agent.simulate.report import chart, figures, report_json
from agent.simulate.spec import load_fleet


@click.command()
@click.option(
    "--fleet",
    "spec",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="What to simulate (YAML): nodes, variants of the settings, pods. See docs/simulate.md.",
)
@click.option("--svg", metavar="FILE", help="Draw the figures as SVG into FILE (- for standard output).")
@click.option(
    "--jobs",
    type=click.IntRange(1, 1024),
    help="Processes; as many as there are CPUs where not given. The figures do not depend on it.",
)
@output_option
def simulate(spec: Path, svg: str | None, jobs: int | None, output: str) -> None:
    """Place a stream of pods on a fleet of nodes under several settings, and compare.

    Each node decides as the daemon would. Every variant gets the same pods. Ctrl-C shows what is done
    so far (exit status 130). No daemon is asked, nothing is changed.

    \b
    numalet simulate --fleet fleet.yaml
    numalet simulate --fleet fleet.yaml --svg fleet.svg -o json
    """
    if svg == "-" and output == "json":
        raise click.UsageError("--svg - and -o json both want standard output")
    fleet = load_fleet(spec.read_bytes(), str(spec), lambda name: _recorded(spec.parent / name))
    with _progress(tasks(fleet)) as done:
        outcome = run(fleet, jobs or processors(), done)
    if outcome.interrupted:
        click.echo(f"numalet: interrupted after {outcome.cells} of {fleet.cells} cells", err=True)
    if outcome.cells:
        _show(fleet, outcome, svg, output)
    if outcome.interrupted:
        raise click.exceptions.Exit(130)


def _recorded(file: Path) -> Topology:
    if not file.is_file():
        raise ConfigError(f"{file} is not there")
    return machine_topology(file)


def _show(fleet: Fleet, outcome: Outcome, svg: str | None, output: str) -> None:
    found = figures(fleet, outcome.results)
    if svg is not None:
        drawing = chart_svg(chart(fleet, found))
        if svg == "-":
            click.echo(drawing, nl=False)
            return
        Path(svg).write_text(drawing, encoding="utf-8")
    if output == "json":
        print_json(report_json(fleet, found))
    else:
        click.echo(report_text(fleet, found))


@contextmanager
def _progress(length: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal; else a line for each tenth. On standard error, so that output can be piped."""
    if sys.stderr.isatty():
        with click.progressbar(length=length, label="cells", file=sys.stderr, show_pos=True) as bar:
            yield bar.update
        return
    finished = 0

    def tell(more: int) -> None:
        nonlocal finished
        before, finished = finished, finished + more
        if before * 10 // length != finished * 10 // length:
            click.echo(f"{finished} of {length} cells", err=True)

    yield tell
