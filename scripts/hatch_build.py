"""Puts the manual pages into the wheel: where pip and pipx install `share/man` from."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ManualPages(BuildHookInterface[Any]):
    """Written from the commands as they are being packed, so that they cannot be others."""

    def dependencies(self) -> list[str]:
        """What has to be there during the build: the commands are imported."""
        return list(self.metadata.core.dependencies)

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add every page to what the wheel installs under ``share/man/man1``."""
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        from scripts.man import write_pages  # noqa: PLC0415 - found by the path above

        directory = Path(self.root, "build/man")
        for page in write_pages(directory):
            build_data["shared_data"][str(page)] = f"share/man/man1/{page.name}"
