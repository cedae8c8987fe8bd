"""`numalet gather`: what is known of this node in one file."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from agent import __version__
from agent.api.client import ControlClient
from agent.bundle.archive import MANIFEST, is_safe, pack
from agent.bundle.contents import Contents
from agent.bundle.daemon import answers_to, gather_api
from agent.bundle.host import gather_cgroups, gather_journal, gather_machine, gather_state, gather_versions
from agent.checkpoint.files import PRIVATE_FILE
from agent.cli.check import as_json, checked
from agent.cli.common import socket_option
from agent.cli.config import configuration_of
from agent.cli.scratch import DEFAULT_CONFIG
from agent.cli.statefiles import check_free
from agent.config import Config, load_config
from agent.errors import NumaletError
from agent.explain.english import plural
from agent.manifest.yamlnodes import yaml_text
from agent.sysfs.reader import HostSysfs

ANSWER_SECONDS: Final = 20.0

Steps = Iterator[tuple[str, Callable[[], None]]]


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--config",
    "config_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help=f"The configuration, where no daemon answers [default: {DEFAULT_CONFIG}].",
)
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@socket_option
def gather(file: Path, config_file: Path | None, force: bool, socket_path: Path) -> None:  # noqa: FBT001 - a flag is a bool
    """Save what is known of this node to FILE (.tar.gz), to look into it elsewhere.

    Machine, configuration, state files, cgroups with their values, what the daemon tells, its journal,
    versions. Best as root and with the daemon running; what could not be had is listed here and in the
    bundle's MANIFEST.json. Values of environment and annotations, commands, arguments and images are
    replaced by REDACTED, process names are left out. Commands with --bundle decide on the node in it.

    \b
    numalet gather node7.tar.gz
    numalet explain --bundle node7.tar.gz -f trading.yaml
    """
    check_free([file], force=force)
    if not file.absolute().parent.is_dir():
        raise NumaletError(f"{file}: there is no directory {file.absolute().parent}")
    into = Contents()
    root = Path("/")
    client = ControlClient(socket_path, timeout=ANSWER_SECONDS)
    for what, step in _steps(into, root, client, config_file):
        if sys.stderr.isatty():
            click.echo(f"{what} …", err=True)
        step()
    _write(file, into, force=force)
    click.echo(f"{file}: {plural(len(into.files), 'file')}, {file.stat().st_size >> 10} KiB")
    for lacking, why in into.missing:
        click.echo(f"  without {lacking}: {why}")


def _steps(into: Contents, root: Path, client: ControlClient, config_file: Path | None) -> Steps:
    yield "machine", lambda: gather_machine(into, HostSysfs(root))
    yield "versions", lambda: gather_versions(into, root)
    yield "fitness of the host", lambda: _gather_check(into, config_file)
    answered, config = _configuration(into, client, config_file)
    if answered:
        yield "daemon", lambda: gather_api(into, client)
    yield "state", lambda: gather_state(into, Path(config.state_dir))
    yield "cgroups", lambda: gather_cgroups(into, Path(config.cgroup_root), root / "proc")
    yield "journal", lambda: gather_journal(into)


def _gather_check(into: Contents, config_file: Path | None) -> None:
    with into.lacking("check.json"):
        into.add_json("check.json", "what numalet check says of this host", as_json(checked(config_file)))


def _configuration(into: Contents, client: ControlClient, file: Path | None) -> tuple[bool, Config]:
    """Whether a daemon answers, and the configuration: the daemon's, else the file's, else the defaults."""
    answer = answers_to(into, client)
    if answer is not None:
        return True, _added(into, answer)
    try:
        return False, _added(into, configuration_of(file, None, worked_out=True))
    except (NumaletError, OSError) as error:
        into.failed("config.yaml", error)
    with suppress(NumaletError, OSError):  # as written it may be sound: it only does not fit this machine
        stated = configuration_of(file, None, worked_out=False)
        into.add_json("config.json", "the configuration as written", stated)
        return False, load_config(yaml_text(stated["config"]).encode(), "config.yaml")
    return False, Config()


def _added(into: Contents, shown: dict[str, Any]) -> Config:
    into.add_json("config.json", "the configuration in force, its source, and what was computed", shown)
    raw = yaml_text(shown["config"]).encode()
    into.add("config.yaml", "the configuration in force, as a file", raw)
    return load_config(raw, "config.yaml")


def _write(file: Path, into: Contents, *, force: bool) -> None:
    now = datetime.now(UTC)
    for name in [name for name in into.files if not is_safe(name)]:
        del into.files[name]
        into.lack(json.dumps(name), "its name cannot be one in a bundle")
    manifest = into.manifest(now.strftime("%Y-%m-%dT%H:%M:%SZ"), __version__)
    data = pack({MANIFEST: manifest, **into.files}, int(now.timestamp()))
    _create(file.with_name(f".{file.name}.{os.getpid()}") if force else file, data, file)


def _create(path: Path, data: bytes, file: Path) -> None:
    """Write a new file, never through one that is there (it may be a stranger's), and name it ``file``."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(data)
        path.replace(file)
    except OSError:
        path.unlink()
        raise
