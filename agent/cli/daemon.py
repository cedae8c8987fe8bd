"""`numalet run`."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import click


@click.command()
@click.option(
    "--config",
    "config_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Configuration file (YAML). Without it the defaults hold.",
)
@click.option("--cgroup-root", metavar="DIR", help="cgroup v2 directory to build the pods' tree in.")
@click.option("--state-dir", metavar="DIR", help="Where checkpoints and pod records are kept.")
@click.option("--manifests", "manifest_dir", metavar="DIR", help="Directory of pod manifests to follow.")
@click.option("--socket", "control_socket", metavar="FILE", help="The control socket to listen on.")
@click.option(
    "--metrics",
    "metrics_address",
    metavar="HOST:PORT",
    callback=lambda _ctx, _param, value: _address(value),
    help='Where to serve /metrics; "" for nowhere.',
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="Least important message to log (info, unless the configuration says otherwise).",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    help="Log format (text, unless the configuration says otherwise).",
)
def run(config_file: Path | None, **options: str | None) -> None:
    """Run the daemon in the foreground; SIGTERM stops it and leaves the pods running, SIGHUP reloads.

    Options override the configuration file, after a reload, too.

    \b
    numalet run --config /etc/numalet/config.yaml
    numalet run --cgroup-root /sys/fs/cgroup/test --state-dir /tmp/numalet --manifests ./pods
    """
    gc.disable()  # until it has started, see `Daemon.run`
    from agent.config.source import ConfigSource  # noqa: PLC0415 - help must not wait for the daemon's imports
    from agent.daemon import run_daemon  # noqa: PLC0415

    overrides = {name: _typed(name, value) for name, value in options.items() if value is not None}
    run_daemon(ConfigSource(path=config_file, overrides=overrides), os.environ)


def _address(value: str | None) -> str | None:
    from agent.config.address import parse_address  # noqa: PLC0415 - help must not wait for it

    try:
        parse_address(value or "")
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return value


def _typed(name: str, value: str) -> object:
    from agent.config.model import LogFormat, LogLevel  # noqa: PLC0415 - help must not wait for it

    match name:
        case "log_level":
            return LogLevel(value)
        case "log_format":
            return LogFormat(value)
        case "metrics_address":
            return value
        case _:
            return os.path.abspath(value)  # noqa: PTH100 - Path.resolve would follow links
