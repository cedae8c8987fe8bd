"""Another machine than this one: ``--machine``, a recording, or ``--bundle``, a node with all its pods."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click

from agent.cli.common import F, machine_option
from agent.errors import NumaletError

CONFIG = "config.yaml"
STATE = "state"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """``path`` is a recording; of a bundle, ``root`` is where it was unpacked. As text, what the user named."""

    named: Path
    path: Path
    root: Path | None = None

    def __str__(self) -> str:
        return str(self.named)

    @property
    def config(self) -> Path | None:
        """The bundle's configuration in force."""
        return self._inside(CONFIG)

    @property
    def state(self) -> Path | None:
        """The bundle's state directory, if there is any state in it."""
        return self._inside(STATE)

    def answer(self, name: str) -> Any:
        """What the daemon answered to ``GET /v1/NAME``; None where none did."""
        path = self._inside(f"api/{name}.json")
        if path is None:
            return None
        try:
            return json.loads(path.read_bytes())
        except (ValueError, RecursionError) as error:
            raise NumaletError(f"{self.named}: api/{name}.json: {error}") from error

    def _inside(self, name: str) -> Path | None:
        path = self.root / name if self.root else None
        return path if path and path.exists() else None


def bundle_option(command: F) -> F:
    """``--bundle`` alone: a path."""
    return click.option(
        "--bundle",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Use the node in a bundle (see: numalet gather): its machine, configuration and pods.",
    )(command)


def recorded_options(command: F) -> F:
    """``--machine`` and ``--bundle``; the command gets a `Recorded`, or None, as ``machine``."""

    @wraps(command)
    def with_recorded(*args: Any, machine: Path | None, bundle: Path | None, **kwargs: Any) -> Any:
        return command(*args, machine=_recorded(machine, bundle), **kwargs)

    decorated: Callable[..., Any] = machine_option(bundle_option(with_recorded))
    return decorated  # type: ignore[return-value]


def path_of(machine: Recorded | None) -> Path | None:
    """The recording, None for this host."""
    return machine.path if machine else None


def _recorded(machine: Path | None, bundle: Path | None) -> Recorded | None:
    if machine and bundle:
        raise click.UsageError("--machine and --bundle exclude each other")
    if bundle:
        return unpacked(bundle)
    return Recorded(named=machine, path=machine) if machine else None


def unpacked(bundle: Path) -> Recorded:
    """The node in a bundle, until the command ends. Raises NumaletError."""
    from agent.bundle.archive import unpack  # noqa: PLC0415 - only who gives a bundle pays for it

    files = unpack(bundle)
    if "machine.json" not in files:
        raise NumaletError(f"{bundle}: holds no machine.json", hint="its MANIFEST.json says why")
    context = click.get_current_context()
    root = Path(context.with_resource(tempfile.TemporaryDirectory(prefix="numalet-bundle.")))
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return Recorded(named=bundle, path=root / "machine.json", root=root)
