"""What the control API answers: requests in, calls on the owner, JSON out."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import inf, nan
from typing import Any, Final

from agent import __version__
from agent.api.request import RequestError
from agent.api.server import Query, Route
from agent.api.view import cpus_json, event_json, nodes_json, pod_json, pods_json, status_json
from agent.cgroup.layout import CgroupDir
from agent.containermanager import AdmittedPod, ContainerManager, EndedPod, RejectedPod, Snapshot, Verdict
from agent.domain.pod import Pod
from agent.errors import HostError
from agent.explain.sentences import explain
from agent.manifest import ManifestError, load_manifests

Json = dict[str, Any]
API_SOURCE: Final = "api"
LONGEST_WAIT: Final = 60.0
QUICK: Final = frozenset({"GET status", "GET cpus", "GET nodes"})
"""The routes of `control_routes` that answer from a snapshot alone, and shortly."""


def control_routes(owner: ContainerManager) -> Mapping[str, Route]:
    """The routes of the control server, all on ``owner``."""
    routes = _Routes(owner)
    return {
        "GET status": lambda _parts, _query, _body: routes.status(),
        "GET pods": routes.pods,
        "GET cpus": lambda _parts, _query, _body: cpus_json(routes.machine()),
        "GET nodes": lambda _parts, _query, _body: nodes_json(routes.machine()),
        "GET events": routes.events,
        "GET deviations": lambda _parts, _query, _body: {"deviations": list(owner.deviations())},
        "GET containers": routes.container,
        "POST pods": routes.apply,
        "POST debug": routes.debug,
        "DELETE pods": routes.delete,
    }


class _Routes:
    def __init__(self, owner: ContainerManager) -> None:
        self.owner = owner

    def status(self) -> Json:
        """How the node is, and which daemon says so."""
        daemon = {"version": __version__, "pid": os.getpid(), "since": self.owner.events.run}
        return {**status_json(self.owner.snapshot()), "daemon": daemon}

    def machine(self) -> Snapshot:
        """A snapshot with a topology that can be relied on."""
        snapshot = self.owner.snapshot()
        if snapshot.withdrawn:
            raise RequestError(503, snapshot.withdrawn, hint="see: journalctl -u numalet")
        return snapshot

    def pods(self, parts: tuple[str, ...], _query: Query, _body: bytes) -> Json:
        snapshot = self.owner.snapshot()
        if not parts:
            return pods_json(snapshot)
        namespace, name = _pod_name(parts)
        answer = pod_json(snapshot, namespace, name)
        if answer is None:
            raise _no_such_pod(namespace, name, [pod.pod for pod in snapshot.pods.values()])
        known = self.owner.find(namespace, name)
        if known is not None:
            answer["trace"] = explain(known.trace)
            answer["events"] = [event_json(e) for e in self.owner.events.since(0, pod=known.pod.full_name)]
            answer["leaving"] = self.owner.is_leaving(known.pod.uid)
            settings = self._settings(known.pod)
            answer["settings"] = settings.get(answer.get("cgroup", ""), [])
            for container in (*answer["containers"], *answer["ephemeralContainers"]):
                container["settings"] = settings.get(container.get("cgroup", ""), [])
                container["kernel"] = self.owner.kernel_view(known.pod.uid, container["name"])
        return answer

    def _settings(self, pod: Pod) -> dict[str, list[Json]]:
        """Every file of each cgroup of a pod, wanted and as it is; nothing where the kernel cannot be read."""
        try:
            found = self.owner.compared(pod.uid)
        except HostError:
            return {}
        return {cgroup: [asdict(file) for file in files] for cgroup, files in found.items()}

    def events(self, _parts: tuple[str, ...], query: Query, _body: bytes) -> Json:
        """The events after ``since``; with ``wait``, not before there is one or the seconds are over.

        Where ``run`` names an earlier run of the daemon, all of this one's, at once.
        """
        since = query.get("since", "0")
        if not (since.isascii() and since.isdigit()):
            raise RequestError(400, f'since: "{since}" is not the number of an event')
        wait = _seconds("wait", query.get("wait")) or 0.0
        events = self.owner.events
        if query.get("run", events.run) != events.run:
            since, wait = "0", 0.0
        found = events.since(int(since[:18]), pod=query.get("pod", ""), wait=min(wait, LONGEST_WAIT))
        return {"run": events.run, "events": [event_json(event) for event in found]}

    def container(self, parts: tuple[str, ...], _query: Query, _body: bytes) -> Json:
        """Where a process joins a container, if one may now."""
        if len(parts) != 3:
            raise RequestError(404, "a container is named by NAMESPACE/NAME/CONTAINER")
        held, name = self._joinable(parts[:2]), parts[2]
        if name not in held.directories:
            names = ", ".join(held.directories)
            raise RequestError(
                404, f"pod {held.pod.full_name} has no container {name}", hint=f"it has: {names}"
            )
        refusal = self.owner.containers.may_join(held.pod.uid, name)
        if refusal:
            raise RequestError(409, refusal, hint=f"see: numalet describe pod {held.pod.full_name}")
        return self._place(held.directories[name])

    def debug(self, parts: tuple[str, ...], query: Query, _body: bytes) -> Json:
        """Move the process ``pid`` into ephemeral work of its own in a pod."""
        pid = query.get("pid", "")
        if not (pid.isascii() and pid.isdigit() and int(pid)):
            raise RequestError(400, f'pid: "{pid}" is not a process id')
        return self._place(self.owner.containers.debug(self._joinable(parts).pod.uid, int(pid)))

    def _place(self, directory: CgroupDir) -> Json:
        snapshot = self.owner.snapshot()
        return {
            "cgroup": snapshot.cgroup(directory),
            "cgroupRoot": snapshot.cgroup_root,
            "cgroupDriver": snapshot.cgroup_names.driver,
        }

    def _joinable(self, parts: tuple[str, ...]) -> AdmittedPod:
        """The admitted pod of that name; RequestError where no process may join it."""
        namespace, name = _pod_name(parts)
        known = self.owner.find(namespace, name)
        match known:
            case AdmittedPod() if self.owner.is_leaving(known.pod.uid):
                raise RequestError(409, f"pod {known.pod.full_name} is being deleted")
            case AdmittedPod():
                return known
            case EndedPod():
                hint = f"to run it again: numalet delete {known.pod.full_name}, then apply it"
                raise RequestError(409, f"pod {known.pod.full_name} has ended", hint=hint)
            case RejectedPod():
                words = f"{known.reason}: {known.message}"
                raise RequestError(409, f"pod {known.pod.full_name} is not admitted: {words}")
            case None:
                pods = [pod.pod for pod in self.owner.snapshot().pods.values()]
                raise _no_such_pod(namespace, name, pods)

    def apply(self, _parts: tuple[str, ...], query: Query, body: bytes) -> Json:
        source = query.get("source", "request")
        try:
            pods = load_manifests(body, source, self.owner.gates)
        except ManifestError as error:
            raise RequestError(400, str(error)) from error
        if not pods:
            raise RequestError(400, f"{source}: holds no pod")
        return {"results": [_verdict(self.owner.admit(pod, API_SOURCE)) for pod in pods]}

    def delete(self, parts: tuple[str, ...], query: Query, _body: bytes) -> Json:
        namespace, name = _pod_name(parts)
        known = self.owner.find(namespace, name)
        if known is None:
            pods = [pod.pod for pod in self.owner.snapshot().pods.values()]
            raise _no_such_pod(namespace, name, pods)
        self.owner.remove(known.pod.uid, _seconds("grace", query.get("grace")))
        return {"pod": known.pod.full_name, "uid": known.pod.uid, "verdict": "deleted"}


def _pod_name(parts: tuple[str, ...]) -> tuple[str, str]:
    if len(parts) != 2:
        raise RequestError(404, "a pod is named by NAMESPACE/NAME")
    return parts[0], parts[1]


def _no_such_pod(namespace: str, name: str, pods: Sequence[Pod]) -> RequestError:
    elsewhere = [pod.full_name for pod in pods if pod.name == name]
    hint = f"there is {elsewhere[0]}" if elsewhere else "see: numalet get pods"
    return RequestError(404, f"no pod {namespace}/{name}", hint=hint)


def _seconds(name: str, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = nan
    if not 0 <= seconds < inf:
        raise RequestError(400, f'{name}: "{text}" is not a number of seconds')
    return seconds


def _verdict(verdict: Verdict) -> Json:
    return {
        "pod": verdict.pod.full_name,
        "uid": verdict.pod.uid,
        "verdict": verdict.kind.value,
        "reason": verdict.reason,
        "message": verdict.message,
        "remedy": verdict.remedy,
    }
