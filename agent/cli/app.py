"""The command group: commands are imported when they are called, so that help is instant."""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Final

import click

from agent import __version__
from agent.errors import NumaletError

COMMANDS: Final = {
    "run": ("agent.cli.daemon", "Run the daemon."),
    "apply": ("agent.cli.pods", "Admit the pods of a manifest."),
    "delete": ("agent.cli.pods", "Stop a pod and release what it holds."),
    "get": ("agent.cli.show", "List pods, CPUs or NUMA nodes."),
    "describe": ("agent.cli.show", "Show one pod: what it holds, where, and why."),
    "status": ("agent.cli.status", "Show the node at a glance; exit status 1 if anything is wrong."),
    "top": ("agent.cli.top", "Watch what pods and CPUs use."),
    "events": ("agent.cli.events", "Show what happened, and follow what happens."),
    "verify": ("agent.cli.show", "Check that the kernel has what was decided."),
    "exec": ("agent.cli.work", "Run a command inside a container's cgroup."),
    "attach": ("agent.cli.work", "Move a running process into a container's cgroup."),
    "debug": ("agent.cli.work", "Run a command beside a pod, on none of its CPUs."),
    "check": ("agent.cli.check", "Check that this host is fit for numalet."),
    "topology": ("agent.cli.machine", "Show the machine as numalet sees it."),
    "gather": ("agent.cli.gather", "Save what is known of the node to one file, for --bundle."),
    "record": ("agent.cli.machine", "Save the machine's topology to a file."),
    "explain": ("agent.cli.rehearse", "Rehearse one pod and show every step of the decision."),
    "plan": ("agent.cli.rehearse", "Rehearse a directory of pods and show who fits."),
    "simulate": ("agent.cli.simulate", "Place a stream of pods on a fleet and compare settings."),
    "replay": ("agent.cli.replay", "Replay recorded decisions and compare the answers."),
    "state": ("agent.cli.state", "Show, verify, convert and hand over stored state."),
    "config": ("agent.cli.config", "Check and show the configuration; take over a kubelet's."),
    "reload": ("agent.cli.config", "Let the daemon read its configuration again."),
    "release-host": ("agent.cli.host", "Let the host use the CPUs again that it was kept off."),
    "completion": ("agent.cli.completion", "Print a shell completion script."),
}

EXIT_REFUSED: Final = 1
EXIT_USAGE: Final = 2
EXIT_NO_DAEMON: Final = 3
EXIT_NOT_FOUND: Final = 4
EXIT_OF_STATUS: Final = {
    0: EXIT_NO_DAEMON,
    403: EXIT_REFUSED,
    404: EXIT_NOT_FOUND,
    409: EXIT_REFUSED,
    500: EXIT_REFUSED,
}
"""For the status of a ControlError; everything else is bad input."""
EXIT_INTERNAL: Final = 70
"""sysexits.h EX_SOFTWARE."""
EXIT_INTERRUPTED: Final = 130
EXIT_BROKEN_PIPE: Final = 141


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = getattr(
            import_module(COMMANDS[cmd_name][0]), cmd_name.replace("exec", "exec_command").replace("-", "_")
        )
        gc.enable()
        assert isinstance(command, click.Command)  # noqa: S101 - the table above is ours
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = get_close_matches(args[0], COMMANDS, n=1)
            if not near:
                raise
            raise click.UsageError(f"No such command '{args[0]}'. Did you mean '{near[0]}'?", ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit status: 0 done, 1 refused or a check failed, 2 wrong use or bad input, "
    "3 no daemon, 4 no such pod.",
)
@click.version_option(__version__, prog_name="numalet")
@click.option(
    "--no-color",
    is_flag=True,
    help="No colours, on a terminal either; so does the environment variable NO_COLOR.",
)
@click.pass_context
def numalet(ctx: click.Context, no_color: bool) -> None:  # noqa: FBT001 - a flag is a bool
    """Place pods on the cores and NUMA memory of this machine.

    \b
    numalet run --config /etc/numalet/config.yaml     start the daemon
    numalet apply -f trading.yaml                     admit a pod
    numalet exec trading main-app -- ./engine         run work on its cores
    numalet status                                    how the node is, and what is wrong
    numalet get pods                                  who holds what
    """
    if no_color or os.environ.get("NO_COLOR"):
        ctx.color = False


def run_command_line(arguments: Sequence[str] | None = None) -> int:
    """Run (None: the process's own arguments); turn errors into one clear message and an exit status."""
    try:
        return _run(arguments)
    except Exception as error:
        if os.environ.get("NUMALET_DEBUG"):
            raise
        click.echo(f"numalet: internal error: {type(error).__name__}: {error}", err=True)
        click.echo("  a fault of numalet: NUMALET_DEBUG=1 in the environment shows where", err=True)
        return EXIT_INTERNAL


def _run(arguments: Sequence[str] | None) -> int:
    try:
        # Outside standalone mode click returns the status of ctx.exit().
        status = numalet.main(arguments, prog_name="numalet", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return EXIT_USAGE
    except click.Abort:
        return EXIT_INTERRUPTED
    except NumaletError as error:
        return _failed(error)
    except OSError as error:
        return _system_error(error)
    except SystemExit as end:
        # click leaves this way after a completion (0), and where nobody reads the output any more (1).
        return EXIT_BROKEN_PIPE if end.code else 0
    return status if isinstance(status, int) else 0


def _system_error(error: OSError) -> int:
    where = f"{error.filename}: " if error.filename else ""
    click.echo(f"numalet: {where}{error.strerror or error}", err=True)
    return EXIT_USAGE


def _failed(error: NumaletError) -> int:
    click.echo(f"numalet: {error.message}", err=True)
    if error.hint:
        click.echo(f"  {error.hint}", err=True)
    return EXIT_OF_STATUS.get(getattr(error, "status", 400), EXIT_USAGE)
