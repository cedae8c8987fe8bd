"""`numalet gather` on a real node, and the node in its bundle asked afterwards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.bundle.archive import unpack
from tests.vm.node import Node, exclusive, manifest, numalet

pytestmark = pytest.mark.vm


def test_a_gathered_node_has_its_cgroups_and_decides_elsewhere_as_the_daemon_does(
    node: Node, tmp_path: Path
) -> None:
    node.admit(exclusive("held", cpus="1"))
    worker = node.spawn("held", "main")
    bundle, pod = tmp_path / "node.tar.gz", tmp_path / "new.yaml"
    pod.write_text(manifest(exclusive("new", cpus="1")))
    numalet("gather", bundle, "--socket", node.client.path).check_returncode()
    files = unpack(bundle)
    place = str(node.cgroup("held", "main").relative_to(node.root))
    cgroup = json.loads(files["cgroups.json"])["cgroups"][place]
    own = node.pod("held")["containers"][0]["cpus"]
    assert cgroup["cpuset.cpus.effective"] == own
    assert json.loads(files["processes.json"])[place][str(worker.pid)]["Cpus_allowed_list"] == own
    assert "cpuset" in json.loads(files["cgroups-above.json"])["/sys/fs/cgroup"]["cgroup.controllers"]
    told = json.loads(numalet("explain", "--bundle", bundle, "-f", pod, "-o", "json").stdout)
    assert (
        told["pods"][0]["containers"][0]["cpus"]
        == node.admit(exclusive("new", cpus="1"))["containers"][0]["cpus"]
    )
