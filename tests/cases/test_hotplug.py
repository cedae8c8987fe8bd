"""What went wrong for other people when CPUs come and go: the cases D22 and F15."""

from __future__ import annotations

from functools import partial

from agent.containermanager.machine import Machine
from agent.domain.pod import PodUid
from agent.errors import HostError
from tests.containermanager.node import Node, admitted_names, pod, topology, unsound

A = PodUid("uid-a")


def no_machine() -> Machine:
    raise HostError("no CPU found")


def test_d22_the_machine_is_refreshed_grants_are_kept_and_a_failure_withdraws_it() -> None:
    node = Node()
    owner = node.owner()
    owner.admit(pod("a"), "api")
    held = owner.snapshot().state.cpu.entries
    owner.hardware_changed(lambda: node.plug(topology(offline=frozenset({7}))))
    assert owner.snapshot().topology.online == node.topology.online
    assert owner.snapshot().state.cpu.entries == held
    owner.hardware_changed(no_machine)
    assert "no CPU found" in owner.snapshot().withdrawn
    assert owner.admit(pod("b", cpu="1"), "api").reason == "DiscoveryError"
    assert admitted_names(owner) == ["a"]
    owner.hardware_changed(lambda: node.plug(topology()))
    assert owner.snapshot().withdrawn == ""
    assert unsound(node, owner) == []


def test_f15_an_exclusive_set_never_moves() -> None:
    node = Node()
    owner = node.owner()
    owner.admit(pod("a"), "api")
    own = owner.snapshot().cpus(A, "main")
    for offline in (frozenset({max(own)}), frozenset(own), frozenset({0}), frozenset[int]()):
        found = topology(offline=offline)
        owner.hardware_changed(partial(node.plug, found))
        assert owner.snapshot().state.cpu.entries[A]["main"] == own
        owner = node.owner()
        assert owner.snapshot().state.cpu.entries[A]["main"] == own
    assert owner.snapshot().cpus(A, "main") == own
    assert owner.snapshot().degraded == {}
