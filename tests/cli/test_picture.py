"""`numalet topology --svg` and ``--text``."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from agent.api.routes import control_routes
from agent.api.view import picture
from agent.cli.picture import held_picture
from agent.containermanager import ContainerManager
from tests.cli.command import Command, invoke
from tests.containermanager.node import Node, budgeted, manifest, parsed, topology
from tests.sysfs.machines import FOLDER

LAPTOP = str(FOLDER / "intel-hybrid-laptop.json.xz")


def test_a_recorded_machine_is_drawn_into_a_file_or_to_standard_output(tmp_path: Path) -> None:
    file = tmp_path / "laptop.svg"
    assert invoke("topology", "--machine", LAPTOP, "--svg", str(file)).out == ""
    printed = invoke("topology", "--machine", LAPTOP, "--svg", "-")
    assert printed.out == file.read_text()
    root = ElementTree.fromstring(printed.out)  # noqa: S314 - our own
    assert sum("data-cpu" in element.attrib for element in root.iter()) == 16


def test_text_that_no_terminal_reads_is_ascii() -> None:
    result = invoke("topology", "--machine", LAPTOP, "--text")
    assert (result.status, result.err) == (0, "")
    assert "NUMA node 0" in result.out
    assert result.out.isascii()


def test_without_a_daemon_the_machine_is_drawn_bare_and_it_says_so(tmp_path: Path) -> None:
    socket = str(tmp_path / "none.sock")
    result = invoke("topology", "--text", "--socket", socket)
    assert result.status == 0
    assert result.err == f"numalet: no daemon answers on {socket}: the bare machine is drawn\n"
    assert "online: " in result.out


def test_with_a_daemon_its_allocations_are_drawn(numalet: Command) -> None:
    result = numalet("topology", "--text")
    assert (result.status, result.err) == (0, "")
    assert "= reserved: 0" in result.out


def test_what_the_daemon_says_makes_the_picture_it_would_draw_itself() -> None:
    owner = Node().owner()
    for document in (budgeted("team"), manifest("solo")):
        owner.admit(parsed(document), "api")
    snapshot = owner.snapshot()
    cpus, nodes = (answer(owner, f"GET {what}") for what in ("cpus", "nodes"))
    assert held_picture(topology(), cpus, nodes) == picture(snapshot)


def answer(owner: ContainerManager, route: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(json.dumps(control_routes(owner)[route]((), {}, b"")))
    return found


def test_a_cpu_that_went_meanwhile_is_left_out() -> None:
    owner = Node().owner()
    smaller = topology(offline=frozenset({7}))
    drawn = held_picture(smaller, answer(owner, "GET cpus"), answer(owner, "GET nodes"))
    assert sorted(drawn.holders) == list(smaller.online)


@pytest.mark.parametrize(
    "options", [("--svg", "-", "--text"), ("--svg", "-", "-o", "json"), ("--text", "-o", "json")]
)
def test_one_form_at_a_time(options: tuple[str, ...]) -> None:
    result = invoke("topology", "--machine", LAPTOP, *options)
    assert result.status == 2
    assert "--svg, --text and -o json exclude each other" in result.err


def test_a_file_that_cannot_be_written_is_named() -> None:
    result = invoke("topology", "--machine", LAPTOP, "--svg", "/nowhere/x.svg")
    assert (result.status, result.err) == (2, "numalet: /nowhere/x.svg: No such file or directory\n")
