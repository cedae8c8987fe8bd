"""Never an overlap: while exclusive pods come and go beside a crowd, no process is allowed on another's slice.

``NUMALET_SAMPLES`` makes it as long as one likes: ``NUMALET_SAMPLES=1000000 scripts/vm-lane -k overlap``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from agent.api.client import ControlError
from tests.vm import overlap
from tests.vm.node import (
    MOUNT,
    Json,
    Node,
    allowed,
    container,
    exclusive,
    mixed,
    pod,
    remove_cgroup,
    wait_until,
)

pytestmark = [pytest.mark.vm, pytest.mark.matrix]

SAMPLES: Final = int(os.environ.get("NUMALET_SAMPLES") or 3_000)
SLICES: Final = 6
"""So many have come and gone before it is enough."""
Sampler = subprocess.Popen[bytes]
SAMPLER: Final = (sys.executable, "-SE", overlap.__file__)
SLEEPERS: Final = "for i in 1 2 3 4 5; do sleep 3600 & done; wait"
FORKER: Final = "while :; do sleep 0.5 & wait; done"
SLOWLY: Final = {"requests": {"cpu": "100m"}, "limits": {"cpu": "200m"}}
"""Of emulated CPUs a whole one that spins takes half of what the node agent has to be quick with."""
SPINNER: Final = "while :; do :; done"


@pytest.fixture
def crowd(node: Node) -> None:
    """Sleep, spin and fork: in the node shared pool, as burstable and best effort, and in a pod of both kinds."""
    node.admit(pod("idle", container("sleep"), container("fork")))
    node.admit(pod("burst", container("sleep", {"requests": {"cpu": "250m"}}), container("spin", SLOWLY)))
    node.admit(mixed("keeper"))
    node.spawn("idle", "sleep", "sh", "-c", SLEEPERS)
    node.spawn("idle", "fork", "sh", "-c", FORKER)
    node.spawn("burst", "sleep", "sh", "-c", SLEEPERS)
    node.spawn("burst", "spin", "sh", "-c", SPINNER)
    node.spawn("keeper", "main", "sh", "-c", SLEEPERS)
    node.spawn("keeper", "side", "sh", "-c", FORKER)


def coming_and_going(node: Node, make: Callable[[str], Json], name: str, sampler: Sampler) -> int:
    """Admit, run something, delete, as fast as the node can, while it is sampled; how often."""
    admissions = 0
    try:
        while sampler.poll() is None:
            containers = node.admit(make(name))["containers"]
            admissions += 1
            for one in containers:
                node.spawn(name, one["name"], "sleep", "3600")
            wait_until(lambda: is_deleted(node, name), f"{name} is gone")
    except BaseException:
        sampler.kill()
        raise
    return admissions


def is_deleted(node: Node, name: str) -> bool:
    """Delete a pod; False where its processes have not died in time, which is to be tried again."""
    try:
        node.delete(name)
    except ControlError as error:
        if "do not die within" not in error.message:
            raise
        return False
    return True


@pytest.mark.usefixtures("crowd")
@pytest.mark.timeout(120 + SAMPLES // 20)
def test_no_process_is_ever_allowed_on_a_slice_of_another(
    node: Node, record_property: Callable[[str, Any], None]
) -> None:
    makers = (exclusive, mixed, lambda name: exclusive(name, "1"))
    with subprocess.Popen(
        [*SAMPLER, node.root, str(SAMPLES), str(SLICES)], stdout=subprocess.PIPE
    ) as sampler:
        try:
            with ThreadPoolExecutor(len(makers)) as pool:
                going = [
                    pool.submit(coming_and_going, node, make, f"p{i}", sampler)
                    for i, make in enumerate(makers)
                ]
            output = sampler.communicate()[0]
        finally:
            sampler.kill()
    admissions = sum(one.result() for one in going)
    counts = overlap.Counts(**json.loads(output))
    for name, number in {
        "samples": counts.samples,
        "rounds": counts.rounds,
        "slices": counts.slices,
        "admissions": admissions,
        "newborn processes that left a slice": counts.newborn,
        "violations": len(counts.violations),
    }.items():
        record_property(f"overlap: {name}", number)
    assert counts.violations == []
    assert counts.samples >= SAMPLES
    assert counts.slices >= SLICES


@pytest.fixture
def overlapping() -> Iterator[Path]:
    """What a node agent would make that starts a slice before the others have left it."""
    root = MOUNT / "numalet-overlap"
    slice_, shared = root / "poda/main", root / "besteffort/podb/shared.pool/main"
    with suppress(FileExistsError):
        root.mkdir()
    for leaf in (slice_, shared):
        leaf.mkdir(parents=True)
        for above in [*reversed(leaf.relative_to(root).parents)]:
            (root / above / "cgroup.subtree_control").write_text("+cpuset")
    (slice_ / "cpuset.cpus").write_text("1")
    yield root
    remove_cgroup(root)


def test_a_slice_that_others_have_not_left_is_seen(overlapping: Path) -> None:
    shared = overlapping / "besteffort/podb/shared.pool/main"
    with subprocess.Popen(["sleep", "60"]) as process:
        (shared / "cgroup.procs").write_text(str(process.pid))
        wait_until(lambda: 1 in allowed(process.pid), "it may run on the slice")
        assert len(overlap.sample(overlapping, 3).violations) == 3
        (shared / "cpuset.cpus").write_text("0")
        assert overlap.sample(overlapping, 3).violations == []
        process.kill()
