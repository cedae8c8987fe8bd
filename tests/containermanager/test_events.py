"""What the node remembers of what happened, and that the log says the same."""

from __future__ import annotations

import logging
import threading

import pytest

from agent.cgroup.layout import CgroupDir
from agent.containermanager.events import CAPACITY, Event, EventKind, Events
from agent.domain.pod import PodUid
from agent.errors import HostError
from tests.containermanager.faults import Mode, faulty_node
from tests.containermanager.node import Node, pod, topology


def told(events: tuple[Event, ...]) -> list[tuple[str, str, str]]:
    return [(event.kind.value, event.type, event.pod) for event in events]


def counting() -> Events:
    return Events(lambda: "2026-01-01T00:00:00Z")


def test_a_pods_life_is_told_in_order_and_the_log_says_the_same(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    owner = Node().owner()
    owner.admit(pod("a"), "api")
    owner.admit(pod("big", cpu="64"), "api")
    owner.admit(pod("big", cpu="64"), "file:again.yaml")
    owner.remove(PodUid("uid-a"), 0)
    events = owner.events.since(0)
    assert told(events) == [
        ("Started", "Normal", ""),
        ("Admitted", "Normal", "default/a"),
        ("Rejected", "Warning", "default/big"),
        ("Removed", "Normal", "default/a"),
    ]
    assert [event.sequence for event in events] == [1, 2, 3, 4]
    assert caplog.messages == [event.text for event in events]
    assert [record.levelname for record in caplog.records] == ["INFO", "INFO", "WARNING", "INFO"]
    assert events[3].text == "removed pod default/a: released CPUs 1-2"


def test_drift_hotplug_and_what_they_do_to_pods_are_told() -> None:
    node = Node()
    owner = node.owner()
    owner.admit(pod("a"), "api")
    node.cgroups.write(CgroupDir("poduid-a/main"), "cpu.weight", "7")
    owner.reconcile()
    owner.hardware_changed(lambda: node.plug(topology(offline=frozenset({1}))))
    owner.hardware_changed(lambda: node.plug(topology()))
    assert told(owner.events.since(2)) == [
        ("DriftRepaired", "Warning", "default/a"),
        ("Hotplug", "Normal", ""),
        ("Degraded", "Warning", "default/a"),
        ("Hotplug", "Normal", ""),
        ("Recovered", "Normal", "default/a"),
    ]


def test_a_failure_and_its_end_are_told_once_each() -> None:
    def broken() -> object:
        raise HostError("no topology today")

    node = Node()
    owner = node.owner()
    for _ in range(2):
        owner.hardware_changed(broken)  # type: ignore[arg-type]  # it never returns
    owner.hardware_changed(lambda: node.machine)
    assert [(event.kind, event.text) for event in owner.events.since(1)] == [
        (
            EventKind.NOT_READY,
            "not ready: DiscoveryError: the machine changed and cannot be used as it is: no topology today",
        ),
        (EventKind.READY, "ready again: no DiscoveryError any more"),
    ]


def test_an_admission_that_the_machine_failed_and_the_next_that_succeeds_are_told() -> None:
    node, fuse = faulty_node()
    owner = node.owner()
    fuse.arm(0, Mode.LASTING)
    owner.admit(pod("a"), "api")
    fuse.disarm()
    owner.admit(pod("a"), "api")
    assert told(owner.events.since(1)) == [
        ("NotReady", "Warning", ""),
        ("Rejected", "Warning", "default/a"),
        ("Ready", "Normal", ""),
        ("Admitted", "Normal", "default/a"),
    ]


def test_a_manifest_problem_is_told_when_it_is_new() -> None:
    owner = Node().owner()
    for problems in (("x: bad",), ("x: bad", "y: bad"), ("y: bad",), ("x: bad",)):
        owner.manifest_problems(problems)
    assert [event.text for event in owner.events.since(1)] == [
        "manifest: x: bad",
        "manifest: y: bad",
        "manifest: x: bad",
    ]


def test_only_the_newest_are_kept_and_a_gap_in_the_numbers_shows_it() -> None:
    events = counting()
    for number in range(CAPACITY + 5):
        events.add(EventKind.HOTPLUG, f"event {number + 1}")
    kept = events.since(0)
    assert len(kept) == CAPACITY
    assert (kept[0].sequence, kept[-1].sequence) == (6, CAPACITY + 5)
    assert kept[0].text == "event 6"


def test_the_events_of_one_pod_are_found_among_others() -> None:
    events = counting()
    events.add(EventKind.STARTED, "node")
    events.add(EventKind.ADMITTED, "a", pod("a"))
    events.add(EventKind.ADMITTED, "b", pod("b"))
    assert [event.text for event in events.since(0, pod="default/a")] == ["a"]
    assert [event.text for event in events.since(2)] == ["b"]
    assert events.since(3) == events.since(99) == ()


def test_who_waits_is_woken_by_the_event_and_only_by_one_of_the_pod_asked_for() -> None:
    events = counting()
    found: list[tuple[Event, ...]] = []
    waiting = threading.Thread(target=lambda: found.append(events.since(0, pod="default/b", wait=60)))
    waiting.start()
    events.add(EventKind.ADMITTED, "a", pod("a"))
    events.add(EventKind.ADMITTED, "b", pod("b"))
    waiting.join(60)
    assert [event.text for batch in found for event in batch] == ["b"]


def test_waiting_ends_without_an_event() -> None:
    assert counting().since(0, wait=0.01) == ()
