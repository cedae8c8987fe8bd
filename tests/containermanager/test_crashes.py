"""A crash or a failure at every single change of disk or kernel, in admission, removal and start.

After each: nothing acknowledged is lost, nothing leaks, and disk, kernel and state agree again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from agent.cgroup.layout import CgroupDir
from agent.containermanager import ContainerManager, VerdictKind
from agent.domain.pod import PodUid
from agent.errors import HostError, StateError
from tests.containermanager.faults import Died, Fuse, Mode, faulty_node
from tests.containermanager.node import Node, admitted_names, budgeted, parsed, pod, unsound

Work = Callable[[ContainerManager], object]

FAILURES = [mode for mode in Mode if mode is not Mode.DIE]


def settled_node() -> tuple[Node, Fuse, ContainerManager]:
    """Two pods: `old` of one container, `team` with pod-level resources and a process."""
    node, fuse = faulty_node()
    owner = node.owner()
    owner.admit(pod("old"), "api")
    owner.admit(parsed(budgeted("team")), "file:team.yaml")
    node.cgroups.add_process(CgroupDir("poduid-team/main"), node.cgroups.spawn())
    return node, fuse, owner


def admit_new(owner: ContainerManager) -> object:
    return owner.admit(pod("new", cpu="1"), "api")


def remove_team(owner: ContainerManager) -> None:
    owner.remove(PodUid("uid-team"), 0)


def changes_of(work: Work) -> int:
    """How many changes the work makes when nothing fails."""
    _, fuse, owner = settled_node()
    fuse.count = 0
    work(owner)
    assert fuse.count
    return fuse.count


def test_a_crash_at_any_point_of_an_admission_heals_at_the_next_start() -> None:
    for k in range(changes_of(admit_new)):
        node, fuse, owner = settled_node()
        fuse.arm(k, Mode.DIE)
        with pytest.raises(Died):
            admit_new(owner)
        fuse.disarm()
        again = node.owner()
        assert unsound(node, again) == [], k
        assert {"old", "team"} <= set(admitted_names(again)), k
        assert again.snapshot().problems == (), k
        assert again.admit(pod("new", cpu="1"), "api").kind is not VerdictKind.REJECTED, k
        assert unsound(node, again) == [], k


def test_a_crash_at_any_point_of_a_removal_heals_at_the_next_start() -> None:
    for k in range(changes_of(remove_team)):
        node, fuse, owner = settled_node()
        fuse.arm(k, Mode.DIE)
        with pytest.raises(Died):
            remove_team(owner)
        fuse.disarm()
        again = node.owner()
        assert unsound(node, again) == [], k
        assert "old" in admitted_names(again), k
        remove_team(again)
        assert admitted_names(again) == ["old"], k
        assert unsound(node, again) == [], k


@pytest.mark.parametrize("mode", FAILURES, ids=lambda mode: mode.value)
def test_a_failure_at_any_point_of_an_admission_undoes_all_of_it(mode: Mode) -> None:
    for k in range(changes_of(admit_new)):
        node, fuse, owner = settled_node()
        before = owner.snapshot()
        fuse.arm(k, mode)
        verdict = owner.admit(pod("new", cpu="1"), "api")
        assert verdict.kind is VerdictKind.REJECTED, k
        assert verdict.reason in {"StorageError", "EnforcementError"}, k
        assert owner.snapshot().state == before.state, k
        assert owner.snapshot().failures, k
        fuse.disarm()
        owner.reconcile()
        assert unsound(node, owner) == [], k
        assert owner.snapshot().failures == (), k
        again = node.owner()
        assert admitted_names(again) == ["old", "team"], k
        assert unsound(node, again) == [], k
        assert again.admit(pod("new", cpu="1"), "api").kind is VerdictKind.ADMITTED, k


@pytest.mark.parametrize("mode", FAILURES, ids=lambda mode: mode.value)
def test_a_failure_at_any_point_of_a_removal_leaves_the_pod_removable_or_gone(mode: Mode) -> None:
    for k in range(changes_of(remove_team)):
        node, fuse, owner = settled_node()
        fuse.arm(k, mode)
        kept = False
        try:
            remove_team(owner)
        except (StateError, HostError):
            kept = True
        assert ("team" in admitted_names(owner)) is kept, k
        fuse.disarm()
        owner.reconcile()
        assert unsound(node, owner) == [], k
        again = node.owner()
        assert ("team" in admitted_names(again)) is kept, k
        with suppress(StateError):
            remove_team(again)
        assert admitted_names(again) == ["old"], k
        assert unsound(node, again) == [], k


def dirty_node() -> tuple[Node, Fuse]:
    """Entries of an unacknowledged pod, a leftover cgroup, and a record whose pod lost its memory file."""
    node, fuse, owner = settled_node()
    owner.admit(pod("ghost", cpu="1"), "api")
    node.store.remove("pods/uid-ghost.json")
    node.store.files["memory_manager_state"] += b"}"
    node.cgroups.make(CgroupDir("podleft"))
    return node, fuse


def changes_of_start() -> int:
    node, fuse = dirty_node()
    fuse.count = 0
    node.owner()
    return fuse.count


def test_a_crash_at_any_point_of_a_start_heals_at_the_next_one() -> None:
    for k in range(changes_of_start()):
        node, fuse = dirty_node()
        fuse.arm(k, Mode.DIE)
        with pytest.raises(Died):
            node.owner()
        fuse.disarm()
        again = node.owner()
        assert admitted_names(again) == ["old", "team"], k
        assert unsound(node, again) == [], k


@pytest.mark.parametrize("mode", FAILURES, ids=lambda mode: mode.value)
def test_a_failure_at_any_point_of_a_start_is_mended_later(mode: Mode) -> None:
    for k in range(changes_of_start()):
        node, fuse = dirty_node()
        fuse.arm(k, mode)
        owner = node.owner()
        assert owner.snapshot().failures or unsound(node, owner) == [], k
        assert admitted_names(owner) == ["old", "team"], k
        fuse.disarm()
        owner.reconcile()
        assert owner.snapshot().failures == (), k
        assert unsound(node, owner) == [], k
