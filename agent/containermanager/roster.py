"""The pods the owner knows, admitted or refused, by uid, name and source."""

from __future__ import annotations

from dataclasses import dataclass, field

from agent.containermanager.snapshot import AdmittedPod, RejectedPod
from agent.domain.pod import Pod, PodUid

Known = AdmittedPod | RejectedPod


@dataclass(slots=True)
class Roster:
    """One entry per uid, and per name: who is admitted or refused last. Its owner locks."""

    admitted: dict[PodUid, AdmittedPod] = field(default_factory=dict)
    rejected: dict[PodUid, RejectedPod] = field(default_factory=dict)

    def pods(self) -> dict[PodUid, Pod]:
        """The admitted pods."""
        return {uid: entry.pod for uid, entry in self.admitted.items()}

    def admit(self, entry: AdmittedPod) -> None:
        """Enter a pod that holds its resources."""
        self._forget_refusals(entry.pod)
        self.admitted[entry.pod.uid] = entry

    def reject(self, entry: RejectedPod) -> None:
        """Enter a pod that was refused."""
        self._forget_refusals(entry.pod)
        self.rejected[entry.pod.uid] = entry

    def _forget_refusals(self, pod: Pod) -> None:
        for uid in [uid for uid, entry in self.rejected.items() if _same(entry.pod, pod)]:
            del self.rejected[uid]

    def holder(self, pod: Pod) -> AdmittedPod | None:
        """The admitted pod that has the pod's uid or name."""
        return next((entry for entry in self.admitted.values() if _same(entry.pod, pod)), None)

    def find(self, namespace: str, name: str) -> Known | None:
        """The pod of that name."""
        named = (e for e in self._all() if (e.pod.namespace, e.pod.name) == (namespace, name))
        return next(named, None)

    def sources(self) -> frozenset[str]:
        """Where the pods came from."""
        return frozenset(entry.source for entry in self._all())

    def of_source(self, source: str) -> frozenset[PodUid]:
        """The pods that came from ``source``."""
        return frozenset(entry.pod.uid for entry in self._all() if entry.source == source)

    def _all(self) -> tuple[Known, ...]:
        return (*self.admitted.values(), *self.rejected.values())


def _same(one: Pod, other: Pod) -> bool:
    return one.uid == other.uid or (one.namespace, one.name) == (other.namespace, other.name)
