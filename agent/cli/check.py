"""`numalet check`: is this host fit for numalet?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import click

from agent.api.client import ControlClient, ControlError
from agent.cli.common import machine_topology, output_option, print_json
from agent.cli.look import failed, warned, well
from agent.cli.scratch import DEFAULT_CONFIG
from agent.config import Config, load_config
from agent.errors import ConfigError
from agent.preflight.checks import Check, Level, check_host
from agent.preflight.gather import Loaded, gather

_LOOK: Final[Mapping[Level, Callable[[str], str]]] = {
    Level.OK: well,
    Level.WARNING: warned,
    Level.FAIL: failed,
}


@click.command()
@click.option(
    "--config",
    "config_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help=f"Configuration to check the host for ({DEFAULT_CONFIG} if it is there, else the defaults).",
)
@output_option
def check(config_file: Path | None, output: str) -> None:
    """Check that this host can keep what numalet promises; a line per subject, with the way out.

    Looks at kernel, cgroups, other programs, memory and the configuration, and changes nothing. Exit
    status: 0 fit, perhaps with warnings; 1 if anything fails.

    \b
    sudo numalet check
    numalet check --config config.yaml
    numalet check -o json | jq -r '.checks[] | select(.level != "ok") | .text'
    """
    found = checked(config_file)
    if output == "json":
        print_json(as_json(found))
    else:
        click.echo("\n".join(_lines(found)))
    if any(one.level is Level.FAIL for one in found):
        raise click.exceptions.Exit(1)


def checked(config_file: Path | None) -> tuple[Check, ...]:
    """What `numalet check` finds on this host. Raises HostError where it has no CPU."""
    loaded = _loaded(config_file)
    facts = gather(Path("/"), loaded, machine_topology(None), _daemon_pid(loaded.config))
    return tuple(check_host(facts))


def _loaded(file: Path | None) -> Loaded:
    if file is None and DEFAULT_CONFIG.exists():
        file = DEFAULT_CONFIG
    if file is None:
        return Loaded(Config(), "defaults")
    try:
        return Loaded(load_config(file.read_bytes(), str(file)), str(file))
    except (ConfigError, OSError) as error:
        return Loaded(Config(), str(file), " ".join(str(error).split()))


def _daemon_pid(config: Config) -> int | None:
    try:
        client = ControlClient(Path(config.control_socket), timeout=2)
        return int(client.call("GET", "/v1/status")["daemon"]["pid"])
    except ControlError:
        return None


def _lines(found: Sequence[Check]) -> list[str]:
    width = max(len(one.subject) for one in found)
    return [
        f"{_LOOK[one.level](f'{one.level.value:<7}')}  {one.subject:<{width}}  {one.text}"
        + (f"; {one.remedy}" if one.remedy else "")
        for one in found
    ]


def as_json(found: Sequence[Check]) -> dict[str, list[dict[str, str]]]:
    """The same for programs."""
    return {
        "checks": [
            {"subject": one.subject, "level": one.level.value, "text": one.text, "remedy": one.remedy}
            for one in found
        ]
    }
