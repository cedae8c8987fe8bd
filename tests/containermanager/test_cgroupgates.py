"""Where the pods' cgroups are, by ``cgroupDriver`` and ``cgroupRoot``, and that no pod is left behind elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.cgroup.backend import CgroupBackend
from agent.cgroup.cgroupfs import CgroupFs
from agent.cgroup.layout import ROOT, CgroupDir
from agent.cgroup.naming import PLAIN, SliceNames
from agent.cgroup.slices import SystemdCgroups
from agent.checkpoint.store import CGROUPS_FILE, MemoryStore
from agent.config import Config
from agent.config.model import CgroupDriver
from agent.containermanager import ContainerManager
from agent.containermanager.cgroupgates import Place, cgroups_at, move_in, names_at
from agent.domain.pod import PodUid
from agent.errors import ConfigError, HostError, StateError
from agent.systemdbus.fake import FakeSystemd
from tests.containermanager.node import Node, best_effort, manifest, parsed

PLAIN_PLACE = Place(CgroupDriver.CGROUPFS, "/sys/fs/cgroup/numalet")
SLICE_PLACE = Place(CgroupDriver.SYSTEMD, "/sys/fs/cgroup/numalet.slice")
NAMES = SliceNames("numalet.slice")


@pytest.fixture
def mount(tmp_path: Path) -> Path:
    (tmp_path / "cgroup.controllers").write_text("cpu cpuset memory\n")
    return tmp_path


def nowhere(place: Place) -> CgroupBackend:
    raise AssertionError(f"{place} is looked at")


def test_the_driver_decides_who_makes_the_cgroups(mount: Path) -> None:
    assert Place.of(Config()) == PLAIN_PLACE
    assert PLAIN_PLACE.names is PLAIN
    assert SLICE_PLACE.names == NAMES
    assert isinstance(cgroups_at(Place(CgroupDriver.CGROUPFS, str(mount / "a/b"))), CgroupFs)
    assert isinstance(cgroups_at(Place(CgroupDriver.SYSTEMD, str(mount / "b.slice"))), SystemdCgroups)


@pytest.mark.parametrize("root", ["a/b.slice", "a-b.slice", "b"])
def test_what_systemd_would_make_elsewhere_is_refused(mount: Path, root: str) -> None:
    with pytest.raises(ConfigError, match=rf"^\$\.cgroupRoot: .*/{root} is no slice right below") as caught:
        cgroups_at(Place(CgroupDriver.SYSTEMD, str(mount / root)))
    assert "numalet.slice" in caught.value.hint


def test_the_place_is_remembered_and_only_another_one_is_looked_at() -> None:
    store = MemoryStore()
    move_in(store, PLAIN_PLACE, nowhere)
    assert CGROUPS_FILE in store.files
    move_in(store, PLAIN_PLACE, nowhere)
    with pytest.raises(AssertionError, match="is looked at"):
        move_in(store, SLICE_PLACE, nowhere)


def test_without_a_daemon_the_names_of_its_cgroups_are_known() -> None:
    store = MemoryStore()
    assert names_at(store, Path(SLICE_PLACE.root)) is PLAIN
    move_in(store, SLICE_PLACE, nowhere)
    assert names_at(store, Path(SLICE_PLACE.root)) == NAMES
    assert names_at(store, Path("/sys/fs/cgroup/other")) is PLAIN


@pytest.mark.parametrize(
    ("place", "key"),
    [
        pytest.param(SLICE_PLACE, "$.cgroupDriver", id="driver"),
        pytest.param(Place(CgroupDriver.CGROUPFS, "/sys/fs/cgroup/other"), "$.cgroupRoot", id="root"),
    ],
)
def test_another_place_is_refused_while_pods_run_and_what_they_left_is_removed_after(
    place: Place, key: str
) -> None:
    node = Node()
    move_in(node.store, PLAIN_PLACE, nowhere)
    owner = node.owner()
    for document in (manifest("a"), best_effort("b")):
        owner.admit(parsed(document), "api")
    main = CgroupDir("poduid-a/main")
    pid = node.cgroups.spawn()
    node.cgroups.add_process(main, pid)
    with pytest.raises(HostError) as caught:
        move_in(node.store, place, lambda _: node.cgroups)
    assert caught.value.message.startswith(f"{key}: pods still run in /sys/fs/cgroup/numalet")
    assert "uid-a" in caught.value.message
    assert "uid-b" not in caught.value.message, "it has no process"
    assert "cgroupDriver: cgroupfs" in caught.value.hint
    assert "delete the pods" in caught.value.hint
    assert node.cgroups.exists(main)
    node.cgroups.exit(pid)
    move_in(node.store, place, lambda _: node.cgroups)
    assert list(node.cgroups.observe().dirs) == [ROOT]
    move_in(node.store, place, nowhere)


@pytest.mark.parametrize("raw", [b"{", b"[]", b"{}", b'{"cgroupDriver": "openrc", "cgroupRoot": "/x"}'])
def test_a_record_that_is_none_names_the_way_out(raw: bytes) -> None:
    store = MemoryStore()
    store.write(CGROUPS_FILE, raw)
    with pytest.raises(StateError, match=CGROUPS_FILE) as caught:
        move_in(store, PLAIN_PLACE, nowhere)
    assert "remove" in caught.value.hint


def test_pods_live_and_end_as_units_of_systemd_over_a_crash_of_the_daemon() -> None:
    node, systemd = Node(), FakeSystemd()

    def units() -> list[str]:
        return [unit.name for unit in systemd.units(["numalet*"])]

    def started() -> ContainerManager:
        node.backend = SystemdCgroups(node.cgroups, systemd, NAMES)
        return node.owner()

    owner = started()
    for document in (manifest("a"), best_effort("b-1")):
        owner.admit(parsed(document), "api")
    made = units()
    assert {
        "numalet-poduid_a.slice",
        "numalet-poduid_a-main.slice",
        "numalet-besteffort-poduid_b_1-shared.pool-main.slice",
    } <= set(made)
    node.cgroups.log.clear()
    owner = started()
    assert node.cgroups.log == []
    assert units() == made
    assert owner.deviations() == ()
    for name in ("a", "b-1"):
        owner.remove(PodUid(f"uid-{name}"), None)
    assert units() == ["numalet-besteffort.slice", "numalet-burstable.slice", "numalet.slice"]
