"""Where the configuration comes from: a file that can be read again, and the command line's options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agent.config.check import machine_problems
from agent.config.load import load_config, located
from agent.config.model import Config
from agent.domain.topology import Topology
from agent.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSource:
    """``path`` None: the defaults hold. ``overrides`` are values by `Config`'s names and come first."""

    path: Path | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What to call it."""
        return str(self.path) if self.path else "defaults"

    def load(self) -> Config:
        """Read it (again); raises ConfigError with every problem, or saying that it cannot be read."""
        loaded = load_config(self._bytes(), self.name)
        return replace(loaded, **self.overrides)

    def load_for(self, topology: Topology) -> Config:
        """Read it and check it against a machine; raises ConfigError with every problem."""
        loaded = self.load()
        problems = machine_problems(loaded, topology)
        if problems:
            raise ConfigError(located(self._bytes(), self.name, problems))
        return loaded

    def _bytes(self) -> bytes:
        if self.path is None:
            return b""
        try:
            return self.path.read_bytes()
        except OSError as error:
            raise ConfigError(f"{self.path}: {error.strerror or error}") from error
