"""The answers of the PodResources API, as bytes on the wire."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from agent.api.podresources.resources import active_pod, allocatable, names_only, pod_resources
from agent.api.podresources.v1 import api_pb2 as v1
from agent.api.podresources.v1alpha1 import api_pb2 as v1alpha1
from agent.containermanager.snapshot import AdmittedPod, Snapshot
from agent.domain.pod import PodUid
from agent.errors import NumaletError


class AnswerError(NumaletError):
    """There is no answer; ``code`` names the gRPC status. UNKNOWN is what the kubelet's errors have."""

    def __init__(self, message: str, *, code: str = "UNKNOWN") -> None:
        super().__init__(message)
        self.code = code


class Answers:
    """Answers from ``snapshot`` at the moment of the call; from any thread.

    A pod's part of a list is encoded once and kept as long as what it was made from is the same: pods
    change seldom and are listed often. Messages put one after the other are one message with the
    repeated fields of all (protobuf encoding, "Last One Wins").
    """

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot
        self._encoded: dict[PodUid, tuple[tuple[object, ...], bytes]] = {}

    def list(self, _request: v1.ListPodResourcesRequest) -> bytes:
        """All active pods, in the order of their admission."""
        encoded = dict(self._encodings(self._snapshot()))
        self._encoded = encoded  # another thread may put its own there at once
        return b"".join(part for _made_from, part in encoded.values())

    def get(self, request: v1.GetPodResourcesRequest) -> bytes:
        """One active pod; raises AnswerError."""
        snapshot = self._snapshot()
        namespace, name = request.pod_namespace, request.pod_name
        admitted = active_pod(snapshot, namespace, name)
        if admitted is None:
            raise AnswerError(f"pod {name} in namespace {namespace} not found")
        fields = pod_resources(snapshot, admitted)
        return v1.GetPodResourcesResponse(pod_resources=fields).SerializeToString()

    def allocatable(self, _request: v1.AllocatableResourcesRequest) -> bytes:
        """What pods could be given; raises AnswerError while the machine cannot be told."""
        snapshot = self._snapshot()
        if snapshot.withdrawn:
            raise AnswerError(snapshot.withdrawn, code="UNAVAILABLE")
        return v1.AllocatableResourcesResponse(**allocatable(snapshot)).SerializeToString()

    def list_v1alpha1(self, _request: v1alpha1.ListPodResourcesRequest) -> bytes:
        """The names of all active pods."""
        pods = [names_only(admitted) for admitted in self._snapshot().pods.values()]
        return v1alpha1.ListPodResourcesResponse(pod_resources=pods).SerializeToString()

    def _encodings(self, snapshot: Snapshot) -> Iterator[tuple[PodUid, tuple[tuple[object, ...], bytes]]]:
        known = self._encoded
        for uid, admitted in snapshot.pods.items():
            made_from = _inputs(snapshot, uid, admitted)
            kept = known.get(uid)
            # Equal at a glance: unless something changed, both tuples hold the very same objects.
            if kept is None or kept[0] != made_from:
                pod = pod_resources(snapshot, admitted)
                kept = made_from, v1.ListPodResourcesResponse(pod_resources=[pod]).SerializeToString()
            yield uid, kept


def _inputs(snapshot: Snapshot, uid: PodUid, admitted: AdmittedPod) -> tuple[object, ...]:
    """Everything that `pod_resources` looks at."""
    cpu, memory = snapshot.state.cpu, snapshot.state.memory
    return (
        admitted,
        snapshot.managers.memory,
        cpu.entries.get(uid),
        cpu.pod_entries.get(uid),
        memory.entries.get(uid),
        memory.pod_entries.get(uid),
    )
