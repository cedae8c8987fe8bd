"""The place of a unix socket: free of what a dead daemon left, and with its mode from the first moment on."""

from __future__ import annotations

import grp
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from agent.errors import HostError

_PROBE_SECONDS: Final = 1.0


@contextmanager
def socket_place(path: Path, mode: int, option: str) -> Iterator[None]:
    """Bind to ``path`` within: the place is free, and every new file gets ``mode``.

    Raises HostError that names the configuration's ``option`` where another daemon answers there,
    where something else is in the way, and for any OSError within.
    """
    try:
        _clear_dead_socket(path, option)
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        before = os.umask(0o777 & ~mode)
        try:
            yield
        finally:
            os.umask(before)
    except OSError as error:
        raise HostError(
            f"cannot listen on {path}: {error.strerror or error}", hint=f"choose another {option}"
        ) from error


def _clear_dead_socket(path: Path, option: str) -> None:
    """Remove a socket nobody listens on; raise HostError where somebody does, or it is no socket."""
    if not path.is_socket():
        if os.path.lexists(path):
            raise HostError(
                f"{path} is in the way: it is not a socket", hint=f"remove it or choose another {option}"
            )
        return
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_PROBE_SECONDS)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except (BlockingIOError, TimeoutError):
            pass  # somebody listens, and is too busy to accept
    raise HostError(f"another daemon answers on {path}", hint=f"stop it, or choose another {option}")


def group_id(name: str) -> int | None:
    """The id of a group, None where none is named; raises HostError where there is no such group."""
    if not name:
        return None
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise HostError(
            f"there is no group {name}, which controlSocketGroup names", hint=f"groupadd --system {name}"
        ) from None
