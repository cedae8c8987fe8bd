"""`numalet apply` and `delete`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from agent.api.client import ControlClient
from agent.cli.common import output_option, pod_argument, pod_target, print_json, socket_option


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
        return f"{line}: {result['message']}" if result["message"] else line
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
