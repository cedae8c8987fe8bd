"""What several commands share: options, the client, output."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import click

from agent.api.client import ControlClient, ControlError
from agent.domain.topology import Topology

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_SOCKET = "/run/numalet/control.sock"


def socket_option(command: F) -> F:
    """``--socket``: where the daemon listens."""
    return click.option(
        "--socket",
        "socket_path",
        type=click.Path(path_type=Path),
        default=DEFAULT_SOCKET,
        envvar="NUMALET_SOCKET",
        show_default=True,
        show_envvar=True,
        help="The daemon's control socket.",
    )(command)


def output_option(command: F) -> F:
    """``-o``: text for people or JSON for programs."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="Output format.",
    )(command)


def print_json(value: object) -> None:
    """Print JSON as people like to read it."""
    click.echo(json.dumps(value, indent=2))


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns in line, headings in capitals."""
    from tabulate import tabulate  # noqa: PLC0415 - only commands that print tables pay for it

    return tabulate(
        list(rows), headers=[heading.upper() for heading in headings], tablefmt="plain", disable_numparse=True
    )


def gib(size: int) -> str:
    """Bytes for people: ``2.0 GiB``, ``512 MiB``."""
    return f"{size / (1 << 30):.1f} GiB" if size >= 1 << 30 else f"{size / (1 << 20):.0f} MiB"


def pod_target(pod: str) -> str:
    """``[NAMESPACE/]NAME`` as a path of the control API."""
    namespace, _, name = pod.rpartition("/")
    return f"{quote(namespace or 'default', safe='')}/{quote(name, safe='')}"


def pod_argument(command: F) -> F:
    """``POD``, completed from the running daemon."""
    return click.argument("pod", shell_complete=_complete_pod)(command)


def _complete_pod(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    socket_path = Path(ctx.params.get("socket_path") or os.environ.get("NUMALET_SOCKET", DEFAULT_SOCKET))
    try:
        pods = ControlClient(socket_path, timeout=2).call("GET", "/v1/pods")["pods"]
    except ControlError:
        return []
    names = (
        pod["name"] if pod["namespace"] == "default" else f"{pod['namespace']}/{pod['name']}" for pod in pods
    )
    return [name for name in names if name.startswith(incomplete)]


def machine_option(command: F) -> F:
    """``--machine``: a recorded machine instead of this one."""
    return click.option(
        "--machine",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Use a recorded machine (see: numalet record) instead of this one.",
    )(command)


def machine_topology(machine: Path | None) -> Topology:
    """The topology of a recording, or of this host."""
    from agent.sysfs.discovery import discover  # noqa: PLC0415 - only commands that look at machines pay
    from agent.sysfs.reader import HostSysfs  # noqa: PLC0415
    from agent.sysfs.recorded import load_recording  # noqa: PLC0415

    return discover(HostSysfs(Path("/")) if machine is None else load_recording(machine))
