"""The web page and the picture of a real node."""

from __future__ import annotations

import re

import pytest

from agent.domain.idset import CpuSet
from tests.vm.node import Node, mixed, numalet

pytestmark = pytest.mark.vm


def held(drawing: str) -> CpuSet:
    """The CPUs that the pod holds in a drawing."""
    return CpuSet.of(map(int, re.findall(r'data-cpu="(\d+)" data-pod="default/web"', drawing)))


def test_the_page_and_the_picture_show_who_holds_what(node: Node) -> None:
    pod = node.admit(mixed("web"))
    status, page = node.page("/")
    assert (status, str(held(page))) == (200, pod["cpus"])
    drawn = numalet("topology", "--svg", "-", "--socket", node.client.path)
    assert (drawn.returncode, str(held(drawn.stdout)), drawn.stderr) == (0, pod["cpus"], "")
