"""A state directory that cannot be written: nothing half done, the reason told, and mended by itself."""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.vm.node import Node, exclusive, is_alive, manifest, mixed, wait_until

pytestmark = pytest.mark.vm


def mount(stack: ExitStack, target: Path, *arguments: str) -> None:
    subprocess.run(["mount", *arguments, target], check=True)
    stack.callback(lambda: subprocess.run(["umount", "--lazy", target], check=True))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A daemon whose state lies on a file system of 128 KiB, with one pod."""
    with ExitStack() as stack:
        node = Node(tmp_path_factory.mktemp("node"), fileCheckFrequency="1s", cpuManagerReconcilePeriod="1s")
        stack.callback(node.close)
        node.state.mkdir()
        mount(stack, node.state, "-t", "tmpfs", "-o", "size=128k", "tmpfs")
        node.start()
        node.admit(mixed("first"))
        node.spawn("first", "main")
        yield node


def fill(ballast: Path) -> None:
    """Take all space there is."""
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1024))
        except OSError as error:
            assert error.errno == errno.ENOSPC  # noqa: PT017 - any other would be another test


def is_refused_without_a_trace(node: Node, why: str) -> None:
    """A pod is refused because of the disk, and everything is as it was before."""
    before = (node.files(), node.cgroups(), node.status()["cpus"])
    (verdict,) = node.apply(exclusive("second"))
    assert (verdict["verdict"], verdict["reason"]) == ("rejected", "StorageError")
    assert why in verdict["message"]
    assert str(node.state) in verdict["message"]
    assert verdict["remedy"]
    assert (node.files(), node.cgroups(), node.status()["cpus"]) == before
    # the daemon goes on trying to write, each time from the start: what it began must not stay
    wait_until(lambda: not list(node.state.rglob("*.tmp")), "no half-written file is left")
    status, text = node.page("/readyz")
    assert status == 503
    assert why in text
    assert node.page("/healthz")[0] == 200
    assert is_alive(node.processes[0].pid)


def is_admitted_again(node: Node) -> None:
    wait_until(lambda: node.page("/readyz") == (200, "ok\n"), "the daemon is ready again")
    assert node.admit(exclusive("second"))["state"] == "Admitted"
    assert node.page("/readyz") == (200, "ok\n")
    assert "pods/uid-second.json" in node.files()
    node.delete("second")


def test_a_full_disk_refuses_a_pod_and_leaves_no_trace(node: Node) -> None:
    fill(node.state / "ballast")
    is_refused_without_a_trace(node, "No space left on device")
    (node.manifests / "third.yaml").write_text(manifest(exclusive("third")))
    wait_until(lambda: node.pods().get("third", {}).get("state") == "Rejected", "the manifest is refused")
    (node.state / "ballast").unlink()
    wait_until(lambda: node.state_of("third") == "Admitted", "the manifest's pod is tried again")
    is_admitted_again(node)


def test_a_read_only_disk_refuses_a_pod_and_leaves_no_trace(node: Node) -> None:
    with ExitStack() as stack:
        mount(stack, node.state, "--bind", str(node.state))
        subprocess.run(["mount", "-o", "remount,bind,ro", node.state], check=True)
        is_refused_without_a_trace(node, "Read-only file system")
    is_admitted_again(node)
