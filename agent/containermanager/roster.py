"""The pods the owner knows, admitted, ended or refused, by uid, name and source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.checkpoint.podrecord import PodRecord
from agent.containermanager.snapshot import AdmittedPod, EndedPod, RejectedPod
from agent.domain.pod import Pod, PodUid
from agent.domain.state import with_pod, without_pod

Known = AdmittedPod | EndedPod | RejectedPod


@dataclass(slots=True)
class Roster:
    """One entry per uid, and per name: who is admitted, ended or refused last. Its owner locks."""

    admitted: dict[PodUid, AdmittedPod] = field(default_factory=dict)
    rejected: dict[PodUid, RejectedPod] = field(default_factory=dict)
    ended: dict[PodUid, EndedPod] = field(default_factory=dict)
    pods: Mapping[PodUid, Pod] = field(default_factory=dict)
    """The admitted pods, as the kernel is to have them. Never written to: a change makes another mapping."""
    _names: dict[tuple[str, str], PodUid] = field(default_factory=dict)
    """The admitted pods'."""

    def admit(self, entry: AdmittedPod) -> None:
        """Enter a pod that holds its resources, or what has become of it."""
        self._forget_refusals(entry.pod)
        self.admitted[entry.pod.uid] = entry
        self.pods = with_pod(self.pods, entry.pod.uid, entry.enforced)
        self._names[entry.pod.namespace, entry.pod.name] = entry.pod.uid

    def release(self, pod: Pod) -> None:
        """Take out a pod that was admitted."""
        del self.admitted[pod.uid]
        self.pods = without_pod(self.pods, pod.uid)
        del self._names[pod.namespace, pod.name]

    def reject(self, entry: RejectedPod) -> None:
        """Enter a pod that was refused."""
        self._forget_refusals(entry.pod)
        self.rejected[entry.pod.uid] = entry

    def end(self, pod: Pod, record: PodRecord) -> None:
        """Enter a pod that has ended, with its last record; it is not admitted any more."""
        self.ended[pod.uid] = EndedPod(
            pod=pod,
            source=record.source,
            admitted_at=record.admitted_at,
            ended_at=record.ended_at,
            lives=record.lives,
        )

    def _forget_refusals(self, pod: Pod) -> None:
        for uid in [uid for uid, entry in self.rejected.items() if _same(entry.pod, pod)]:
            del self.rejected[uid]

    def holder(self, pod: Pod) -> AdmittedPod | EndedPod | None:
        """The admitted or ended pod that has the pod's uid or name."""
        uid = pod.uid if pod.uid in self.admitted else self._names.get((pod.namespace, pod.name))
        if uid is not None:
            return self.admitted[uid]
        return next((entry for entry in self.ended.values() if _same(entry.pod, pod)), None)

    def find(self, namespace: str, name: str) -> Known | None:
        """The pod of that name."""
        uid = self._names.get((namespace, name))
        if uid is not None:
            return self.admitted[uid]
        others: tuple[Known, ...] = (*self.ended.values(), *self.rejected.values())
        return next((e for e in others if (e.pod.namespace, e.pod.name) == (namespace, name)), None)

    def sources(self) -> frozenset[str]:
        """Where the pods came from."""
        return frozenset(entry.source for entry in self._all())

    def of_source(self, source: str) -> frozenset[PodUid]:
        """The pods that came from ``source``."""
        return frozenset(entry.pod.uid for entry in self._all() if entry.source == source)

    def _all(self) -> tuple[Known, ...]:
        return (*self.admitted.values(), *self.ended.values(), *self.rejected.values())


def _same(one: Pod, other: Pod) -> bool:
    return one.uid == other.uid or (one.namespace, one.name) == (other.namespace, other.name)
