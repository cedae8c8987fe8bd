"""What the control API says of containers' lives, and where work may go."""

from __future__ import annotations

from typing import Any

import pytest

from agent.api.podresources.answers import Answers
from agent.api.podresources.v1 import api_pb2 as v1
from agent.api.request import RequestError
from agent.api.routes import control_routes
from agent.cgroup.layout import CgroupDir
from agent.domain.pod import PodUid
from tests.containermanager.node import Node, limits, manifest, parsed

Json = dict[str, Any]
UID = PodUid("uid-a")
ROOT = "/sys/fs/cgroup/test"


class Api:
    """A node with pod a: init container setup, then container main; it ends when they have run."""

    def __init__(self) -> None:
        self.node = Node()
        self.owner = self.node.owner()
        self.routes = control_routes(self.owner)
        document = manifest("a")
        document["spec"] |= {
            "restartPolicy": "Never",
            "initContainers": [{"name": "setup", "resources": limits("2", "64Mi")}],
        }
        self.owner.admit(parsed(document), "api")

    def call(self, route: str, *parts: str, **query: str) -> Json:
        return self.routes[route](parts, query, b"")

    def refusal(self, route: str, *parts: str, **query: str) -> RequestError:
        with pytest.raises(RequestError) as caught:
            self.call(route, *parts, **query)
        return caught.value

    def starts(self, name: str) -> int:
        pid = self.node.cgroups.spawn()
        directory = CgroupDir(f"poduid-a/{name}")
        self.node.cgroups.add_process(directory, pid)
        self.owner.containers.changed([directory])
        return pid

    def runs(self, name: str) -> None:
        self.node.cgroups.exit(self.starts(name))
        self.owner.containers.changed([CgroupDir(f"poduid-a/{name}")])


@pytest.fixture
def api() -> Api:
    return Api()


def test_states_are_told_with_times_and_restarts(api: Api) -> None:
    api.runs("setup")
    api.runs("main")
    api.starts("main")
    pod = api.call("GET pods", "default", "a")
    assert pod["ready"] == "1/1"
    setup, main = pod["containers"]
    assert (setup["state"], setup["restarts"]) == ("exited", 0)
    assert (main["state"], main["restarts"]) == ("running", 1)
    assert setup["since"] < main["since"]


def test_a_container_that_waits_since_its_pod_was_admitted_has_no_time(api: Api) -> None:
    [pod] = api.call("GET pods")["pods"]
    assert (pod["ready"], pod["containers"][0]["state"], pod["containers"][0]["since"]) == (
        "0/1",
        "waiting",
        "",
    )


def test_work_is_told_where_to_join(api: Api) -> None:
    assert api.call("GET containers", "default", "a", "setup") == {
        "cgroup": f"{ROOT}/poduid-a/setup",
        "cgroupRoot": ROOT,
        "cgroupDriver": "cgroupfs",
    }


def test_work_out_of_order_is_refused(api: Api) -> None:
    error = api.refusal("GET containers", "default", "a", "main")
    assert (error.status, error.hint) == (409, "see: numalet describe pod default/a")
    assert (
        error.message == "container main starts when init container setup has finished, which has not run yet"
    )
    api.runs("setup")
    assert api.call("GET containers", "default", "a", "main")["cgroup"] == f"{ROOT}/poduid-a/main"


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (("default", "a", "other"), "pod default/a has no container other"),
        (("default", "b", "main"), "no pod default/b"),
        (("default", "a"), "a container is named by NAMESPACE/NAME/CONTAINER"),
    ],
)
def test_work_for_what_is_not_there_is_not_found(api: Api, parts: tuple[str, ...], message: str) -> None:
    error = api.refusal("GET containers", *parts)
    assert (error.status, error.message) == (404, message)


def test_debug_work_is_shown_with_its_pod_while_it_runs(api: Api) -> None:
    pid = api.node.cgroups.spawn()
    answer = api.call("POST debug", "default", "a", pid=str(pid))
    assert answer["cgroup"] == f"{ROOT}/poduid-a/debug-1"
    [shown] = api.call("GET pods", "default", "a")["ephemeralContainers"]
    assert (shown["name"], shown["cgroup"]) == ("debug-1", answer["cgroup"])
    assert shown["kernel"]["cpuset.cpus.effective"] == "0,3-7"


@pytest.mark.parametrize("pid", ["", "0", "-1", "x", "½"])
def test_debug_work_needs_a_process(api: Api, pid: str) -> None:
    error = api.refusal("POST debug", "default", "a", pid=pid)
    assert (error.status, error.message) == (400, f'pid: "{pid}" is not a process id')


def test_a_pod_that_ended_is_shown_without_holdings_and_takes_no_work(api: Api) -> None:
    api.runs("setup")
    api.runs("main")
    api.owner.end(UID)
    pod = api.call("GET pods", "default", "a")
    assert (pod["state"], pod["reason"], pod["trace"]) == ("Succeeded", "Completed", [])
    assert pod["admittedAt"] < pod["endedAt"]
    assert [(c["name"], c["state"]) for c in pod["containers"]] == [("setup", "exited"), ("main", "exited")]
    assert api.call("GET status")["succeeded"] == 1
    for error in (
        api.refusal("GET containers", "default", "a", "main"),
        api.refusal("POST debug", "default", "a", pid="7"),
    ):
        assert (error.status, error.message) == (409, "pod default/a has ended")
    assert Answers(api.owner.snapshot).list(v1.ListPodResourcesRequest()) == b""
    assert api.call("DELETE pods", "default", "a")["verdict"] == "deleted"
    assert api.call("GET pods") == {"pods": []}
