"""`numalet apply`, `delete` and `exec`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from agent.api.client import ControlClient, ControlError
from agent.cli.common import (
    container_argument,
    output_option,
    pod_argument,
    pod_target,
    print_json,
    socket_option,
)
from agent.errors import HostError


@click.command()
@click.option(
    "-f",
    "--file",
    "files",
    required=True,
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path, allow_dash=True),
    help="Manifest file (YAML or JSON, one or many Pods); - for standard input. Repeatable.",
)
@socket_option
@output_option
def apply(files: tuple[Path, ...], socket_path: Path, output: str) -> None:
    """Admit the pods of a manifest: give them their cores and memory.

    A pod that is already admitted stays as it is. Exit status 1 if any pod is refused.

    \b
    numalet apply -f trading.yaml
    cat pods.yaml | numalet apply -f -
    """
    client = ControlClient(socket_path)
    manifests = [(file.name, _read(file)) for file in files]
    results: list[dict[str, Any]] = []
    try:
        for name, raw in manifests:
            results += client.call("POST", f"/v1/pods?source={quote(name)}", raw)["results"]
    finally:  # what the files before a bad one did must be seen
        if output == "json":
            print_json({"results": results})
        else:
            for result in results:
                click.echo(_verdict(result))
    if any(result["verdict"] == "rejected" for result in results):
        raise click.exceptions.Exit(1)


def _read(file: Path) -> bytes:
    return sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()


def _verdict(result: dict[str, Any]) -> str:
    line = f"pod {result['pod']} {result['verdict']}"
    if result["verdict"] != "rejected":
        return line
    lines = [f"{line}: {result['reason']}: {result['message']}"]
    if result["remedy"]:
        lines.append(f"  {result['remedy']}")
    return "\n".join(lines)


@click.command()
@pod_argument
@click.option(
    "--grace-period",
    type=click.FloatRange(min=0),
    help="Seconds between SIGTERM and SIGKILL [default: the pod's terminationGracePeriodSeconds, else 30].",
)
@socket_option
@output_option
def delete(pod: str, grace_period: float | None, socket_path: Path, output: str) -> None:
    """Stop POD ([NAMESPACE/]NAME) and release what it holds.

    Its processes are asked to end (SIGTERM), then killed. Cores and memory go back to the shared
    pool when the last process is gone.

    \b
    numalet delete trading
    numalet delete telco/upf --grace-period 2
    """
    query = f"?grace={grace_period}" if grace_period is not None else ""
    client = ControlClient(socket_path, timeout=None)  # as long as its processes take to end
    answer = client.call("DELETE", f"/v1/pods/{pod_target(pod)}{query}")
    if output == "json":
        print_json(answer)
    else:
        click.echo(f"pod {answer['pod']} deleted")


@click.command("exec", context_settings={"allow_interspersed_args": False})
@pod_argument
@container_argument
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@socket_option
def exec_command(pod: str, container: str, command: tuple[str, ...], socket_path: Path) -> None:
    """Run COMMAND inside CONTAINER of POD: join its cgroup, then become the command.

    The process gets the container's CPUs, memory nodes and limits. Also useful as a prefix of a
    systemd unit's ExecStart=.

    \b
    numalet exec trading main-app -- ./engine --fast
    """
    command = command[1:] if command[0] == "--" else command  # options after CONTAINER are COMMAND's
    if not command:
        raise click.UsageError("Missing argument 'COMMAND...'.")
    cgroup = container_cgroup(ControlClient(socket_path), pod, container)
    try:
        (cgroup / "cgroup.procs").write_text(str(os.getpid()))
    except OSError as error:
        raise HostError(
            f"cannot join {cgroup}: {error.strerror}", hint="use root; see: numalet describe " + pod
        ) from error
    try:
        os.execvp(command[0], command)  # noqa: S606 - running the user's command is what exec is for
    except OSError as error:
        click.echo(f"numalet: {command[0]}: {error.strerror}", err=True)
        raise click.exceptions.Exit(127 if isinstance(error, FileNotFoundError) else 126) from error


def container_cgroup(client: ControlClient, pod: str, container: str) -> Path:
    """The directory of a container's cgroup; ControlError where there is none."""
    answer = client.call("GET", f"/v1/pods/{pod_target(pod)}")
    if answer.get("leaving"):
        raise ControlError(409, f"pod {pod} is being deleted")
    containers = (*answer["containers"], *answer["ephemeralContainers"])
    for found in containers:
        if found["name"] == container:
            return Path(found["cgroup"])
    if answer["state"] != "Admitted":
        raise ControlError(409, f"pod {pod} is not admitted: {answer['reason']}: {answer['message']}")
    names = ", ".join(found["name"] for found in containers)
    raise ControlError(404, f"pod {pod} has no container {container}", hint=f"it has: {names}")
