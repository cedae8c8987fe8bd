"""`numalet events`: once, and as a stream that outlives the daemon."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.api.routes import control_routes
from agent.api.server import ControlServer
from agent.cgroup.layout import CgroupDir
from agent.containermanager import ContainerManager
from tests.cli.command import Command, invoke
from tests.containermanager.node import Node, manifest, pod


@contextmanager
def serving(root: Path, owner: ContainerManager) -> Iterator[str]:
    server = ControlServer(root / "control.sock", control_routes(owner))
    server.start()
    try:
        yield str(server.path)
    finally:
        server.stop()


@contextmanager
def following(socket: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "agent", "events", "-f", "--socket", socket, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def complaint(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    return process.stderr.readline()


def test_what_happened_is_a_line_each(numalet: Command) -> None:
    numalet("apply", "-f", numalet.file("a.yaml", manifest("a"), manifest("big", cpu="64")))
    lines = numalet("events").out.splitlines()[-2:]
    assert re.search(r"  Admitted +admitted pod default/a: main: cpu: exclusive slice", lines[0])
    assert lines[1].endswith(
        "rejected pod default/big: TopologyAffinityError: Resources cannot be allocated with Topology locality"
    )


@pytest.mark.parametrize("command", [("events",), ("describe", "pod", "a"), ("status",)])
def test_the_column_of_kinds_is_as_wide_as_what_it_holds(command: tuple[str, ...], tmp_path: Path) -> None:
    node = Node()
    owner = node.owner()
    owner.admit(pod("a"), "api")
    main = CgroupDir("poduid-a/main")
    node.cgroups.add_process(main, node.cgroups.spawn())
    owner.containers.changed([main])
    with serving(tmp_path, owner) as socket:
        shown = invoke(*command, "--socket", socket).out
    assert "  Admitted          admitted pod default/a" in shown
    assert "  ContainerStarted  pod default/a: container main runs" in shown


def test_json_is_an_object_a_line_and_yaml_a_document_each(numalet: Command) -> None:
    numalet("apply", "-f", numalet.file("a.yaml", manifest("a")))
    shown = [json.loads(text) for text in numalet("events", "--pod", "a", "-o", "json").out.splitlines()]
    assert {event["pod"] for event in shown} == {"default/a"}
    assert shown[-1]["kind"] == "Admitted"
    yaml = numalet("events", "--pod", "default/a", "-o", "yaml").out
    assert yaml.count("---\nsequence: ") == len(shown)


def test_no_event_of_a_pod_nobody_knows(numalet: Command) -> None:
    result = numalet("events", "--pod", "telco/nobody")
    assert (result.status, result.out) == (0, "")


def test_without_a_daemon_following_does_not_wait_for_one(tmp_path: Path) -> None:
    result = invoke("events", "-f", "--socket", str(tmp_path / "none"))
    assert result.status == 3
    assert "no daemon answers on" in result.err


def test_a_stream_tells_each_event_once_and_goes_on_with_the_next_daemon(tmp_path: Path) -> None:
    node = Node()
    owner = node.owner()
    with serving(tmp_path, owner) as socket, following(socket, "-o", "json") as process:
        assert json.loads(line(process))["kind"] == "Started"
        owner.admit(pod("a"), "api")
        assert json.loads(line(process))["pod"] == "default/a"
        owner.manifest_problems(("x: bad",))
        assert json.loads(line(process))["text"] == "manifest: x: bad"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130


def test_a_daemon_that_went_away_is_waited_for_and_what_the_next_one_tells_follows(tmp_path: Path) -> None:
    node = Node()
    with subprocess.Popen(
        [sys.executable, "-c", _DAEMON, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "ready\n"
        with following(str(tmp_path / "control.sock"), "-o", "json") as process:
            assert json.loads(line(process))["text"] == "first"
            first.kill()
            first.wait()
            assert "waiting for it to come back" in complaint(process)
            (tmp_path / "control.sock").unlink()
            owner = node.owner()
            with serving(tmp_path, owner):
                assert "the daemon was started anew: its events follow" in complaint(process)
                assert json.loads(line(process))["text"] == owner.events.since(0)[0].text


_DAEMON = """
import sys, threading
from pathlib import Path
from agent.api.routes import control_routes
from agent.api.server import ControlServer
from agent.containermanager.events import EventKind
from tests.containermanager.node import Node
owner = Node().stopped_owner()
owner.events.add(EventKind.STARTED, "first")
owner.events.run = "an earlier run"
ControlServer(Path(sys.argv[1]) / "control.sock", control_routes(owner)).start()
print("ready", flush=True)
threading.Event().wait()
"""
