"""`numalet explain` and `numalet plan`: rehearse admissions and show them; nothing is changed."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from agent.cli.common import F, output_option, print_json
from agent.cli.recorded import Recorded, recorded_options
from agent.cli.rehearsal import explained_json, explained_text, header, plan_json, plan_text, settings_json
from agent.cli.scratch import Rehearsed, Unread, live_node, recorded_node
from agent.domain.pod import Pod
from agent.domain.settings import Settings
from agent.manifest import MAX_BYTES, ManifestError, load_manifests


def rehearsal_options(command: F) -> F:
    """``--machine``, ``--bundle``, ``--config``, ``--state``, ``-o``."""
    for option in (
        output_option,
        click.option(
            "--state",
            "state_dir",
            type=click.Path(exists=True, file_okay=False, path_type=Path),
            help="Begin with what the checkpoints in this directory hold; it is only read.",
        ),
        click.option(
            "--config",
            "config_file",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="Configuration file (YAML) [default: this host's, a bundle's, or with --machine the defaults].",
        ),
        recorded_options,
    ):
        command = option(command)
    return command


@click.command()
@click.option(
    "-f",
    "--file",
    "file",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path, allow_dash=True),
    help="Manifest file (YAML or JSON, one or many Pods); - for standard input.",
)
@rehearsal_options
def explain(
    file: Path, machine: Recorded | None, config_file: Path | None, state_dir: Path | None, output: str
) -> None:
    """Rehearse the pods of a manifest and show every step of the decision; nothing is changed.

    Without --machine and --bundle this is the live node: the configuration in /etc/numalet and
    what its pods hold now. A recorded machine is empty, a bundle has its node's configuration and pods.
    Several pods are tried in order on the same scratch state. Exit status: 0 all admitted, 1 any refused, 2 bad input.

    \b
    numalet explain -f trading.yaml
    numalet explain -f trading.yaml --machine db7.json.xz --config new.yaml -o json
    numalet explain -f trading.yaml --bundle node7.tar.gz
    """
    if machine is None:
        config_file, held = live_node(config_file)
        state_dir = state_dir or held
    scratch = recorded_node(machine, config_file, state_dir)
    raw = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    pods = load_manifests(raw, file.name, scratch.machine.settings.gates)
    if not pods:
        raise click.ClickException(f"{file}: holds no Pod")
    head = header(scratch, machine)
    told = [scratch.rehearse(pod, file.name) for pod in pods]
    if output == "json":
        print_json(
            {
                "machine": str(machine) if machine else None,
                "settings": settings_json(scratch.machine),
                "pods": [explained_json(scratch.machine, one) for one in told],
            }
        )
    else:
        texts = (explained_text(scratch.machine, one) for one in told)
        click.echo("\n\n".join((head, *texts)))
    if any(one.refusal for one in told):
        raise click.exceptions.Exit(1)


@click.command()
@click.option(
    "-f",
    "--file",
    "files",
    required=True,
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="Directory of manifests, or a manifest file. Repeatable.",
)
@rehearsal_options
def plan(
    files: tuple[Path, ...],
    machine: Recorded | None,
    config_file: Path | None,
    state_dir: Path | None,
    output: str,
) -> None:
    """Admit a whole set of pods in order on a scratch state; show who fits and what remains.

    The files of a directory are taken in the order of their names, as the daemon takes them. It begins
    with an empty node, under the configuration in /etc/numalet unless another is given; --state and
    --bundle begin with what pods hold there. Exit status: 0 all admitted, 1 any pod refused or file
    unreadable, 2 nothing could be planned.

    \b
    numalet plan -f /etc/numalet/manifests
    numalet plan -f manifests/ --machine db7.json.xz --config node.yaml -o json
    """
    if machine is None:
        config_file, _ = live_node(config_file)
    scratch = recorded_node(machine, config_file, state_dir)
    head = header(scratch, machine)
    problems: list[Unread] = []
    planned: list[Rehearsed] = []
    for path in _manifest_files(files):
        try:
            pods = _load(path, scratch.machine.settings)
        except (ManifestError, OSError) as error:
            problems.append(_unread(path, error))
            continue
        planned += [scratch.rehearse(pod, path.name) for pod in pods]
    if output == "json":
        print_json(plan_json(scratch, planned, problems, machine))
    else:
        click.echo(plan_text(scratch, planned, problems, head))
    if not planned:
        raise click.exceptions.Exit(2)
    if problems or any(one.refusal for one in planned):
        raise click.exceptions.Exit(1)


def _manifest_files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        for inside in sorted(path.iterdir()):
            if not inside.name.startswith(".") and inside.is_file():
                yield inside


def _load(path: Path, settings: Settings) -> tuple[Pod, ...]:
    with path.open("rb") as file:
        return load_manifests(file.read(MAX_BYTES + 1), path.name, settings.gates)


def _unread(path: Path, error: ManifestError | OSError) -> Unread:
    text = str(error) if isinstance(error, ManifestError) else f"{path.name}: {error.strerror}"
    return Unread(path.name, tuple(text.splitlines()))
