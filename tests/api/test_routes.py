"""What the control API answers about real pods on a real owner."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from agent import __version__
from agent.api.request import RequestError
from agent.api.routes import control_routes
from agent.config import Config
from agent.containermanager import ContainerManager
from agent.containermanager.hostisolation import SHARED
from agent.domain.pod import PodUid
from agent.domain.settings import CpuPolicy, MemoryPolicy, TopologyPolicy
from tests.containermanager.node import GIB, Node, best_effort, budgeted, limits, manifest, parsed, topology

Json = dict[str, Any]


class Api:
    def __init__(self, owner: ContainerManager) -> None:
        self.owner = owner
        self.routes = control_routes(owner)

    def call(self, route: str, *parts: str, body: bytes = b"", **query: str) -> Json:
        return self.routes[route](parts, query, body)

    def apply(self, *documents: Json) -> list[Json]:
        body = b"".join(b"---\n" + json.dumps(document).encode() + b"\n" for document in documents)
        results: list[Json] = self.call("POST pods", body=body, source="test.yaml")["results"]
        return results

    def pod(self, name: str) -> Json:
        return self.call("GET pods", "default", name)

    def refusal(self, route: str, *parts: str, body: bytes = b"", **query: str) -> RequestError:
        with pytest.raises(RequestError) as caught:
            self.call(route, *parts, body=body, **query)
        return caught.value


@pytest.fixture
def api() -> Api:
    return Api(Node().owner())


def test_apply_answers_for_each_pod(api: Api) -> None:
    results = api.apply(manifest("a"), manifest("b", cpu="64"))
    assert [(r["pod"], r["uid"], r["verdict"]) for r in results] == [
        ("default/a", "uid-a", "admitted"),
        ("default/b", "uid-b", "rejected"),
    ]
    assert api.apply(manifest("a"))[0]["verdict"] == "unchanged"
    assert results[0]["reason"] == results[0]["message"] == ""
    assert results[1]["reason"] == "TopologyAffinityError"
    assert results[1]["message"] == "Resources cannot be allocated with Topology locality"


def test_one_bad_pod_of_a_file_admits_none(api: Api) -> None:
    bad = manifest("b")
    bad["spec"]["containers"][0]["name"] = "shared.pool"
    body = json.dumps(manifest("a")).encode() + b"\n---\n" + json.dumps(bad).encode()
    error = api.refusal("POST pods", body=body, source="x.yaml")
    assert error.status == 400
    assert 'x.yaml: document 2: $.spec.containers[0].name: "shared.pool" is not a DNS label' in error.message
    assert api.call("GET pods") == {"pods": []}


def test_two_pods_with_one_uid_in_a_file_are_refused(api: Api) -> None:
    body = json.dumps(manifest("a")).encode() + b"\n---\n" + json.dumps(manifest("b", uid="uid-a")).encode()
    error = api.refusal("POST pods", body=body, source="x.yaml")
    assert error.message == "x.yaml: document 2: $.metadata: pod default/b has the uid uid-a of document 1: $"


@pytest.mark.parametrize("body", [b"", b"---\n", b"# nothing\n"])
def test_a_file_without_pods_is_refused(api: Api, body: bytes) -> None:
    error = api.refusal("POST pods", body=body, source="x.yaml")
    assert (error.status, error.message) == (400, "x.yaml: holds no pod")


def test_a_pod_is_described_with_what_it_holds_why_and_what_the_kernel_has(api: Api) -> None:
    document = budgeted("team")
    document["spec"]["ephemeralContainers"] = [{"name": "debug"}]
    api.apply(document)
    pod = api.pod("team")
    assert (pod["state"], pod["qosClass"], pod["source"], pod["leaving"]) == (
        "Admitted",
        "Guaranteed",
        "api",
        False,
    )
    assert (pod["cpus"], pod["podSharedPool"]) == ("1-3", "3")
    assert pod["memory"] == [{"type": "memory", "size": 2 * GIB, "numaNodes": "0"}]
    main, helper = pod["containers"]
    assert (main["name"], main["kind"], main["isolation"], main["cpus"]) == (
        "main",
        "app",
        "container",
        "1-2",
    )
    assert main["memory"] == [{"type": "memory", "size": GIB, "numaNodes": "0"}]
    assert main["cgroup"] == "/sys/fs/cgroup/test/poduid-team/main"
    assert main["kernel"]["cpuset.cpus.effective"] == "1-2"
    assert (helper["isolation"], helper["cpus"]) == ("pod", "3")
    assert helper["cgroup"] == "/sys/fs/cgroup/test/poduid-team/shared.pool/helper"
    assert helper["kernel"]["cpuset.cpus.effective"] == "3"
    [debug] = pod["ephemeralContainers"]
    assert debug["cgroup"] == "/sys/fs/cgroup/test/poduid-team/debug"
    assert debug["kernel"]["cpuset.cpus.effective"] == "0,4-7"
    assert pod["trace"][0].startswith("QoS class Guaranteed")
    assert [event["kind"] for event in pod["events"]] == ["Admitted"]
    json.dumps(pod)


def test_a_refused_pod_is_described_with_reason_and_trace(api: Api) -> None:
    api.apply(manifest("big", cpu="64"))
    pod = api.pod("big")
    assert (pod["state"], pod["reason"], pod["containers"]) == ("Rejected", "TopologyAffinityError", [])
    assert any(line.startswith("refused, TopologyAffinityError") for line in pod["trace"])
    assert api.call("GET pods")["pods"][0]["message"] == pod["message"]


def test_pods_are_listed_admitted_ones_first(api: Api) -> None:
    api.apply(manifest("big", cpu="64"), manifest("a"), best_effort("b"))
    assert [(pod["name"], pod["state"]) for pod in api.call("GET pods")["pods"]] == [
        ("a", "Admitted"),
        ("b", "Admitted"),
        ("big", "Rejected"),
    ]


def test_every_cpu_has_its_owner(api: Api) -> None:
    api.apply(budgeted("team"), manifest("a"))
    cpus = api.call("GET cpus")["cpus"]
    assert [cpu["owner"] for cpu in cpus] == [
        "node shared pool",
        *["default/team/main"] * 2,
        "default/team (pod shared pool)",
        *["default/a/main"] * 2,
        *["node shared pool"] * 2,
    ]
    assert [cpu["id"] for cpu in cpus if cpu["reserved"]] == [0]
    assert cpus[5] == {
        "id": 5,
        "core": 5,
        "socket": 1,
        "numaNode": 1,
        "reserved": False,
        "owner": "default/a/main",
        "kind": "exclusive slice",
        "pod": "default/a",
        "container": "main",
    }
    assert [cpu["kind"] for cpu in cpus if cpu["id"] in {0, 1, 3}] == [
        "reserved",
        "exclusive slice",
        "pod shared pool",
    ]


def test_cpus_an_init_container_lent_belong_to_who_runs_now(api: Api) -> None:
    document = manifest("a")
    document["spec"]["initContainers"] = [{"name": "setup", "resources": limits("2", "64Mi")}]
    api.apply(document)
    owners = {cpu["owner"] for cpu in api.call("GET cpus")["cpus"]}
    assert owners == {"node shared pool", "default/a/main"}


def test_every_numa_node_has_its_pools_and_memory(api: Api) -> None:
    api.apply(manifest("a"))
    first, second = api.call("GET nodes")["numaNodes"]
    assert (first["cpus"], first["shared"], first["exclusive"], first["reserved"]) == (
        "0-3",
        "0,3",
        "1-2",
        "0",
    )
    assert (second["shared"], second["exclusive"], second["reserved"]) == ("4-7", "", "")
    memory = first["memory"]["memory"]
    assert (memory["total"], memory["systemReserved"]) == (4 * GIB, 100 << 20)
    assert (memory["reserved"], memory["free"]) == (GIB, 3 * GIB - (100 << 20))


def test_without_policies_every_cpu_is_shared() -> None:
    off = Config(
        cpu_policy=CpuPolicy.NONE, memory_policy=MemoryPolicy.NONE, topology_policy=TopologyPolicy.NONE
    )
    api = Api(Node(off, topology()).owner())
    api.apply(manifest("a"))
    assert api.call("GET status")["cpus"] == {"online": "0-7", "shared": "0-7", "exclusive": ""}
    assert api.call("GET nodes")["numaNodes"][0]["shared"] == "0-3"
    assert api.pod("a")["containers"][0]["cpus"] == "0-7"


def test_the_status_counts_and_complains(api: Api) -> None:
    api.apply(manifest("a"), manifest("big", cpu="64"))
    api.owner.manifest_problems(("x.yaml: malformed",))
    status = api.call("GET status")
    daemon, node = status.pop("daemon"), status.pop("node")
    assert daemon == {"version": __version__, "pid": os.getpid(), "since": "2026-01-01T00:00:01Z"}
    assert (node["numaNodes"], node["bootID"]) == (2, "boot")
    assert {"cpu", "cpuset", "memory"} <= set(node["controllers"])
    assert status == {
        "pods": 1,
        "succeeded": 0,
        "rejected": 1,
        "degraded": 0,
        "cpus": {"online": "0-7", "shared": "0,3-7", "exclusive": "1-2"},
        "hostIsolation": "none",
        "notices": [SHARED],
        "problems": ["x.yaml: malformed"],
        "pendingRestart": [],
        "remedies": ["correct the file: it is read again as soon as it changes"],
    }


def test_events_are_answered_from_a_number_on_and_of_one_pod(api: Api) -> None:
    api.apply(manifest("a"), manifest("big", cpu="64"))
    answer = api.call("GET events")
    assert [event["kind"] for event in answer["events"]] == ["Started", "Admitted", "Rejected"]
    assert answer["run"] == "2026-01-01T00:00:01Z"
    [event] = api.call("GET events", since="1", pod="default/a", wait="60")["events"]
    assert event == {
        "sequence": 2,
        "time": event["time"],
        "kind": "Admitted",
        "type": "Normal",
        "pod": "default/a",
        "text": event["text"],
    }
    assert event["text"].startswith("admitted pod default/a: main: cpu: exclusive slice, CPUs 1-2")
    assert api.call("GET events", since="3", wait="0.01")["events"] == []
    anew = api.call("GET events", since="3", wait="60", run="an earlier one")["events"]
    assert [event["sequence"] for event in anew] == [1, 2, 3]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"since": "-1"}, 'since: "-1" is not the number of an event'),
        ({"since": "new"}, 'since: "new" is not the number of an event'),
        ({"wait": "long"}, 'wait: "long" is not a number of seconds'),
    ],
)
def test_an_event_query_that_makes_no_sense_is_refused(api: Api, query: Json, message: str) -> None:
    error = api.refusal("GET events", **query)
    assert (error.status, error.message) == (400, message)


def test_delete_releases_and_forgets(api: Api) -> None:
    api.apply(manifest("a"), manifest("big", cpu="64"))
    for name in ("a", "big"):
        answer = api.call("DELETE pods", "default", name, grace="0")
        assert answer == {"pod": f"default/{name}", "uid": f"uid-{name}", "verdict": "deleted"}
    assert api.call("GET pods") == {"pods": []}


@pytest.mark.parametrize("route", ["GET pods", "DELETE pods"])
def test_an_unknown_pod_is_not_found_and_one_of_that_name_is_pointed_to(api: Api, route: str) -> None:
    api.apply(manifest("a", namespace="telco"))
    error = api.refusal(route, "default", "a")
    assert (error.status, error.message, error.hint) == (404, "no pod default/a", "there is telco/a")
    assert api.refusal(route, "default", "b").hint == "see: numalet get pods"


def test_a_pod_is_named_by_namespace_and_name(api: Api) -> None:
    for parts in (("a",), ("a", "b", "c")):
        assert api.refusal("DELETE pods", *parts).status == 404


@pytest.mark.parametrize("grace", ["soon", "-1", "nan", "inf"])
def test_a_grace_period_is_a_number_of_seconds(api: Api, grace: str) -> None:
    api.apply(manifest("a"))
    error = api.refusal("DELETE pods", "default", "a", grace=grace)
    assert (error.status, error.message) == (400, f'grace: "{grace}" is not a number of seconds')
    assert api.owner.find("default", "a") is not None


def test_a_pod_in_the_way_is_named(api: Api) -> None:
    api.owner.admit(parsed(manifest("a")), "file:a.yaml")
    [result] = api.apply(manifest("a", cpu="1"))
    assert (result["verdict"], result["reason"]) == ("rejected", "AlreadyExists")
    assert "from file:a.yaml" in result["message"]
    assert result["remedy"] == "first: numalet delete default/a"
    assert list(api.owner.snapshot().pods) == [PodUid("uid-a")]
