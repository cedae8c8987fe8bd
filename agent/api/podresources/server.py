"""The PodResources API on a unix socket, as the kubelet serves it: gRPC, v1 and v1alpha1.

Beside it gRPC's own health and reflection services, so that standard tools can look in. The rate
limit is the kubelet's and counts the calls of all clients together.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import grpc
from google.protobuf.message import Message
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from agent.api.podresources.answers import AnswerError, Answers
from agent.api.podresources.ratelimit import TokenBucket
from agent.api.podresources.v1 import api_pb2 as v1
from agent.api.podresources.v1alpha1 import api_pb2 as v1alpha1
from agent.api.unixsocket import socket_place
from agent.containermanager.snapshot import Snapshot

log = logging.getLogger(__name__)

Count = Callable[[str, str], None]
"""Told of what happened (the metric's name after ``pod_resources_endpoint_``), and the API version."""

V1: Final = "v1"
V1ALPHA1: Final = "v1alpha1"
PER_SECOND: Final = 100.0
BURST: Final = 10

_SERVICE: Final = "PodResourcesLister"
_NAMES: Final = (f"{V1}.{_SERVICE}", f"{V1ALPHA1}.{_SERVICE}")
_WORKERS: Final = 16
_STOP_SECONDS: Final = 0.5


class PodResourcesServer:
    """Serves what ``snapshot`` shows; takes the socket at once, with ``mode``. Raises HostError."""

    def __init__(
        self,
        path: Path,
        mode: int,
        snapshot: Callable[[], Snapshot],
        count: Count,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = path
        self._count = count
        self._bucket = TokenBucket(per_second=PER_SECOND, burst=BURST, clock=clock)
        self._health = health.HealthServicer()
        self._server = grpc.server(ThreadPoolExecutor(_WORKERS, thread_name_prefix="pod-resources"))
        self._add_services(Answers(snapshot))
        with socket_place(path, mode, "podResourcesSocket"):
            with socket.socket(socket.AF_UNIX) as trial:
                trial.bind(str(path))  # gRPC would only say that it failed, not why
            self._server.add_insecure_port(f"unix:{quote(str(path))}")

    def start(self) -> None:
        """Begin to serve."""
        for name in ("", *_NAMES):
            self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        self._server.start()

    def stop(self) -> None:
        """Stop serving, if it was begun, and remove the socket."""
        self._health.enter_graceful_shutdown()
        self._server.stop(_STOP_SECONDS).wait()
        self.path.unlink(missing_ok=True)

    def _add_services(self, answers: Answers) -> None:
        lister = {
            "List": self._method(V1, "list", answers.list, v1.ListPodResourcesRequest),
            "Get": self._method(V1, "get", answers.get, v1.GetPodResourcesRequest),
            "GetAllocatableResources": self._method(
                V1, "get_allocatable", answers.allocatable, v1.AllocatableResourcesRequest
            ),
        }
        request = v1alpha1.ListPodResourcesRequest
        lister_v1alpha1 = {"List": self._method(V1ALPHA1, "list", answers.list_v1alpha1, request)}
        self._server.add_generic_rpc_handlers(
            [
                grpc.method_handlers_generic_handler(_NAMES[0], lister),
                grpc.method_handlers_generic_handler(_NAMES[1], lister_v1alpha1),
            ]
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = (*_NAMES, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._server)

    def _method(
        self, version: str, kind: str, answer: Callable[[Any], bytes], request: type[Message]
    ) -> grpc.RpcMethodHandler[Any, bytes]:
        """A method that counts its calls as ``kind``; one that the limit refuses is not counted."""

        def call(message: Message, context: grpc.ServicerContext) -> bytes:
            if not self._bucket.take():
                context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
            self._count("requests_total", version)
            self._count(f"requests_{kind}", version)
            try:
                return answer(message)
            except AnswerError as error:
                code, text = grpc.StatusCode[error.code], error.message
            except Exception as error:
                log.exception("PodResources call failed: %s", kind)
                code, text = grpc.StatusCode.INTERNAL, f"internal error: {error}"
            self._count(f"errors_{kind}", version)
            return context.abort(code, text)

        return grpc.unary_unary_rpc_method_handler(call, request_deserializer=request.FromString)
