"""`numalet run`."""

from __future__ import annotations

import os
from dataclasses import replace
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
    default="info",
    show_default=True,
    help="Least important message to log.",
)
@click.option(
    "--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Log format."
)
def run(config_file: Path | None, log_level: str, log_format: str, **overrides: str | None) -> None:
    """Run the daemon in the foreground; SIGTERM stops it and leaves the pods running.

    Options override the configuration file.

    \b
    numalet run --config /etc/numalet/config.yaml
    numalet run --cgroup-root /sys/fs/cgroup/test --state-dir /tmp/numalet --manifests ./pods
    """
    from agent.config import Config, load_config  # noqa: PLC0415 - help must not wait for the daemon's imports
    from agent.daemon import run_daemon  # noqa: PLC0415
    from agent.log import set_up_logging  # noqa: PLC0415

    set_up_logging(log_level, log_format, os.environ)
    config = load_config(config_file.read_bytes(), str(config_file)) if config_file else Config()
    chosen = {name: _absolute(name, value) for name, value in overrides.items() if value is not None}
    run_daemon(replace(config, **chosen), os.environ)  # type: ignore[arg-type]  # the options above name text fields


def _address(value: str | None) -> str | None:
    from agent.config.address import parse_address  # noqa: PLC0415 - help must not wait for it

    try:
        parse_address(value or "")
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return value


def _absolute(name: str, value: str) -> str:
    return value if name == "metrics_address" else os.path.abspath(value)  # noqa: PTH100 - Path.resolve would follow links
