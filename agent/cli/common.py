"""What several commands share: options, the client, output."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import click

from agent.api.client import ControlClient, ControlError

if TYPE_CHECKING:
    from agent.domain.topology import Topology

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_SOCKET = "/run/numalet/control.sock"
_YAML = "agent.cli.yaml"


def socket_option(command: F) -> F:
    """``--socket``: where the daemon listens."""
    return click.option(
        "--socket",
        "socket_path",
        type=click.Path(path_type=Path, readable=False),  # the client tells better what is wrong
        default=DEFAULT_SOCKET,
        envvar="NUMALET_SOCKET",
        show_default=True,
        show_envvar=True,
        help="The daemon's control socket.",
    )(command)


def output_option(command: F) -> F:
    """``-o``: text for people, JSON or YAML for programs; and ``--no-color``."""
    return formats_option()(command)


def formats_option(*more: str) -> Callable[[F], F]:
    """``-o`` with formats of a command's own.

    The command is told ``json`` for YAML, too: `print_json` prints the one that was asked for.
    """
    option = click.option(
        "-o",
        "--output",
        type=click.Choice(["text", *more, "json", "yaml"]),
        default="text",
        show_default=True,
        callback=_remember_yaml,
        help="Output format.",
    )
    return lambda command: option(no_color_option(command))


def _remember_yaml(ctx: click.Context, _param: click.Parameter, value: str) -> str:
    ctx.meta[_YAML] = value == "yaml"
    return "json" if value == "yaml" else value


def no_color_option(command: F) -> F:
    """``--no-color``, which the whole command takes, too: people type it last."""
    return click.option(
        "--no-color",
        is_flag=True,
        expose_value=False,
        callback=_forgo_color,
        help="No colours, on a terminal either; so does the environment variable NO_COLOR.",
    )(command)


def _forgo_color(ctx: click.Context, _param: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click calls it
    if value:
        ctx.color = False


def print_json(value: object) -> None:
    """Print JSON as people like to read it, or YAML where that was asked for."""
    if click.get_current_context().meta.get(_YAML):
        from agent.manifest.dump import dump_yaml  # noqa: PLC0415 - only who asks for YAML pays for it

        click.echo(dump_yaml(value), nl=False)
    else:
        click.echo(json.dumps(value, indent=2))


def print_json_line(value: object) -> None:
    """Print one of several values: JSON on a line of its own, or a YAML document."""
    if click.get_current_context().meta.get(_YAML):
        click.echo("---")
        print_json(value)
    else:
        click.echo(json.dumps(value))


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
    return click.argument("pod", shell_complete=complete_pod)(command)


def container_argument(command: F) -> F:
    """``CONTAINER``, completed from the running daemon for the pod named before it."""
    return click.argument("container", shell_complete=_complete_container)(command)


def complete_pod(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The pods' names as a person types them: without the namespace where it is ``default``."""
    names = (
        pod["name"] if pod["namespace"] == "default" else f"{pod['namespace']}/{pod['name']}"
        for pod in _asked(ctx, "/v1/pods").get("pods", ())
    )
    return [name for name in names if name.startswith(incomplete)]


def _complete_container(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    pod = _asked(ctx, f"/v1/pods/{pod_target(ctx.params['pod'])}")
    containers = (*pod.get("containers", ()), *pod.get("ephemeralContainers", ()))
    return [found["name"] for found in containers if found["name"].startswith(incomplete)]


def _asked(ctx: click.Context, target: str) -> dict[str, Any]:
    """The daemon's answer, nothing where it has none: a completion never complains."""
    socket_path = Path(ctx.params.get("socket_path") or os.environ.get("NUMALET_SOCKET", DEFAULT_SOCKET))
    try:
        return ControlClient(socket_path, timeout=2).call("GET", target)
    except ControlError:
        return {}


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
