"""What the control API answers about the configuration: ``GET config``, ``POST reload``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from agent.api.server import Route

Json = dict[str, Any]


class Reloadable(Protocol):
    """The configuration in force, as `agent.reload` keeps it."""

    def effective_json(self) -> Json:
        """All of it, with what was computed."""

    def reload_json(self) -> Json:
        """Read it again, and what came of it."""


def configuration_routes(configuration: Reloadable) -> Mapping[str, Route]:
    """The routes beside `control_routes`."""
    return {
        "GET config": lambda _parts, _query, _body: configuration.effective_json(),
        "POST reload": lambda _parts, _query, _body: configuration.reload_json(),
    }
