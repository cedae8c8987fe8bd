"""``HOST:PORT`` as `metricsBindAddress` and ``--metrics`` state it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen: a host (empty: everywhere) without brackets, and a port (0: any free one)."""

    host: str
    port: int


def parse_address(text: str) -> Address | None:
    """Read ``127.0.0.1:9447``, ``[::1]:9447`` or ``:9447``; None for an empty text: do not listen.

    Raises ValueError.
    """
    if not text:
        return None
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    bare = host[1:-1] if bracketed else host
    if (
        not colon
        or not (port.isascii() and port.isdigit())
        or int(port[:6]) > 65_535
        or bracketed != (":" in bare)
    ):
        raise ValueError(f'"{text}" is not HOST:PORT (expected e.g. "127.0.0.1:9447" or "[::1]:9447")')
    return Address(bare, int(port))
