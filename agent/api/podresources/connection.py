"""gRPC connections, kept in bounds: how much a call may send, and an end for all of them with the server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from socket import socket
from typing import TYPE_CHECKING, Any, Final

from grpclib.encoding.proto import ProtoCodec
from grpclib.protocol import H2Protocol
from grpclib.server import Server

from agent.api.ending import end_all

if TYPE_CHECKING:
    from grpclib._typing import IServable

log = logging.getLogger(__name__)

MAX_REQUEST: Final = 4 << 20
"""Bytes of one call; gRPC's own limit elsewhere."""


class ConnectionServer(Server):
    """A server of messages and of bytes that are messages already; `stop` ends its connections, too."""

    def __init__(self, services: Collection[IServable]) -> None:
        super().__init__(services, codec=_Codec())
        # They tell of every client that cancels a call, and of every header; our failures are logged where they are answered.
        for library in ("grpclib", "hpack"):
            logging.getLogger(library).setLevel(logging.ERROR)
        self._open: set[_Connection] = set()

    async def stop(self, listener: socket) -> None:
        """Take no more calls, end those that go on, and close every connection."""
        await end_all(listener, self.close, self._open)
        await self.wait_closed()

    def _protocol_factory(self) -> H2Protocol:
        made = super()._protocol_factory()
        made.h2_config.validate_inbound_headers = (
            True  # a request without a path is refused, not stumbled over
        )
        return _Connection(made.handler, made.config, made.h2_config, self._open)


class _Connection(H2Protocol):
    """One client; who breaks the protocol, or sends a call without end, is cut off."""

    def __init__(self, handler: Any, config: Any, h2_config: Any, others: set[_Connection]) -> None:
        super().__init__(handler, config, h2_config)
        self._others = others

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - what a stream socket has
        super().connection_made(transport)
        self._transport = transport
        self._others.add(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self._others.discard(self)

    def close(self) -> None:
        """End its calls; send what is to be sent, then end."""
        self.processor.close("the server stops")

    def abort(self) -> None:
        """End now."""
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except Exception as error:  # noqa: BLE001 - whatever a client sent: it concerns nobody else
            log.debug("gRPC connection broke off: %r", error)
            self.processor.close("protocol error")
        if any(stream.data_received > MAX_REQUEST for stream in self.processor.streams.values()):
            self.processor.close("too much in one call")


class _Codec(ProtoCodec):
    """Answers that come encoded go out as they are."""

    def encode(self, message: Any, message_type: Any) -> bytes:
        return message if isinstance(message, bytes) else super().encode(message, message_type)
