"""One connection to the control API: requests in, answers out, one after the other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from http import HTTPStatus
from socket import socket
from threading import Thread
from typing import Any, Protocol

from agent.api.request import MAX_HEAD, Head, RequestError, read_head

Json = dict[str, Any]
Answer = tuple[int, Json]
"""HTTP status and body."""
Work = Callable[[bytes], Answer]
"""What a request's body is given to."""


class Calls(Protocol):
    """What a connection asks for each request, on the loop's thread."""

    @property
    def idle_seconds(self) -> float:
        """A client that neither sends nor takes anything for so long is gone."""

    def find(self, connection: socket, head: Head) -> tuple[Work, bool]:
        """What answers it, and whether that may take its time. Raises RequestError."""


class Connection(asyncio.Protocol):
    """Serves one client. What may take its time has a thread of its own, all else is done on the loop."""

    def __init__(
        self, calls: Calls, loop: asyncio.AbstractEventLoop, connected: set[asyncio.BaseTransport]
    ) -> None:
        self._calls = calls
        self._loop = loop
        self._connected = connected
        """All that are; a connection is in it as long as it is one."""
        self._received = bytearray()
        self._request: tuple[Head, Work, bool, int] | None = None
        """The one whose body is awaited: with what answers it, whether in a thread, and the body's length."""
        self._busy = False
        self._ended = False
        """Whether the client has sent its last byte."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - what a stream socket has
        self._transport = transport
        self._connected.add(transport)
        self._deadline = self._loop.call_later(self._calls.idle_seconds, self._tire)

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`; a client that went away is no news."""
        self._connected.discard(self._transport)
        self._deadline.cancel()

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._received += data
        if self._busy:
            self._transport.pause_reading()  # what follows waits with the kernel
        else:
            self._go_on()

    def eof_received(self) -> bool:
        """See `asyncio.Protocol`; it may still read our answers."""
        self._ended = True
        if not self._busy:
            self._go_on()
        return True

    def _go_on(self) -> None:
        """Serve the requests that are here; those after one that takes its time when that is answered."""
        self._deadline.cancel()
        try:
            while not self._transport.is_closing():
                if not self._next():
                    break
        except RequestError as refusal:
            self._send(refused(refusal), stays=False)
        if self._ended and not self._busy:
            self._transport.close()
        self._deadline = self._loop.call_later(self._calls.idle_seconds, self._tire)

    def _tire(self) -> None:
        if not self._busy:
            self._transport.abort()

    def _next(self) -> bool:
        """Begin to serve the next request; False where it is not here yet, or somebody works on it."""
        if self._request is None and not self._read_head():
            return False
        assert self._request is not None  # noqa: S101 - it was just read
        head, work, slow, length = self._request
        here = len(self._received)
        if here < length:
            if self._ended:
                raise RequestError(400, f"the request broke off after {here} of {length} bytes")
            return False
        body = bytes(self._received[:length])
        del self._received[:length]
        self._request = None
        if not slow:
            self._send(work(body), stays=head.stays)
            return True
        self._busy = True
        Thread(target=self._work, args=(work, body, head.stays), name="control-call", daemon=True).start()
        return False

    def _read_head(self) -> bool:
        """Read the next request's head, if all of it is here. Raises RequestError."""
        while self._received.startswith(b"\r\n"):  # some clients end a body so
            del self._received[:2]
        end = self._received.find(b"\r\n\r\n")
        if end > MAX_HEAD or (end < 0 and len(self._received) > MAX_HEAD):
            raise RequestError(431, f"Too long a header (at most {MAX_HEAD} bytes)")
        if end < 0:
            return False
        head = read_head(bytes(self._received[:end]))
        del self._received[: end + 4]
        work, slow = self._calls.find(self._transport.get_extra_info("socket"), head)
        length = head.length
        if head.expects_continue and len(self._received) < length:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._request = head, work, slow, length
        return True

    def _work(self, work: Work, body: bytes, stays: bool) -> None:  # noqa: FBT001 - a thread's arguments
        answer = work(body)
        try:
            self._loop.call_soon_threadsafe(self._worked, answer, stays)
        except RuntimeError:
            return  # the server was stopped meanwhile

    def _worked(self, answer: Answer, stays: bool) -> None:  # noqa: FBT001 - a callback's arguments
        self._busy = False
        self._send(answer, stays=stays)
        self._transport.resume_reading()
        self._go_on()

    def _send(self, answer: Answer, *, stays: bool) -> None:
        status, content = answer
        # Of a refused request the body may be unread: what follows would not be a request.
        stays = stays and status == HTTPStatus.OK
        body = json.dumps(content).encode()
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nServer: numalet\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            + ("\r\n" if stays else "Connection: close\r\n\r\n")
        )
        self._transport.write(head.encode() + body)
        if not stays:
            self._transport.close()


def refused(error: RequestError) -> Answer:
    """The answer to a request that is not served."""
    return error.status, problem(error.message, error.hint)


def problem(message: str, hint: str) -> Json:
    """The body of an answer that is an error."""
    return {"error": {"message": message, "hint": hint}}
