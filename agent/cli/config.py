"""`numalet config`: check a configuration, show what it comes to, take a kubelet's over; `numalet reload`."""

from __future__ import annotations

import grp
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click

from agent.api.client import ControlClient, ControlError
from agent.cli.common import machine_topology, print_json, socket_option
from agent.cli.recorded import Recorded, path_of, recorded_options
from agent.cli.scratch import DEFAULT_CONFIG
from agent.config.check import machine_problems
from agent.config.effective import effective
from agent.config.generate import default_file, json_schema
from agent.config.kubelet import from_kubelet
from agent.config.load import Problem, load_config, located
from agent.config.model import Config
from agent.config.table import FIELDS, dump
from agent.containermanager.machine import Machine
from agent.domain.topology import Topology
from agent.errors import ConfigError
from agent.manifest import ManifestError, decode
from agent.manifest.yamlnodes import yaml_text

Json = dict[str, Any]

EXIT_PROBLEMS: Final = 1

_file_argument = click.argument(
    "file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
_format_option = click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(["yaml", "json"]),
    default="yaml",
    show_default=True,
    help="Output format.",
)


@click.group()
def config() -> None:
    """Check a configuration, show what is in force, or take over a kubelet's.

    \b
    numalet config check config.yaml
    numalet config show
    numalet config from-kubelet /var/lib/kubelet/config.yaml -o config.yaml
    """


@config.command()
@_file_argument
@recorded_options
def check(file: Path | None, machine: Recorded | None) -> None:
    """Name every problem of FILE on this machine, with line and way out.

    FILE is /etc/numalet/config.yaml if none is named. Exit status: 0 sound, 1 a problem was found.

    \b
    numalet config check
    numalet config check config.yaml --machine trading-host.json.xz
    """
    name = _named(file, machine) or str(DEFAULT_CONFIG)
    file = _chosen(file, machine) or DEFAULT_CONFIG
    if not file.exists():
        way_out = f"name another FILE, or make this one: numalet config default > {file}"
        raise ConfigError(f"there is no {file}: the defaults hold", hint=way_out)
    raw, topology = file.read_bytes(), machine_topology(path_of(machine))
    try:
        loaded = load_config(raw, name)
    except ConfigError as error:
        click.echo(error.message)
        click.get_current_context().exit(EXIT_PROBLEMS)
    found = (*machine_problems(loaded, topology), *_no_such_group(loaded, machine))
    if found:
        click.echo(located(raw, name, found))
        click.get_current_context().exit(EXIT_PROBLEMS)
    click.echo(f"{name}: no problem; {_reservation(loaded, topology)}")


def _chosen(file: Path | None, machine: Recorded | None) -> Path | None:
    return file or (machine.config if machine else None)


def _named(file: Path | None, machine: Recorded | None) -> str:
    """What to call the chosen file; empty if there is none."""
    if file is None and machine and machine.config:
        return f"{machine}: {machine.config.name}"
    return str(file) if file else ""


def _no_such_group(loaded: Config, machine: Recorded | None) -> Iterator[Problem]:
    try:
        if loaded.control_group and machine is None:
            grp.getgrnam(loaded.control_group)
    except KeyError:
        way_out = f"there is no group {loaded.control_group} (groupadd --system {loaded.control_group})"
        yield "$.controlSocketGroup", way_out


def _reservation(loaded: Config, topology: Topology) -> str:
    made = _made(loaded, topology)
    memory = (
        f"{limits['memory']} of node {node}"  # type: ignore[index]
        for node, limits in sorted(made.settings.reserved_memory.items())
        if "memory" in limits
    )
    return f"reserves CPUs {made.managers.cpu.reserved or 'none'}, memory {', '.join(memory) or 'none'}"


def _made(loaded: Config, topology: Topology) -> Machine:
    return Machine.of(topology, loaded.settings(topology), loaded.reservation_arithmetic(topology))


@config.command()
@_file_argument
@click.option(
    "--effective/--stated",
    "worked_out",
    default=True,
    show_default=True,
    help="With what was computed, or as written.",
)
@click.option("--default", "defaults", is_flag=True, help="The default file, every key explained.")
@_format_option
@recorded_options
@socket_option
def show(
    *,
    file: Path | None,
    worked_out: bool,
    defaults: bool,
    form: str,
    machine: Recorded | None,
    socket_path: Path,
) -> None:
    """Show the whole configuration: what is stated, the defaults, and what is computed on this machine.

    Without FILE it is the running daemon's; where none runs, that of /etc/numalet/config.yaml.

    \b
    numalet config show
    numalet config show config.yaml --machine trading-host.json.xz -o json
    numalet config show --default
    """
    if defaults:
        _print({"config": dump(Config()), "computed": {}}, form, default_file())
        return
    shown = _of_daemon(socket_path) if worked_out and not (file or machine) else None
    if shown is None:
        shown = configuration_of(_chosen(file, machine), path_of(machine), worked_out=worked_out)
        shown["source"] = _named(file, machine) or shown["source"]
    _print(shown, form, _commented(shown))


def _print(shown: Json, form: str, text: str) -> None:
    if form == "json":
        print_json(shown)
    else:
        click.echo(text, nl=False)


def _of_daemon(socket_path: Path) -> Json | None:
    try:
        return ControlClient(socket_path).call("GET", "/v1/config")
    except ControlError as error:
        if error.status:
            raise
        return None


def configuration_of(file: Path | None, machine: Path | None, *, worked_out: bool) -> Json:
    """What a file states, or with ``worked_out`` what it comes to on a machine, and its source."""
    if file is None and machine is None and DEFAULT_CONFIG.exists():
        file = DEFAULT_CONFIG
    loaded = load_config(file.read_bytes(), str(file)) if file else Config()
    source = str(file) if file else "defaults"
    if not worked_out:
        return {"source": source, "config": dump(loaded), "computed": {}}
    topology = machine_topology(machine)
    made = effective(loaded, topology, _made(loaded, topology).managers.cpu.reserved)
    return {"source": source, "config": dict(made.document), "computed": dict(made.why)}


def _commented(shown: Json) -> str:
    lines = [f"# {shown['source']}\n"]
    for key, value in shown["config"].items():
        if key in shown["computed"]:
            lines.append(f"# computed: {shown['computed'][key]}\n")
        lines.append(yaml_text({key: value}))
    return "".join(lines)


@config.command()
@_format_option
def default(form: str) -> None:
    """Print the file that a packaged service has: every key explained, the defaults but hostIsolation: slices.

    With -o json the bare defaults.

    \b
    numalet config default > config.yaml
    """
    _print(dump(Config()), form, default_file())


@config.command()
def schema() -> None:
    """Print the JSON Schema of a configuration file, for editors and pipelines.

    \b
    numalet config schema > numalet.schema.json
    """
    click.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))


@config.command("from-kubelet")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "-o",
    "--output",
    "into",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write there, not to standard output.",
)
def from_kubelet_command(file: Path, into: Path | None) -> None:
    """Make a configuration of a kubelet's FILE: policies, options, reservations and gates as it has them.

    Standard error tells what was taken over, what was left out, and why. Exit status: 0 done, 1 the kubelet
    would refuse FILE.

    \b
    numalet config from-kubelet /var/lib/kubelet/config.yaml -o /etc/numalet/config.yaml
    """
    raw = file.read_bytes()
    try:
        documents = decode(raw, str(file))
    except ManifestError as error:
        raise ConfigError(str(error)) from error
    if len(documents) != 1:
        raise ConfigError(f"{file}: holds {len(documents)} documents, expected one KubeletConfiguration")
    made = from_kubelet(documents[0])
    text = "".join(_head(file, made.left_out)) + yaml_text(dict(made.document))
    problems = [located(raw, str(file), made.problems)] if made.problems else []
    try:
        load_config(text.encode(), str(file))
    except ConfigError as error:
        # Keys are the kubelet's own: the lines are told anew, of its file.
        places = (line.partition(": ")[2].partition(": ") for line in error.message.split("\n"))
        problems.append(located(raw, str(file), ((place, what) for place, _, what in places)))
    if problems:
        click.echo("\n".join(problems), err=True)
        click.get_current_context().exit(EXIT_PROBLEMS)
    _tell(made.taken, made.left_out)
    if into is None:
        click.echo(text, nl=False)
    else:
        into.write_text(text)


def _head(file: Path, left_out: Mapping[str, str]) -> Iterator[str]:
    yield f"# Taken over from {file} by numalet config from-kubelet.\n"
    for key, why in left_out.items():
        yield f"# left out: {key}: {why}\n"


def _tell(taken: Mapping[str, str], left_out: Mapping[str, str]) -> None:
    for key, note in taken.items():
        click.echo(f"taken over: {key}" + (f" ({note})" if note else ""), err=True)
    for key, why in left_out.items():
        click.echo(f"left out: {key}: {why}", err=True)


@click.command()
@socket_option
def reload(socket_path: Path) -> None:
    """Let the daemon read its configuration again; print what changed and what needs a restart.

    A file with a problem changes nothing. Exit status: 0 done, 1 the file was refused.

    \b
    numalet config check && numalet reload
    """
    answer = ControlClient(socket_path).call("POST", "/v1/reload")
    for text in answer["refused"]:
        click.echo(f"refused: {text}")
    for kind, note in (("live", "changed"), ("restart", "needs a restart")):
        for change in answer[kind]:
            when = FIELDS[change["key"]].reload.value if kind == "live" else ""
            click.echo(f"{note}: {change['text']}" + (f" ({when})" if when else ""))
    if answer["refused"]:
        click.echo("nothing else was changed" if answer["live"] else "nothing was changed")
        click.get_current_context().exit(EXIT_PROBLEMS)
    if not answer["live"] and not answer["restart"]:
        click.echo("nothing has changed")
