"""The PodResources API on a node with 1,000 pods."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc

from agent.admission import isolation
from agent.api.podresources.answers import Answers
from agent.api.podresources.server import PodResourcesServer
from agent.api.podresources.v1 import api_pb2 as v1
from agent.containermanager.snapshot import AdmittedPod, Snapshot
from scripts.bench.machines import amounts, app, empty_node, machine, pod, settings
from scripts.bench.registry import benchmark

_PODS = 1000


def _snapshot() -> Snapshot:
    """Pods of 2 CPUs: an exclusive container, and one in the pod shared pool."""
    topology, chosen = machine(sockets=8, nodes=8, cpus=2304), settings()
    node = empty_node(topology, chosen)
    containers = app("main", amounts(1, 0.5)), app("helper")
    node.admit(pod(f"pod-{number}", *containers, budget=amounts(2, 1)) for number in range(_PODS))
    return Snapshot(
        topology=topology,
        settings=chosen,
        managers=node.managers,
        state=node.state,
        cgroup_root="",
        pods={
            uid: AdmittedPod(
                pod=held,
                source="bench",
                admitted_at="",
                trace=(),
                isolation=isolation(node.managers, node.state, held),
                directories={},
            )
            for uid, held in node.pods.items()
        },
    )


@benchmark(aim=20)
def list_1000_pods() -> Callable[[], object]:
    """List over the socket, client's part included; the pods are as at the call before."""
    snapshot, folder, seconds = _snapshot(), TemporaryDirectory(), count()
    path = Path(folder.name) / "kubelet.sock"
    # A clock that jumps: the rate limit is not what is timed.
    server = PodResourcesServer(path, 0o600, lambda: snapshot, lambda *_: None, lambda: float(next(seconds)))
    server.start()
    channel = grpc.insecure_channel(f"unix:{path}")
    call = channel.unary_unary(
        "/v1.PodResourcesLister/List",
        v1.ListPodResourcesRequest.SerializeToString,
        v1.ListPodResourcesResponse.FromString,
    )

    def timed() -> object:
        answer: v1.ListPodResourcesResponse = call(v1.ListPodResourcesRequest(), timeout=60)
        return folder, server, len(answer.pod_resources)

    return timed


@benchmark(aim=20)
def encode_1000_pods() -> Callable[[], object]:
    """The answer for pods that were never listed before, without gRPC."""
    snapshot, request = _snapshot(), v1.ListPodResourcesRequest()
    return lambda: Answers(lambda: snapshot).list(request)
