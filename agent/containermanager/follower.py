"""Follows the containers' cgroups: what changed goes to the owner, pods whose work is done end."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import inf
from threading import Thread
from typing import Final, Protocol

from agent.cgroup.layout import CgroupDir
from agent.containermanager.lifecycle import SETTLE_SECONDS
from agent.containermanager.owner import ContainerManager
from agent.domain.pod import PodUid
from agent.errors import NumaletError

log = logging.getLogger(__name__)


RETRY_SECONDS: Final = 10.0
"""After a pod could not be let go, e.g. because the disk is full."""


class ChangeSource(Protocol):
    """What we use of `ContainerWatch`."""

    def fileno(self) -> int:
        """A descriptor that is readable when something changed; -1: there is none."""

    def follow(self, directories: Iterable[CgroupDir]) -> None:
        """Tell of these, too."""

    def drain(self) -> frozenset[CgroupDir]:
        """The cgroups that changed since, or may have."""


@dataclass(slots=True)
class ContainerFollower:
    """For one thread: call `follow` when ``watch`` is readable and now and then, `end_settled` at ``due``."""

    owner: ContainerManager
    watch: ChangeSource
    clock: Callable[[], float] = time.monotonic
    _settling: dict[PodUid, float] = field(default_factory=dict)
    _failed: deque[PodUid] = field(default_factory=deque)
    """Filled by the threads that end pods."""

    @property
    def due(self) -> float:
        """When the next pod has been done for long enough, by the clock; infinity if none is done."""
        return min(self._settling.values(), default=inf)

    def follow(self) -> None:
        """Tell the owner what changed; whatever changes in a pod that is done starts its wait anew."""
        self._look_at(self.watch.drain())

    def follow_bound(self) -> None:
        """The same for bound containers, whose cgroups are not ours: look at all of them."""
        self._look_at(self.owner.containers.bound())

    def _look_at(self, directories: frozenset[CgroupDir]) -> None:
        for uid, has_ended in self.owner.containers.changed(directories).items():
            self._settling.pop(uid, None)
            if has_ended:
                self._settling[uid] = self.clock() + SETTLE_SECONDS

    def take_over(self) -> None:
        """Begin with the containers that were there before; cgroups that are made later are followed as such."""
        directories = self.owner.containers.directories()
        self.watch.follow(directories)
        self._look_at(directories)

    def end_settled(self) -> None:
        """End the pods that are due, each in a thread of its own: sidecars may take their time to end."""
        now = self.clock()
        while self._failed:
            self._settling[self._failed.popleft()] = now + RETRY_SECONDS
        for uid in [uid for uid, due in self._settling.items() if due <= now]:
            del self._settling[uid]
            Thread(target=self._end, args=(uid,), name=f"end-{uid}", daemon=True).start()

    def _end(self, uid: PodUid) -> None:
        try:
            self.owner.end(uid)
        except NumaletError as error:
            self._failed.append(uid)
            log.error("pod uid %s has ended, but keeps what it holds: %s", uid, error.message)  # noqa: TRY400 - a clear sentence needs no traceback
