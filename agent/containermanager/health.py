"""What is wrong with the node: failures that make it not ready, and problems to know of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from agent.cgroup import layout
from agent.cgroup.layout import CgroupDir
from agent.containermanager.degraded import Reasons
from agent.containermanager.events import EventKind, Events
from agent.domain.idset import CpuSet
from agent.domain.pod import Pod, PodUid
from agent.errors import HostError, StateError

T = TypeVar("T")


@dataclass(slots=True)
class Health:
    """Failures by kind, until the same work succeeds; problems by who found them. Its owner locks.

    ``pending`` is what the configuration says and only a restart brings.
    """

    events: Events
    failures: dict[str, str] = field(default_factory=dict)
    recovery: tuple[str, ...] = ()
    manifests: tuple[str, ...] = ()
    configuration: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    strangers: tuple[str, ...] = ()
    bound: tuple[str, ...] = ()
    host: tuple[str, ...] = ()
    degraded: dict[PodUid, Reasons] = field(default_factory=dict)

    @property
    def problems(self) -> tuple[str, ...]:
        """All of them, as sentences; what degrades a pod is told with the pod."""
        refused = (f"configuration refused: {text}" for text in self.configuration)
        return (*self.recovery, *self.manifests, *self.strangers, *self.bound, *self.host, *refused)

    def fail(self, kind: str, text: str) -> None:
        """Remember a failure, and tell it once."""
        if self.failures.get(kind) != text:
            self.events.add(EventKind.NOT_READY, f"not ready: {kind}: {text}")
        self.failures[kind] = text

    def mend(self, kind: str) -> None:
        """Forget a failure, and tell its end."""
        if self.failures.pop(kind, None) is not None:
            self.events.add(EventKind.READY, f"ready again: no {kind} any more")

    def mending(self, kind: str, work: Callable[[], T]) -> T | None:
        """Do ``work`` and outlive its failure (then None): it is told once, and so is its end."""
        try:
            done = work()
        except (StateError, HostError) as error:
            self.fail(kind, error.message)
            return None
        self.mend(kind)
        return done

    def meet(self, found: Mapping[CgroupDir, CpuSet]) -> None:
        """``found`` are the populated cgroups of pods that nobody knows: tell who came, and who went."""
        was, self.strangers = self.strangers, tuple(_stranger(*one) for one in found.items())
        self._compare(was, self.strangers, (EventKind.UNKNOWN_POD, EventKind.UNKNOWN_POD_GONE))

    def lack(self, found: tuple[str, ...]) -> None:
        """``found`` says which bound containers are not as they are to be: tell what is new, and what is over."""
        was, self.bound = self.bound, found
        self._compare(was, found, (EventKind.BINDING_FAILED, EventKind.BINDING_MENDED))

    def _compare(
        self, was: tuple[str, ...], now: tuple[str, ...], kinds: tuple[EventKind, EventKind]
    ) -> None:
        for text in now:
            if text not in was:
                self.events.add(kinds[0], text)
        for text in was:
            if text not in now:
                self.events.add(kinds[1], f"no longer: {text}")

    def isolated(self, problems: tuple[str, ...]) -> None:
        """``problems`` are what keeps the host from being isolated as it was asked for: tell them once."""
        self.host = problems
        for text in problems:
            self.events.add(EventKind.HOST_ISOLATION, text)

    def diagnose(self, pods: Iterable[Pod], found: Mapping[PodUid, Reasons]) -> None:
        """``found`` says which of ``pods`` are degraded now: tell what is new about it, and what is over."""
        for pod in pods:
            was, now = self.degraded.pop(pod.uid, ()), found.get(pod.uid, ())
            if now:
                self.degraded[pod.uid] = now
            if now and now != was:
                self.events.add(EventKind.DEGRADED, f"degraded pod {pod.full_name}: {'; '.join(now)}", pod)
            elif was and not now:
                self.events.add(EventKind.RECOVERED, f"pod {pod.full_name} has all it holds again", pod)


def _stranger(directory: CgroupDir, cpus: CpuSet) -> str:
    uid = directory.rpartition("/")[2].removeprefix(layout.POD_PREFIX)
    return (
        f"cgroup {directory}: processes of a pod that is not known run here, found on CPUs {cpus or 'unknown'}; "
        f"they are held to the shared pool; end them, or apply the pod again with uid {uid}"
    )
