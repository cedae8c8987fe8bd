"""The end of an asyncio server's connections: none is left open, and none holds up the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from socket import socket
from typing import Final, Protocol

_TURNS: Final = 3
"""Of the loop, in which a connection that was just accepted becomes one."""
_FLUSH_SECONDS: Final = 1.0
"""For clients to take the answers they have."""
_CHECK_SECONDS: Final = 0.01


class Open(Protocol):
    """A connection."""

    def close(self) -> None:
        """Send what is to be sent, then end."""

    def abort(self) -> None:
        """End now."""


async def end_all(listener: socket, close: Callable[[], None], connections: AbstractSet[Open]) -> None:
    """End a server: accept no more, ``close`` it, close all ``connections``; each leaves these when it is gone."""
    loop = asyncio.get_running_loop()
    # First: a connection that becomes one when the server is closed stays open for ever.
    loop.remove_reader(listener)
    for _ in range(_TURNS):
        await asyncio.sleep(0)
    close()
    for connection in tuple(connections):
        connection.close()
    deadline = loop.time() + _FLUSH_SECONDS
    while connections and loop.time() < deadline:
        await asyncio.sleep(_CHECK_SECONDS)
    for connection in tuple(connections):
        connection.abort()
    while connections:
        await asyncio.sleep(_CHECK_SECONDS)
