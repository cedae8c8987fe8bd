"""`numalet top` with real work: what a container uses, and that a limit holds one back."""

from __future__ import annotations

import json

import pytest

from tests.vm.node import Json, Node, container, exclusive, numalet, pod, wait_until

pytestmark = pytest.mark.vm

SPIN = ("sh", "-c", "while :; do :; done")


def top(node: Node, what: str) -> list[Json]:
    done = numalet("top", what, "--interval", "2", "-o", "json", "--socket", node.client.path)
    assert done.returncode == 0, done.stderr
    shown: list[Json] = json.loads(done.stdout)[what]
    return shown


def test_a_busy_slice_is_busy_and_a_limited_container_is_throttled(node: Node) -> None:
    node.admit(exclusive("busy", cpus="1"))
    limits = {"requests": {"cpu": "10m"}, "limits": {"cpu": "50m", "memory": "64Mi"}}
    node.admit(pod("slow", container("main", limits)))
    node.spawn("busy", "main", *SPIN)
    node.spawn("slow", "main", *SPIN)
    (owner,) = {
        cpu["id"]
        for cpu in node.client.call("GET", "/v1/cpus")["cpus"]
        if cpu["owner"] == "default/busy/main"
    }
    used = node.cgroup("slow", "main") / "cpu.stat"
    wait_until(lambda: "nr_throttled 0\n" not in used.read_text(), "the limit has held it back")
    pods = {one["pod"]: one for one in top(node, "pods")}
    assert next(iter(pods)) == "default/busy"
    busy, slow = (pods[name]["containers"][0]["use"] for name in ("default/busy", "default/slow"))
    assert busy["processes"] == slow["processes"] == 1
    assert busy["throttled"] == 0
    assert slow["cpus"] < busy["cpus"]
    assert slow["throttled"] > 0
    assert slow["limit"] == 64 << 20
    (cpu,) = (one for one in top(node, "cpus") if one["id"] == owner)
    assert cpu["owner"] == "default/busy/main"
    assert cpu["use"]["user"] > 0
