"""The daemon killed at every change of disk, cgroups, systemd and a bound cgroup: nothing is kept that is not held."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import count

import pytest

from agent.containermanager import ContainerManager
from agent.domain.pod import PodUid
from agent.systemdbus.properties import Properties
from tests.containermanager.boundhost import BoundHost
from tests.containermanager.faults import Died, Fuse, Mode, faulty_node
from tests.containermanager.node import Node, admitted_names, budgeted, parsed, unsound

DB = "db.service"
CONTAINER = "containers/helper"
UID = PodUid("uid-p")

Seen = tuple[Properties, dict[str, str]]


class FaultyHost(BoundHost):
    """Each property that is set counts on ``fuse``."""

    fuse: Fuse

    def set_properties(self, unit: str, properties: Properties) -> None:
        self.fuse.run(lambda: BoundHost.set_properties(self, unit, properties), ValueError())


def world() -> tuple[Node, Fuse]:
    node, fuse = faulty_node()
    host = FaultyHost(node.topology)
    host.fuse = fuse
    node.outside = host
    with_fuse(host, fuse)
    return node, fuse


def with_fuse(host: FaultyHost, fuse: Fuse) -> None:
    """A unit and a container run that had settings of their own."""
    host.start(DB, CPUWeight=300)
    place = host.make(CONTAINER)
    host.cgroups.write(place, "cpu.weight", "77")
    host.cgroups.add_process(place, host.cgroups.spawn())
    write = host.cgroups.write
    host.cgroups.write = lambda *where: fuse.run(lambda: write(*where), ValueError())  # type: ignore[method-assign]


def seen(node: Node) -> Seen:
    files = ("cpuset.cpus.effective", "cpuset.mems.effective", "cpu.max", "cpu.weight", "memory.max")
    place = node.outside.make(CONTAINER)
    return node.outside.properties(DB), {file: node.outside.cgroups.read(place, file) for file in files}


def admit(owner: ContainerManager) -> None:
    document = budgeted("p", cpu="4")
    document["metadata"]["annotations"] = {
        "numalet/unit.main": DB,
        "numalet/cgroup.helper": CONTAINER,
    }
    owner.admit(parsed(document), "file:p.yaml")


def remove(owner: ContainerManager) -> None:
    owner.remove(UID, 0)


@pytest.mark.parametrize(("before", "work"), [((), admit), ((admit,), remove)])
def test_the_next_start_binds_what_is_admitted_and_gives_back_the_rest(
    before: tuple[Callable[[ContainerManager], None], ...], work: Callable[[ContainerManager], None]
) -> None:
    for k in count():
        node, fuse = world()
        untouched = seen(node)
        owner = node.owner()
        for step in before:
            step(owner)
        fuse.arm(k, Mode.DIE)
        with suppress(Died):
            work(owner)
        done = fuse.count <= k
        fuse.disarm()
        owner = node.owner()
        assert owner.snapshot().failures == ()
        assert owner.snapshot().problems == ()
        assert unsound(node, owner) == []
        assert owner.deviations() == ()
        if admitted_names(owner):
            assert seen(node)[0]["AllowedCPUs"] == owner.snapshot().cpus(UID, "main")
            owner.remove(UID, 0)
        assert seen(node) == untouched, f"killed before change {k}"
        if done:
            assert k > 20, "changes were counted"
            return
