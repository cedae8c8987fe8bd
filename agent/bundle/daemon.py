"""What the running daemon tells over its control socket."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

from agent.api.client import ControlClient, ControlError
from agent.bundle.contents import Contents

_ANSWERS: Final = {
    "status": "problems, pools, counts",
    "pods": "the pods, admitted and rejected",
    "cpus": "who holds each CPU",
    "nodes": "NUMA nodes: pools and memory",
    "events": "what happened since the daemon started",
    "deviations": "where the kernel differs from what was decided",
}

Json = dict[str, Any]


def answers_to(into: Contents, client: ControlClient) -> Json | None:
    """The configuration in force; None, and a note, where no daemon answers."""
    try:
        return client.call("GET", "/v1/config")
    except ControlError as error:
        into.lack("api", error.message)
        return None


def gather_api(into: Contents, client: ControlClient) -> None:
    """What each route answers, and every pod described with its decision and the kernel's values."""
    found: Json = {}
    for name, about in _ANSWERS.items():
        with into.lacking(f"api/{name}.json"):
            found[name] = client.call("GET", f"/v1/{name}")
            into.add_json(f"api/{name}.json", about, found[name])
    for pod in found.get("pods", {}).get("pods", ()):
        full_name = f"{pod['namespace']}/{pod['name']}"
        name = f"api/pods/{pod['namespace']}.{pod['name']}.json"
        with into.lacking(name):
            about = f"{full_name}: what it holds, why, and each cgroup file as wanted and as it is"
            target = f"{quote(pod['namespace'], safe='')}/{quote(pod['name'], safe='')}"
            into.add_json(name, about, client.call("GET", f"/v1/pods/{target}"))
