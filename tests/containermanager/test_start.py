"""Taking over what an earlier run, or another program, left on disk and in the kernel."""

from __future__ import annotations

import errno
import json
from dataclasses import replace

import pytest

from agent.cgroup.layout import CgroupDir
from agent.checkpoint.podrecord import decode_record, encode_record
from agent.checkpoint.store import CPU_FILE, MEMORY_FILE, StorageError
from agent.config.model import StateRecovery
from agent.domain.pod import PodUid
from agent.errors import HostError, StateError
from tests.containermanager.faults import NoCgroups, Unreadable
from tests.containermanager.node import (
    Node,
    admitted_names,
    best_effort,
    budgeted,
    fake_cgroups,
    parsed,
    pod,
    topology,
    unsound,
)


def populated() -> Node:
    node = Node()
    owner = node.owner()
    owner.admit(pod("old"), "api")
    owner.admit(parsed(budgeted("team")), "file:team.yaml")
    owner.admit(parsed(best_effort("guest")), "file:guest.yaml")
    return node


def test_a_first_start_writes_both_checkpoints_and_makes_the_tree() -> None:
    node = Node()
    owner = node.owner()
    assert sorted(node.store.files) == [CPU_FILE, MEMORY_FILE]
    assert unsound(node, owner) == []
    assert owner.snapshot().problems == ()


def test_a_restart_changes_nothing() -> None:
    node = populated()
    files, changes = dict(node.store.files), len(node.cgroups.log)
    owner = node.owner()
    assert node.store.files == files
    assert len(node.cgroups.log) == changes
    assert admitted_names(owner) == ["guest", "old", "team"]
    assert [entry.source for entry in owner.snapshot().pods.values()] == [
        "api",
        "file:team.yaml",
        "file:guest.yaml",
    ]
    assert owner.snapshot().problems == ()
    assert owner.sources() == {"api", "file:team.yaml", "file:guest.yaml"}


def test_a_reboot_is_noted_in_the_records_and_the_tree_is_made_anew() -> None:
    node = populated()
    fresh = Node(node.config, node.topology, node.store)
    owner = fresh.owner()
    assert admitted_names(owner) == ["guest", "old", "team"]
    assert unsound(fresh, owner) == []


@pytest.mark.parametrize("name", [CPU_FILE, MEMORY_FILE])
@pytest.mark.parametrize(
    "damage", [b"", b'{"policyName":"static","checksum":1}', b"\xff"], ids=["empty", "sum", "binary"]
)
def test_a_damaged_checkpoint_is_set_aside_and_rebuilt_from_the_records(name: str, damage: bytes) -> None:
    node = populated()
    before = node.owner().snapshot().state
    node.store.files[name] = damage
    owner = node.owner()
    assert owner.snapshot().state == before
    [problem] = owner.snapshot().problems
    assert problem.startswith(f"{name} could not be used: ")
    [aside] = [file for file in node.store.files if ".corrupt-" in file]
    assert problem.endswith(f"it was set aside as {aside}")
    assert node.store.files[aside] == damage
    assert unsound(node, owner) == []
    assert node.owner().snapshot().problems == ()


def test_missing_checkpoints_are_rebuilt_from_the_records() -> None:
    node = populated()
    before = node.owner().snapshot().state
    del node.store.files[CPU_FILE], node.store.files[MEMORY_FILE]
    owner = node.owner()
    assert owner.snapshot().state == before
    assert unsound(node, owner) == []


def test_a_sound_checkpoint_that_lacks_known_pods_does_not_move_them() -> None:
    node = Node()
    owner = node.owner()
    fresh = node.store.files[CPU_FILE]
    owner.admit(pod("first", cpu="1"), "api")
    owner.admit(pod("second", cpu="1"), "api")
    owner.remove(PodUid("uid-first"), 0)
    before = owner.snapshot().state
    node.store.files[CPU_FILE] = fresh
    again = node.owner()
    assert again.snapshot().state == before
    assert unsound(node, again) == []


def test_a_damaged_record_is_set_aside_and_what_its_pod_held_is_released() -> None:
    node = populated()
    node.store.files["pods/uid-old.json"] = b"{}"
    owner = node.owner()
    assert admitted_names(owner) == ["guest", "team"]
    assert "pods/uid-old.json could not be used" in owner.snapshot().problems[0]
    assert unsound(node, owner) == []
    assert node.owner().snapshot().problems == ()


def test_a_record_under_another_pods_name_is_set_aside() -> None:
    node = populated()
    node.store.files["pods/uid-copy.json"] = node.store.files["pods/uid-old.json"]
    owner = node.owner()
    assert "it is the record of pod uid uid-old" in owner.snapshot().problems[0]
    assert admitted_names(owner) == ["guest", "old", "team"]
    assert unsound(node, owner) == []


def test_a_record_whose_manifest_is_refused_now_is_kept_aside() -> None:
    node = populated()
    record = decode_record(node.store.files["pods/uid-old.json"])
    node.store.files["pods/uid-old.json"] = encode_record(replace(record, manifest={"kind": "Pod"}))
    owner = node.owner()
    assert admitted_names(owner) == ["guest", "team"]
    assert "the manifest of pod default/old is refused now" in owner.snapshot().problems[0]
    assert any(name.startswith("pods/uid-old.json.corrupt-") for name in node.store.files)
    assert unsound(node, owner) == []


def test_fields_of_a_newer_record_survive_a_rewrite() -> None:
    node = populated()
    record = decode_record(node.store.files["pods/uid-old.json"])
    newer = replace(record, minor=7, unknown={"colour": "red"}, boot_id="before")
    node.store.files["pods/uid-old.json"] = encode_record(newer)
    node.owner()
    stored = json.loads(node.store.files["pods/uid-old.json"])
    assert (stored["version"], stored["colour"], stored["bootID"]) == ("1.7", "red", "boot")


def test_a_foreign_file_among_the_records_is_left_alone_and_told() -> None:
    node = populated()
    node.store.files["pods/notes.txt"] = b"mine"
    owner = node.owner()
    assert owner.snapshot().problems == ("pods/notes.txt is not a pod record and was left alone",)
    assert node.store.files["pods/notes.txt"] == b"mine"


def test_strict_recovery_refuses_damage_again_and_again_and_touches_no_file() -> None:
    node = populated()
    node.store.files[MEMORY_FILE] = b"{"
    files = dict(node.store.files)
    for _ in range(2):
        with pytest.raises(StateError, match="memory_manager_state could not be used") as caught:
            node.owner(recovery=StateRecovery.STRICT)
        assert "stateRecovery: rebuild" in caught.value.hint
    assert node.store.files == files


def test_strict_recovery_heals_an_ordinary_crash() -> None:
    node = populated()
    node.store.remove("pods/uid-old.json")
    owner = node.owner(recovery=StateRecovery.STRICT)
    assert admitted_names(owner) == ["guest", "team"]
    assert unsound(node, owner) == []


def test_a_cgroup_that_cannot_be_written_is_no_reason_to_stay_down() -> None:
    node = populated()
    node.cgroups.write(CgroupDir("poduid-old/main"), "memory.max", "max")
    node.cgroups.fail(CgroupDir("poduid-old/main"), "memory.max", errno.EIO)
    owner = node.owner()
    assert owner.snapshot().failures
    assert admitted_names(owner) == ["guest", "old", "team"]
    node.cgroups.mend()
    owner.reconcile()
    assert owner.snapshot().failures == ()
    assert unsound(node, owner) == []


def test_a_host_without_cgroups_is_a_clear_error() -> None:
    node = Node(cgroups=NoCgroups(topology().online, fake_cgroups(topology()).nodes))
    with pytest.raises(HostError, match="no cgroup v2 here; nor there") as caught:
        node.owner()
    assert caught.value.hint == "boot anew; and again"
    assert node.store.files == {}


def test_a_disk_that_cannot_be_read_is_a_clear_error() -> None:
    node = Node(store=Unreadable())
    with pytest.raises(StorageError, match="cannot read cpu_manager_state: Input/output error"):
        node.owner()
