"""The picture in the documentation is what is drawn."""

from __future__ import annotations

from pathlib import Path

from agent.api.view import picture
from agent.domain.settings import Gates
from agent.drawing.svg import standalone
from agent.manifest import load_manifests
from tests.containermanager.node import Node, topology

DOCS = Path(__file__).parents[2] / "docs"


def example() -> str:
    """The pod of README's picture on its machine."""
    owner = Node(machine=topology(16, 2)).owner()
    (pod,) = load_manifests((DOCS / "examples/pod-scope-mixed.yaml").read_bytes(), "pod.yaml", Gates())
    owner.admit(pod, "api")
    return standalone(picture(owner.snapshot()), 760)


def test_the_picture_in_the_documentation_is_the_one_drawn_today() -> None:
    shown = (DOCS / "node.svg").read_text()
    assert shown == example(), "write what example() returns into docs/node.svg, after a look at it"
