"""The gRPC services on the PodResources socket: the lister in two versions, health and reflection.

The rate limit is the kubelet's and counts the calls of all clients together.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from google.protobuf.message import DecodeError, Message
from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError
from grpclib.health.service import OVERALL, Health
from grpclib.reflection.service import ServerReflection
from grpclib.server import Stream

from agent.api.podresources.answers import AnswerError, Answers
from agent.api.podresources.connection import ConnectionServer
from agent.api.podresources.ratelimit import TokenBucket
from agent.api.podresources.v1 import api_pb2 as v1
from agent.api.podresources.v1alpha1 import api_pb2 as v1alpha1
from agent.containermanager.snapshot import Snapshot

log = logging.getLogger(__name__)

Count = Callable[[str, str], None]
"""Told of what happened (the metric's name after ``pod_resources_endpoint_``), and the API version."""

V1: Final = "v1"
V1ALPHA1: Final = "v1alpha1"
PER_SECOND: Final = 100.0
BURST: Final = 10

_SERVICE: Final = "PodResourcesLister"


def server_of(snapshot: Callable[[], Snapshot], count: Count, clock: Callable[[], float]) -> ConnectionServer:
    """A server of all of them, which is not started."""
    listers = _Calls(Answers(snapshot), count, clock).services()
    health = Health({OVERALL: (), **dict.fromkeys(listers, ())})
    return ConnectionServer(ServerReflection.extend([*listers, health]))


class _Service:
    """The methods of one gRPC service, in the form that grpclib asks for."""

    def __init__(self, name: str, methods: Mapping[str, Handler]) -> None:
        self._mapping = {f"/{name}/{method}": handler for method, handler in methods.items()}

    def __mapping__(self) -> Mapping[str, Handler]:
        return self._mapping


class _Calls:
    """The lister's methods: answers within the rate limit, counted."""

    def __init__(self, answers: Answers, count: Count, clock: Callable[[], float]) -> None:
        self._answers = answers
        self._count = count
        self._bucket = TokenBucket(per_second=PER_SECOND, burst=BURST, clock=clock)

    def services(self) -> tuple[_Service, _Service]:
        """The lister of v1 and that of v1alpha1."""
        answers = self._answers
        allocatable = v1.AllocatableResourcesRequest
        lister = {
            "List": self._method(V1, "list", answers.list, v1.ListPodResourcesRequest),
            "Get": self._method(V1, "get", answers.get, v1.GetPodResourcesRequest),
            "GetAllocatableResources": self._method(V1, "get_allocatable", answers.allocatable, allocatable),
        }
        request = v1alpha1.ListPodResourcesRequest
        older = {"List": self._method(V1ALPHA1, "list", answers.list_v1alpha1, request)}
        return _Service(f"{V1}.{_SERVICE}", lister), _Service(f"{V1ALPHA1}.{_SERVICE}", older)

    def _method(
        self, version: str, kind: str, answer: Callable[[Any], bytes], request: type[Message]
    ) -> Handler:
        """A method that counts its calls as ``kind``; one that the limit refuses is not counted."""

        async def call(stream: Stream[Message, bytes]) -> None:
            message = await _request(stream)
            if not self._bucket.take():
                raise GRPCError(Status.RESOURCE_EXHAUSTED, "rejected by rate limit")
            self._count("requests_total", version)
            self._count(f"requests_{kind}", version)
            try:
                found = answer(message)
            except AnswerError as error:
                self._count(f"errors_{kind}", version)
                raise GRPCError(Status[error.code], error.message) from error
            except Exception as error:
                log.exception("PodResources call failed: %s", kind)
                self._count(f"errors_{kind}", version)
                raise GRPCError(Status.INTERNAL, f"internal error: {error}") from error
            await stream.send_message(found)

        return Handler(call, Cardinality.UNARY_UNARY, request, bytes)


async def _request(stream: Stream[Message, bytes]) -> Message:
    """The one message of a unary call; raises GRPCError for what is none."""
    try:
        message = await stream.recv_message()
    except NotImplementedError as error:
        raise GRPCError(Status.UNIMPLEMENTED, "compressed requests are not taken") from error
    except (DecodeError, AssertionError) as error:  # the latter: it broke off
        raise GRPCError(Status.INTERNAL, "the request is no such message") from error
    if message is None:
        raise GRPCError(Status.INTERNAL, "the call came without its message")
    return message
