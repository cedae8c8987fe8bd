"""Somebody else writes into our cgroups: it is put right, and told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.vm.node import Node, allowed, mixed, text_of, wait_until

pytestmark = pytest.mark.vm


@pytest.mark.parametrize(
    ("file", "text"),
    [
        pytest.param("main/cpuset.cpus", "1", id="an exclusive container's CPUs"),
        pytest.param("shared.pool/cpuset.cpus", "", id="a pool that would inherit"),
        pytest.param("main/cpu.max", "1000 100000", id="a quota"),
        pytest.param("main/memory.max", "max", id="a memory limit"),
    ],
)
def test_a_file_that_somebody_wrote_is_put_right(node: Node, file: str, text: str) -> None:
    node.admit(mixed("web"))
    process = node.spawn("web", "main")
    cpus, path = allowed(process.pid), node.root / "poduid-web" / file
    right, told = text_of(path), node.log.read_text().count("drifted")
    path.write_text(f"{text}\n")
    assert text_of(path) != right
    wait_until(lambda: text_of(path) == right, "it is put right", 15)
    wait_until(lambda: node.log.read_text().count("drifted") == told + 1, "it is told", 15)
    assert allowed(process.pid) == cpus


def test_a_cgroup_that_somebody_removed_is_made_again(node: Node) -> None:
    node.admit(mixed("web"))
    side = node.root / "poduid-web/shared.pool/side"
    side.rmdir()
    wait_until(side.exists, "it is made again", 15)
    wait_until(lambda: text_of(side / "memory.oom.group") == "1", "with its limits", 15)


def test_a_root_that_somebody_removed_is_made_again(node: Node) -> None:
    for directory in ("burstable", "besteffort", "."):
        Path(node.root, directory).rmdir()
    wait_until((node.root / "burstable").exists, "it is made again", 15)
    assert node.admit(mixed("web"))["state"] == "Admitted"
    assert node.page("/readyz") == (200, "ok\n")


def test_nothing_deviates_on_a_kernel_that_nobody_else_writes_to(node: Node) -> None:
    node.admit(mixed("web"))
    node.spawn("web", "main")
    assert node.client.call("GET", "/v1/deviations") == {"deviations": []}
