"""A cgroup under the root of a pod that nobody knows: its processes live, outside every slice."""

from __future__ import annotations

import subprocess

import pytest

from agent.domain.idset import CpuSet
from tests.vm.node import Node, allowed, exclusive, pids_in, wait_until

pytestmark = pytest.mark.vm


def shared(node: Node) -> CpuSet:
    return CpuSet.parse(node.status()["cpus"]["shared"])


def test_processes_of_a_pod_nobody_knows_are_held_to_the_shared_pool_until_they_end(node: Node) -> None:
    cgroup = node.at("podnobodys")
    # An empty one goes at any moment.
    join = f"until echo $$ 2>/dev/null >{cgroup}/cgroup.procs; do mkdir -p {cgroup}; done; exec sleep 600"
    stray = subprocess.Popen(["sh", "-c", join])
    node.processes.append(stray)
    wait_until(lambda: bool(node.status()["problems"]), "the cgroup is told of")
    (told,) = node.status()["problems"]
    assert told.startswith("cgroup podnobodys: processes of a pod that is not known run here")
    held = CpuSet.parse(node.admit(exclusive("db", "4"))["containers"][0]["cpus"])
    assert pids_in(cgroup) == [stray.pid]
    assert allowed(stray.pid) == shared(node)
    assert allowed(stray.pid).isdisjoint(held)
    assert "numalet_unknown_pod_cgroups 1.0" in node.page("/metrics")[1]
    heir = exclusive("heir")
    heir["metadata"]["uid"] = "nobodys"
    (verdict,) = node.apply(heir)
    assert (verdict["verdict"], verdict["reason"]) == ("rejected", "UidInUse")
    assert "of uid nobodys run in podnobodys, which" in verdict["message"]
    assert allowed(stray.pid) == shared(node)
    stray.kill()
    stray.wait()
    wait_until(lambda: not cgroup.exists(), "the cgroup goes with its last process")
    wait_until(lambda: node.status()["problems"] == [], "nothing is told of it any more")
    assert node.admit(heir)["state"] == "Admitted"
