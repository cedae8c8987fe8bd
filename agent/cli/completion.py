"""`numalet completion`: scripts that complete commands, options and live pod names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of SHELL.

    \b
    source <(numalet completion bash)
    numalet completion fish > ~/.config/fish/completions/numalet.fish
    """
    from agent.cli.app import numalet  # noqa: PLC0415 - the group imports this module

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"click knows no completion for {shell}")
    click.echo(kind(numalet, {}, "numalet", "_NUMALET_COMPLETE").source())
