"""`numalet state`: look into stored state, check it, convert it, and move a node from the kubelet and back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from agent.checkpoint.audit import record_differences
from agent.checkpoint.convert import CPU_VERSIONS, MEMORY_VERSIONS, Converted, convert_cpu, convert_memory
from agent.checkpoint.podrecord import PodRecord
from agent.checkpoint.reading import ContainerIds, CpuFile, StoredFile, read_stored
from agent.cli.common import output_option, print_json
from agent.cli.recorded import Recorded, path_of, recorded_options
from agent.cli.statefiles import Stored, check_free, read_path, read_pods, replace_file
from agent.cli.statehost import Host, chosen_config, findings_within
from agent.cli.statemove import config_option, export_state, import_state, pods_option, tell_losses
from agent.cli.stateview import stored_json, stored_text
from agent.containermanager.handover import container_ids
from agent.errors import StateError
from agent.explain.english import plural

EXIT_UNSOUND: Final = 1
EXIT_UNREADABLE: Final = 2


@click.group()
def state() -> None:
    """Show, verify and convert stored state; move a node from the kubelet to numalet and back.

    Files of numalet and of every kubelet are read, in any version, told apart by their content.

    \b
    numalet state show /var/lib/kubelet
    numalet state verify /var/lib/numalet
    """


@state.command()
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@pods_option
@output_option
def show(path: Path, pods: tuple[Path, ...], output: str) -> None:
    """Show what PATH holds: a state file, or the state directory of numalet or a kubelet.

    Only reads, also while a daemon runs, and shows the content of a file with a wrong checksum, too.
    CPU V1 files name containers by id: --pods tells whose they are. Exit status: 0 shown, 2 a file
    cannot be read.

    \b
    numalet state show /var/lib/kubelet/cpu_manager_state
    numalet state show /var/lib/numalet -o json
    """
    stored = read_path(path, _ids(pods))
    if output == "json":
        print_json({"path": str(path), "files": stored_json(stored)})
    else:
        click.echo(stored_text(stored))
    _exit_if_unreadable(stored)


@state.command()
@click.argument("path", required=False, type=click.Path(exists=True, path_type=Path))
@recorded_options
@click.option("--no-machine", is_flag=True, help="Check the files alone, against no machine.")
@config_option
def verify(path: Path | None, machine: Recorded | None, no_machine: bool, config_file: Path | None) -> None:  # noqa: FBT001 - a flag is a bool
    """Check PATH, a state file or directory: checksums, invariants, this machine, pod records.

    PATH may be left out with --bundle. With a configuration also what is reserved is checked, as the managers do at start. One line per
    finding. Exit status: 0 sound, 1 not, 2 a file cannot be read.

    \b
    numalet state verify /var/lib/numalet
    numalet state verify cpu_manager_state --machine db7.json.xz
    numalet state verify backup/ --no-machine
    numalet state verify --bundle node7.tar.gz
    """
    if no_machine and (machine or config_file):
        raise click.UsageError("--no-machine goes with neither --machine nor --config")
    if machine:
        path, config_file = path or machine.state, config_file or machine.config
    if path is None:
        raise click.UsageError("name the state with PATH, or a --bundle that holds any")
    stored = read_path(path)
    found = list(findings_within(stored))
    if not found and not no_machine:
        host = Host.of(path_of(machine), chosen_config(config_file, live=machine is None))
        found += host.findings(stored)
    if stored.numalets:
        found += [("pods", text) for text in record_differences(stored.state, stored.records)]
    for name, text in found:
        click.echo(f"{name}: {text}")
    _exit_if_unreadable(stored)
    if found:
        raise click.exceptions.Exit(EXIT_UNSOUND)
    named = machine if machine and path == machine.state else path
    click.echo(f"{named}: sound ({_kinds(stored)})")


def _kinds(stored: Stored) -> str:
    parts = [f"CPU V{stored.cpu.version}"] if stored.cpu else []
    parts += [f"memory V{stored.memory.version}"] if stored.memory else []
    parts += [plural(len(stored.records), "pod record")] if stored.records else []
    return ", ".join(parts)


@state.command()
@click.option(
    "--to",
    "version",
    required=True,
    type=click.Choice([f"v{number}" for number in CPU_VERSIONS]),
    help="Version to write: CPU v1 to v4, memory v1 to v3.",
)
@pods_option
@click.option("--force", is_flag=True, help="Replace OUT if it exists.")
@click.argument("source", metavar="IN", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("target", metavar="OUT", type=click.Path(dir_okay=False, path_type=Path))
def convert(version: str, pods: tuple[Path, ...], force: bool, source: Path, target: Path) -> None:  # noqa: FBT001 - a flag is a bool
    """Write the checkpoint IN in another version to OUT, and say what that version cannot hold.

    Kubelets wrote CPU v1 up to 1.17, v2 up to 1.35, v3 in 1.36, v4 from 1.37; memory v1, v2 and v3
    likewise from 1.21. CPU v1 goes by container ids: from and to it, --pods tells whose they are.

    \b
    numalet state convert --to v2 cpu_manager_state cpu_manager_state.1.35
    numalet state convert --to v4 --pods pods.json old/cpu_manager_state new/cpu_manager_state
    """
    containers = _ids(pods)
    file = _whole(source, read_stored(source.read_bytes(), containers=containers))
    converted = _converted(source, file, int(version[1:]), containers)
    check_free([target], force=force)
    replace_file(target, converted.raw)
    tell_losses(converted.losses)
    click.echo(f"{target}: {version} written")


def _whole(source: Path, file: StoredFile) -> StoredFile:
    """The file, unless its readers would refuse it: a copy with a right checksum would hide that."""
    refusal = "" if isinstance(file, PodRecord) else file.refusal
    if refusal:
        raise StateError(f"{source}: {refusal}", hint="numalet state show prints what is left in it")
    return file


def _converted(source: Path, file: StoredFile, version: int, containers: ContainerIds) -> Converted:
    if isinstance(file, PodRecord):
        raise StateError(f"{source} is a pod record: it has no other version")
    if isinstance(file, CpuFile):
        return convert_cpu(file, version, containers)
    if version not in MEMORY_VERSIONS:
        raise StateError(f"{source} is a memory checkpoint: there is no v{version}", hint="v1, v2 or v3")
    return convert_memory(file, version)


def _ids(pods: Sequence[Path]) -> ContainerIds:
    return container_ids(read_pods(pods))


def _exit_if_unreadable(stored: Stored) -> None:
    if stored.unread:
        raise click.exceptions.Exit(EXIT_UNREADABLE)


state.add_command(import_state)
state.add_command(export_state)
