"""`numalet status`: one screen, and an exit status for scripts."""

from __future__ import annotations

import os
from collections.abc import Iterator

import click
import pytest

from agent import __version__
from agent.cli.status import screen
from agent.errors import HostError
from tests.cli.command import Command, invoke
from tests.containermanager.node import Node, budgeted, manifest, topology


@pytest.fixture
def filled(numalet: Command) -> Command:
    numalet("apply", "-f", numalet.file("all.yaml", budgeted("team"), manifest("big", cpu="64")))
    return numalet


@pytest.fixture
def degraded(filled: Command) -> Iterator[Command]:
    node = Node()
    filled.owner.hardware_changed(lambda: node.plug(topology(offline=frozenset({2}))))
    yield filled
    filled.owner.hardware_changed(lambda: node.plug(topology()))


def test_a_healthy_node_on_one_screen(filled: Command) -> None:
    result = filled("status")
    lines = result.out.splitlines()
    assert result.status == 0
    assert lines[0] == f"Node       {os.uname().nodename}: healthy"
    assert lines[1].startswith("Machine    8 CPUs (0-7) on 2 NUMA nodes; Linux ")
    assert lines[2].startswith("Kernel     cgroup v2 with cpu, cpuset, ")
    assert lines[3].startswith(f"Daemon     numalet {__version__}, pid {os.getpid()}, since 2026-01-01 ")
    assert lines[4] == "Isolation  none"
    assert lines[5].startswith("Notice     hostIsolation is none: host processes ")
    assert any(line.startswith("node 0     [RXXP") for line in lines)
    assert any(line.endswith("]  memory 2.0 GiB of 3.9 GiB held") for line in lines)
    assert "Pods       1 admitted, 0 degraded, 1 rejected" in lines
    refused = lines.index(
        "  Rejected default/big: TopologyAffinityError: Resources cannot be allocated with Topology locality"
    )
    assert lines[refused + 1].startswith("    64 CPUs wanted")
    assert any(
        line.endswith("locality") and "Rejected " in line for line in lines[lines.index("Last events") :]
    )
    assert result.out.isascii()
    assert "\x1b" not in result.out


def test_huge_pages_of_a_size_a_node_has_none_of_are_not_told(filled: Command) -> None:
    answer = filled("status", "-o", "json").json
    for node, pages in zip(answer["numaNodes"], (0, 1 << 30), strict=True):
        node["memory"]["hugepages-1Gi"] = {**node["memory"]["memory"], "reserved": 0, "allocatable": pages}
    told = [line for line in screen(answer, None).splitlines() if "hugepages" in line]
    assert len(told) == 1
    assert told[0].endswith("]  hugepages-1Gi 0 MiB of 1.0 GiB held")


def test_a_problem_is_told_with_the_way_out_and_by_the_exit_status(degraded: Command) -> None:
    result = degraded("status")
    lines = result.out.splitlines()
    assert result.status == 1
    assert lines[0].endswith(": 1 to look at")
    [problem] = (n for n, line in enumerate(lines) if line.startswith("Problem    "))
    assert lines[problem].startswith("Problem    pod default/team is degraded: ")
    assert "numalet delete default/team" in lines[problem + 1]
    assert degraded("status", "-o", "json").status == 1


def test_a_machine_that_cannot_be_looked_at_is_a_problem_not_an_error(filled: Command) -> None:
    def broken() -> object:
        raise HostError("no topology today")

    node = Node()
    filled.owner.hardware_changed(broken)  # type: ignore[arg-type]  # it never returns
    result = filled("status")
    filled.owner.hardware_changed(lambda: node.machine)
    assert result.status == 1
    assert (
        "Problem    DiscoveryError: the machine changed and cannot be used as it is: no topology today"
        in result.out
    )
    assert "looked at again every reconcile period" in result.out
    assert "\nnode 0 " not in result.out


def test_everything_is_there_as_json_and_yaml(filled: Command) -> None:
    answer = filled("status", "-o", "json").json
    assert answer.keys() == {"host", "kernel", "status", "numaNodes", "pods", "events"}
    assert answer["status"]["problems"] == answer["status"]["remedies"] == []
    assert answer["numaNodes"][0]["podShared"] == "3"
    assert filled("status", "-o", "yaml").out.startswith(f"host: {os.uname().nodename}\n")


def test_many_refused_pods_are_counted_not_listed(numalet: Command) -> None:
    pods = [manifest(f"big-{n}", cpu="64") for n in range(8)]
    numalet("apply", "-f", numalet.file("all.yaml", *pods))
    out = numalet("status").out
    assert out.count("  Rejected default/big-") == 5
    assert "  and 3 more: numalet get pods" in out


def test_a_terminal_is_drawn_on_with_more_than_ascii(filled: Command) -> None:
    answer = filled("status", "-o", "json").json
    drawn = screen(answer, 60)
    assert "▓" in drawn
    assert "\x1b[32mhealthy\x1b[0m" in drawn
    events = click.unstyle(drawn.split("Last events")[1]).splitlines()
    assert max(map(len, events)) == 60
    assert events[-1].endswith("…")


def test_no_daemon_has_its_exit_status(tmp_path: object) -> None:
    assert invoke("status", "--socket", f"{tmp_path}/none").status == 3
