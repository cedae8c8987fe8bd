"""`numalet get` and `numalet describe`: every kind, as a table and as JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest

from agent.cgroup.layout import CgroupDir
from agent.cli.show import cpus_text, pod_text
from agent.manifest.problem import Problems
from agent.manifest.yamltext import read_yaml
from tests.cli.command import Command
from tests.containermanager.node import Node, best_effort, budgeted, manifest, topology


def cells(text: str) -> list[list[str]]:
    return [re.split(r" {2,}", line.strip()) for line in text.splitlines()]


@pytest.fixture
def filled(numalet: Command) -> Command:
    document = budgeted("team")
    document["spec"]["ephemeralContainers"] = [{"name": "debug"}]
    files = numalet.file("all.yaml", document, best_effort("guest"), manifest("big", cpu="64"))
    numalet("apply", "-f", files)
    return numalet


def test_no_pods(numalet: Command) -> None:
    assert numalet("get", "pods").out == "no pods\n"
    assert numalet("get", "pods", "-o", "json").json == {"pods": []}


def test_pods(filled: Command) -> None:
    assert cells(filled("get", "pods").out) == [
        ["POD", "STATE", "READY", "CONTAINER", "STATUS", "ISOLATION", "CPUS", "MEMORY"],
        [
            "default/team",
            "Admitted",
            "0/2",
            "main",
            "waiting",
            "container",
            "1-2",
            "memory 1.0 GiB on node 0",
        ],
        ["helper", "waiting", "pod", "3", "memory 1.0 GiB on node 0"],
        ["default/guest", "Admitted", "0/1", "main", "waiting", "host", "0,4-7", "-"],
        ["default/big", "Rejected", "-", "-", "-", "TopologyAffinityError", "-", "-"],
    ]


def test_cpus(filled: Command) -> None:
    assert cells(filled("get", "cpus").out) == [
        ["CPUS", "SOCKET", "NUMA NODE", "OWNER"],
        ["0", "0", "0", "node shared pool (reserved)"],
        ["1-2", "0", "0", "default/team/main"],
        ["3", "0", "0", "default/team (pod shared pool)"],
        ["4-7", "1", "1", "node shared pool"],
    ]


def test_cpus_that_are_not_online_are_not_in_a_span() -> None:
    cpu = {"socket": 0, "numaNode": 0, "owner": "node shared pool", "reserved": False}
    text = cpus_text({"cpus": [{"id": i, **cpu} for i in (0, 1, 3)]})
    assert cells(text)[1][0] == "0-1,3"


def test_nodes(filled: Command) -> None:
    assert cells(filled("get", "nodes").out) == [
        ["NUMA NODE", "SHARED CPUS", "EXCLUSIVE", "RESERVED", "MEMORY TYPE", "ALLOCATABLE", "HELD", "FREE"],
        ["0", "0", "1-3", "0", "memory", "3.9 GiB", "2.0 GiB", "1.9 GiB"],
        ["1", "4-7", "-", "-", "memory", "4.0 GiB", "0 MiB", "4.0 GiB"],
    ]


@pytest.fixture
def degraded(filled: Command) -> Iterator[Command]:
    """CPUs 2 and 3 of pod team are offline."""
    node = Node()
    filled.owner.hardware_changed(lambda: node.plug(topology(offline=frozenset({2, 3}))))
    yield filled
    filled.owner.hardware_changed(lambda: node.plug(topology()))


def test_a_degraded_pod_is_shown_as_such_with_the_reasons(degraded: Command) -> None:
    assert cells(degraded("get", "pods").out)[1:3] == [
        ["default/team", "Degraded", "0/2", "main", "waiting", "container", "1", "memory 1.0 GiB on node 0"],
        ["helper", "waiting", "pod", "0,4-7", "memory 1.0 GiB on node 0"],
    ]
    text = degraded("describe", "pod", "team").out
    assert "State      Degraded\nDegraded   CPUs 2-3 of its CPUs 1-3 are offline\n" in text
    assert "(shared pool of the pod: 3)" in text
    owners = {cpu["id"]: cpu["owner"] for cpu in degraded("get", "cpus", "-o", "json").json["cpus"]}
    assert owners == {1: "default/team/main"} | dict.fromkeys((0, 4, 5, 6, 7), "node shared pool")
    [pod, *_] = degraded("get", "pods", "-o", "json").json["pods"]
    assert (pod["state"], len(pod["degraded"])) == ("Admitted", 2)


def test_the_status_says_how_many_and_what_is_wrong(degraded: Command) -> None:
    status = degraded("get", "status")
    assert status.out.splitlines()[:2] == [
        "Pods       2 admitted, 1 of them degraded, 1 rejected",
        "CPUs       0-1,4-7 online, 0,4-7 shared, 1 exclusive",
    ]
    [problem] = degraded("get", "status", "-o", "json").json["problems"]
    assert problem.startswith("pod default/team is degraded: CPUs 2-3 of its CPUs 1-3 are offline")
    isolation, notice, last = status.out.splitlines()[2:]
    assert isolation == "Isolation  none"
    assert notice.startswith("Notice     hostIsolation is none")
    assert last == f"Problem    {problem}"


@pytest.mark.parametrize(
    ("what", "key", "count"), [("pods", "pods", 3), ("cpus", "cpus", 8), ("nodes", "numaNodes", 2)]
)
def test_everything_is_there_as_json(filled: Command, what: str, key: str, count: int) -> None:
    assert len(filled("get", what, "-o", "json").json[key]) == count


def test_a_pod_is_described_as_a_whole(filled: Command) -> None:
    text = filled("describe", "pod", "team").out
    for line in (
        "Pod        default/team",
        "Uid        uid-team",
        "QoS class  Guaranteed",
        "Source     api",
        "State      Admitted",
        "CPUs       1-3 (shared pool of the pod: 3)",
        "Container  main (app, isolation container)",
        "  cgroup                 /sys/fs/cgroup/test/poduid-team/main",
        "Pod cgroup /sys/fs/cgroup/test/poduid-team",
        "Container  debug (ephemeral)",
        "Events",
        "Why",
    ):
        assert line in text.splitlines()
    assert ["cpuset.cpus", "1-2", "1-2", "1-2", "as wanted"] in cells(text)
    assert re.search(r"^  2026-01-01 \S+  Admitted +admitted pod default/team: ", text, re.MULTILINE)


def test_what_the_kernel_has_otherwise_than_wanted_is_marked(filled: Command) -> None:
    backend = filled.owner._enforcer._cgroups
    directory = CgroupDir("poduid-team/main")
    backend.write(directory, "cpuset.cpus", "1,7")
    text = filled("describe", "pod", "team").out
    filled.owner.reconcile()
    assert ["cpuset.cpus", "1-2", "1,7", "1,7", "NOT AS WANTED"] in cells(text)
    assert "NOT AS WANTED" not in filled("describe", "pod", "team").out


def test_huge_pages_a_pod_has_none_of_are_one_line(filled: Command) -> None:
    pod = filled("describe", "pod", "team", "-o", "json").json
    limits = ("hugetlb.2MB.max", "hugetlb.2MB.rsvd.max", "hugetlb.1GB.max")
    none = {"wanted": "0", "actual": "0", "effective": "", "met": True}
    some = {"wanted": "2097152", "actual": "2097152", "effective": "", "met": True}
    broken = {**none, "actual": "max", "met": False}
    pod["containers"] = pod["ephemeralContainers"] = []
    pod["settings"] = [{"file": name, **none} for name in limits]
    pod["settings"] += [{"file": "hugetlb.64KB.max", **some}, {"file": "hugetlb.32MB.max", **broken}]
    told = [row for row in cells(click.unstyle(pod_text(pod))) if row[0].startswith("hugetlb.")]
    assert told == [
        ["hugetlb.*.max", "0", "0", "-", "as wanted"],
        ["hugetlb.64KB.max", "2097152", "2097152", "-", "as wanted"],
        ["hugetlb.32MB.max", "0", "max", "-", "NOT AS WANTED"],
    ]


def test_names_are_for_scripts(filled: Command) -> None:
    names = ["default/team", "default/guest", "default/big"]
    assert filled("get", "pods", "-o", "name").out.splitlines() == names
    assert filled("get", "nodes", "-o", "name").out == "0\n1\n"
    assert filled("get", "cpus", "-o", "name").out.split() == list("01234567")
    refused = filled("get", "status", "-o", "name")
    assert (refused.status, refused.out) == (2, "")


def test_wide_tells_more_of_each_pod_cpu_and_node(filled: Command) -> None:
    first, second, *_, big = cells(filled("get", "pods", "-o", "wide").out)[1:]
    assert first[:3] == ["default/team", "Admitted", "Guaranteed"]
    assert first[4:9] == ["api", "main", "app", "waiting", "container"]
    assert second[-1] == "/sys/fs/cgroup/test/poduid-team/shared.pool/helper"
    assert "TopologyAffinityError: Resources cannot be allocated with Topology locality" in big
    assert cells(filled("get", "cpus", "-o", "wide").out)[1:3] == [
        ["0", "0", "0", "0", "reserved", "node shared pool"],
        ["1", "1", "0", "0", "-", "default/team/main"],
    ]
    assert cells(filled("get", "nodes", "-o", "wide").out)[-2][:3] == ["0", "0-3", "3"]


@pytest.mark.parametrize("command", [("get", "pods"), ("get", "nodes"), ("describe", "pod", "team")])
def test_yaml_says_what_json_says(filled: Command, command: tuple[str, ...]) -> None:
    told = filled(*command, "-o", "yaml").out
    problems = Problems("shown")
    assert read_yaml(told.encode(), problems) == read_yaml(
        filled(*command, "-o", "json").out.encode(), problems
    )
    assert not problems.found
    assert told.startswith(("pods:\n", "numaNodes:\n", "namespace: default\n"))


def test_a_refused_pod_is_described_with_its_reason(filled: Command) -> None:
    text = filled("describe", "pod", "big").out
    assert "Reason     TopologyAffinityError\n" in text
    assert "Message    Resources cannot be allocated with Topology locality\n" in text
    assert "  refused, TopologyAffinityError: " in text


def test_a_pod_is_described_as_json(filled: Command) -> None:
    assert filled("describe", "pod", "default/team", "-o", "json").json["uid"] == "uid-team"
    assert filled("describe", "pod", "big", "-o", "json").json["reason"] == "TopologyAffinityError"


@pytest.mark.parametrize("arguments", [("get", "everything"), ("get",), ("describe", "node", "0")])
def test_wrong_use_has_its_own_exit_status(numalet: Command, arguments: tuple[str, ...]) -> None:
    result = numalet(*arguments)
    assert (result.status, result.out) == (2, "")
    assert "Usage: numalet" in result.err
