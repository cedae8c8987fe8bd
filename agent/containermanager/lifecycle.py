"""The life of a pod's containers: pure transitions, who may start, and when a pod has ended.

numalet does not start processes and is not their parent: it learns whether a container's cgroup has
any (``populated``), and whether it ever had (it used CPU time). So there is no exit status, and
restartPolicy OnFailure is taken as Never: whoever would start the work again after a failure (systemd,
a script) does so within `SETTLE_SECONDS`, or the pod has ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from agent.domain.lifecycle import NOT_STARTED, ContainerLife, ContainerState, Lives
from agent.domain.pod import Container, ContainerKind, Pod, RestartPolicy

SETTLE_SECONDS: Final = 1.0
"""How long all containers must be empty before the pod has ended.

Ten times systemd's default RestartSec=: a supervisor that starts a crashed program again keeps the pod.
"""

DEFAULT_GRACE_SECONDS: Final = 30.0
"""Kubernetes' own."""


def seen(life: ContainerLife, *, populated: bool, has_run: bool, now: str) -> ContainerLife:
    """The life after a look at the cgroup; the same one if nothing is new.

    ``has_run`` tells of processes that came and went between two looks, or while no daemon ran.
    """
    state, restarts = life.state, life.restarts
    if populated and state is not ContainerState.RUNNING:
        again = state is ContainerState.EXITED
        return ContainerLife(state=ContainerState.RUNNING, since=now, restarts=restarts + again)
    came_and_went = has_run and state is ContainerState.WAITING
    if not populated and (state is ContainerState.RUNNING or came_and_went):
        return ContainerLife(state=ContainerState.EXITED, since=now, restarts=restarts)
    return life


def life_of(lives: Lives, name: str) -> ContainerLife:
    """The life of one container."""
    return lives.get(name, NOT_STARTED)


def refusal(pod: Pod, lives: Lives, name: str) -> str:
    """Why no process may join the container now; empty if one may.

    Standard init containers run one after the other, before what comes after them. One that has run
    does not run again once a later container has begun: that one has its CPUs and memory now.
    """
    position = next((at for at, c in enumerate(pod.containers) if c.name == name), None)
    if position is None:
        return ""  # ephemeral: at any time
    for earlier in pod.containers[:position]:
        state = life_of(lives, earlier.name).state
        if earlier.kind is ContainerKind.INIT and state is not ContainerState.EXITED:
            begun = "still runs" if state is ContainerState.RUNNING else "has not run yet"
            return f"container {name} starts when init container {earlier.name} has finished, which {begun}"
    if pod.containers[position].kind is ContainerKind.INIT:
        for later in pod.containers[position + 1 :]:
            if life_of(lives, later.name).state is not ContainerState.WAITING:
                return f"init container {name} has finished, and container {later.name} has its CPUs and memory now"
    return ""


def has_ended(pod: Pod, lives: Lives) -> bool:
    """Tell whether the pod's work is done: all of it has run, nothing but sidecars runs.

    A pod with restartPolicy Always, the default, never ends by itself.
    """
    if pod.restart_policy is RestartPolicy.ALWAYS:
        return False
    return all(life_of(lives, c.name).state is ContainerState.EXITED for c in _workers(pod))


def _workers(pod: Pod) -> Iterator[Container]:
    """The containers whose end is the pod's: not sidecars."""
    return (c for c in pod.containers if c.kind is not ContainerKind.SIDECAR)


def has_begun(pod: Pod, lives: Lives) -> bool:
    """Tell whether a container that follows an init container has begun, so that memory went back."""
    started = [life_of(lives, c.name).state is not ContainerState.WAITING for c in pod.containers]
    inits = [at for at, c in enumerate(pod.containers) if c.kind is ContainerKind.INIT]
    return bool(inits) and any(started[inits[0] + 1 :])


def grace_of(pod: Pod) -> float:
    """Seconds between SIGTERM and SIGKILL."""
    stated = pod.manifest.get("spec", {}).get("terminationGracePeriodSeconds")
    return max(0.0, float(stated)) if isinstance(stated, int | float) else DEFAULT_GRACE_SECONDS


def told(name: str, life: ContainerLife) -> str:
    """A change, for the log."""
    again = (
        f" again ({life.restarts}. restart)" if life.restarts and life.state is ContainerState.RUNNING else ""
    )
    words = {
        ContainerState.WAITING: "waits",
        ContainerState.RUNNING: f"runs{again}",
        ContainerState.EXITED: "has exited",
    }
    return f"container {name} {words[life.state]}"
