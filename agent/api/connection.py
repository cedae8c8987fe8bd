"""One connection to the control API: requests in, answers out, one after the other."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from functools import partial
from http import HTTPStatus
from typing import Any

from agent.api.request import Answer, Call, Find, Request, RequestError, RequestReader
from agent.api.workers import Workers

Json = dict[str, Any]


class Connection(asyncio.Protocol):
    """Serves one client. What may take its time has one of the ``workers``, all else is done on the loop.

    A client that neither sends nor takes anything for ``idle_seconds`` is gone. A connection is in ``connected``
    as long as it is one.
    """

    def __init__(
        self,
        find: Find,
        loop: asyncio.AbstractEventLoop,
        workers: Workers,
        connected: set[asyncio.Transport],
        idle_seconds: float,
    ) -> None:
        self._find = find
        self._loop = loop
        self._workers = workers
        self._connected = connected
        self._idle_seconds = idle_seconds
        self._reader = RequestReader(self._found, self._proceed)
        self._waiting = deque[Request | RequestError]()
        self._busy = False
        """Whether a worker has a request."""
        self._full = False
        """Whether the client does not take the answers it has."""
        self._ended = False
        """Whether the client has sent its last byte."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - what a stream socket has
        self._transport = transport
        self._connected.add(transport)
        self._heard = self._loop.time()
        self._deadline = self._loop.call_later(self._idle_seconds, self._tire)

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`; a client that went away is no news."""
        self._connected.discard(self._transport)
        self._deadline.cancel()
        self._reader.close()
        del self._reader

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._waiting += self._reader.feed(data)
        self._go_on()

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self._full = True

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self._full = False
        self._go_on()

    def eof_received(self) -> bool:
        """See `asyncio.Protocol`; it may still read our answers."""
        self._ended = True
        self._waiting += self._reader.end()
        self._go_on()
        return True

    def _found(self, method: str, target: str) -> Call:
        return self._find(self._transport.get_extra_info("socket"), method, target)

    def _proceed(self) -> None:
        self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _go_on(self) -> None:
        """Serve the requests that are here; those after one that takes its time when that is answered."""
        self._heard = self._loop.time()
        while self._waiting and not (self._busy or self._full or self._transport.is_closing()):
            self._serve(self._waiting.popleft())
        if self._busy or self._full:
            self._transport.pause_reading()  # what follows waits with the kernel
        elif self._ended:
            self._transport.close()
        else:
            self._transport.resume_reading()

    def _tire(self) -> None:
        idle = 0.0 if self._busy else self._loop.time() - self._heard
        if idle < self._idle_seconds:
            self._deadline = self._loop.call_later(self._idle_seconds - idle, self._tire)
        else:
            self._transport.abort()

    def _serve(self, request: Request | RequestError) -> None:
        if isinstance(request, RequestError):
            self._send(refused(request), stays=False)
        elif request.call.slow:
            self._busy = True
            self._workers.run(partial(self._work, request))
        else:
            self._send(request.call.work(request.body), stays=request.stays)

    def _work(self, request: Request) -> None:
        answer = request.call.work(request.body)
        try:
            self._loop.call_soon_threadsafe(self._worked, request, answer)
        except RuntimeError:
            return  # the server was stopped meanwhile

    def _worked(self, request: Request, answer: Answer) -> None:
        self._busy = False
        self._send(answer, stays=request.stays)
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
