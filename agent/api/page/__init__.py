"""The web page for people: who owns which core, why, and what happened. It can change nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING

from agent.api.http import Page, Request
from agent.config.address import Address
from agent.containermanager import ContainerManager

if TYPE_CHECKING:
    from agent.api.page.face import Face


def page_routes(owner: ContainerManager, address: Address) -> Mapping[str, Callable[[Request], Page]]:
    """``/`` and ``/live``, which answers 304 to who has the newest."""

    @cache
    def face() -> Face:
        from agent.api.page.face import Face  # noqa: PLC0415 - drawing takes 2 MB and a tenth of the start: only where somebody looks

        return Face(owner, address)

    return {"/": lambda request: face().document(request), "/live": lambda request: face().live(request)}
