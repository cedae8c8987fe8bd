"""Reading Pod manifests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from agent.domain.settings import Gates
from agent.manifest import load_manifests
from scripts.bench.registry import benchmark

_EXAMPLE = Path(__file__).parents[2] / "docs/examples/container-scope-mixed.yaml"
_MORE = b"".join(
    b"    - {name: extra-%d, image: busybox, command: [sleep, infinity]}\n" % i for i in range(25)
)


@benchmark(aim=3)
def fifty_lines() -> Callable[[], object]:
    """A manifest of 50 lines, 28 containers."""
    text = _EXAMPLE.read_bytes() + _MORE
    return lambda: load_manifests(text, "bench.yaml", Gates())
