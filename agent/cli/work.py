"""`numalet exec`, `attach` and `debug`: work gets into a pod's cgroups.

The commands move processes themselves, as root: the daemon says where to, and whether now.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final
from urllib.parse import quote

import click

from agent.api.client import ControlClient
from agent.cli.common import container_argument, pod_argument, pod_target, socket_option
from agent.errors import HostError

_DEFAULT_SHELL: Final = "/bin/sh"


@click.command("exec", context_settings={"allow_interspersed_args": False})
@pod_argument
@container_argument
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@socket_option
def exec_command(pod: str, container: str, command: tuple[str, ...], socket_path: Path) -> None:
    """Run COMMAND inside CONTAINER of POD: join its cgroup, then become the command.

    The process gets the container's CPUs, memory nodes and limits. Also useful as a prefix of a
    systemd unit's ExecStart=. Init containers run in order, and before the other containers.

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
            f"cannot join {cgroup}: {error.strerror}", hint="use root; see: numalet describe pod " + pod
        ) from error
    _become(command)


@click.command()
@pod_argument
@container_argument
@click.option(
    "--pid", "pids", type=click.IntRange(min=1), required=True, multiple=True, help="The process. Repeatable."
)
@click.option("--tree", is_flag=True, help="Its descendants, too.")
@click.option("--force", is_flag=True, help="Also a process of another pod.")
@socket_option
def attach(
    pod: str,
    container: str,
    pids: tuple[int, ...],
    tree: bool,  # noqa: FBT001 - click passes flags
    force: bool,  # noqa: FBT001
    socket_path: Path,
) -> None:
    """Move a running process with all its threads into CONTAINER of POD.

    From then on it has the container's CPUs and limits. Memory it already uses stays where it is, and is
    still accounted where it was.

    \b
    numalet attach trading main-app --pid 4711
    numalet attach trading main-app --pid $(pidof -s postgres) --tree
    """
    from agent.cgroup.naming import names_by  # noqa: PLC0415 - exec and debug need none of it
    from agent.cli.processes import Processes  # noqa: PLC0415 - nor psutil

    answer = _place(ControlClient(socket_path), pod, container)
    root = answer["cgroupRoot"]
    cgroup = Path(answer["cgroup"])
    processes = Processes(Path(root), names=names_by(answer["cgroupDriver"], root))
    for pid in pids:  # all of them before the first moves
        processes.check(pid, cgroup, force=force)
    moved: list[int] = []
    for pid in pids:
        moved += processes.move_tree(pid, cgroup) if tree else processes.move(pid, cgroup)
    told = (
        f"moved to {container} of {pod}: {', '.join(map(str, moved))}"
        if moved
        else "nothing to move: it is there"
    )
    click.echo(told)


@click.command(context_settings={"allow_interspersed_args": False})
@pod_argument
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@socket_option
def debug(pod: str, command: tuple[str, ...], socket_path: Path) -> None:
    """Run COMMAND (default: $SHELL) beside the containers of POD, on none of their CPUs.

    It is held to the pod's limits, memory above all, but runs on the node shared pool, so that looking
    at a pod does not disturb it. Nothing is left of it when its last process ends.

    \b
    numalet debug trading
    numalet debug trading -- perf record -p 4711
    """
    command = command[1:] if command[:1] == ("--",) else command
    target = f"/v1/debug/{pod_target(pod)}?pid={os.getpid()}"
    ControlClient(socket_path).call("POST", target)
    _become(command or (os.environ.get("SHELL") or _DEFAULT_SHELL,))


def container_cgroup(client: ControlClient, pod: str, container: str) -> Path:
    """The directory of a container's cgroup; ControlError where there is none or nothing may join it."""
    return Path(_place(client, pod, container)["cgroup"])


def _place(client: ControlClient, pod: str, container: str) -> dict[str, str]:
    return client.call("GET", f"/v1/containers/{pod_target(pod)}/{quote(container, safe='')}")


def _become(command: tuple[str, ...]) -> None:
    """Replace this process; where that cannot be, end as a shell would."""
    try:
        os.execvp(command[0], command)  # noqa: S606 - running the user's command is what this is for
    except OSError as error:
        click.echo(f"numalet: {command[0]}: {error.strerror}", err=True)
        raise click.exceptions.Exit(127 if isinstance(error, FileNotFoundError) else 126) from error
