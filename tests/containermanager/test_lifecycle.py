"""The life of containers: transitions, order, and when a pod has ended; pure tables."""

from __future__ import annotations

import pytest

from agent.containermanager.lifecycle import has_begun, has_ended, refusal, seen, told
from agent.domain.lifecycle import ContainerLife, ContainerState, Lives
from agent.domain.pod import Container, ContainerKind, Pod, PodUid, RestartPolicy

WAITING, RUNNING, EXITED = ContainerState.WAITING, ContainerState.RUNNING, ContainerState.EXITED


def life(state: ContainerState, restarts: int = 0) -> ContainerLife:
    return ContainerLife(state=state, since="before", restarts=restarts)


def lives(**states: ContainerState) -> Lives:
    return {name: life(state) for name, state in states.items()}


def pod(policy: RestartPolicy = RestartPolicy.NEVER) -> Pod:
    """In order: init container first, sidecar side, init container second, containers main and helper."""
    kinds = {
        "first": ContainerKind.INIT,
        "side": ContainerKind.SIDECAR,
        "second": ContainerKind.INIT,
        "main": ContainerKind.APP,
        "helper": ContainerKind.APP,
    }
    containers = tuple(Container(name=name, kind=kind) for name, kind in kinds.items())
    uid = PodUid("uid")
    return Pod(name="p", namespace="default", uid=uid, containers=containers, restart_policy=policy)


@pytest.mark.parametrize(
    ("before", "populated", "has_run", "state", "restarts"),
    [
        pytest.param(life(WAITING), True, False, RUNNING, 0, id="starts"),
        pytest.param(life(WAITING), False, True, EXITED, 0, id="came and went between two looks"),
        pytest.param(life(RUNNING), False, True, EXITED, 0, id="exits"),
        pytest.param(life(RUNNING, 3), False, True, EXITED, 3, id="exits again"),
        pytest.param(life(RUNNING), False, False, EXITED, 0, id="its cgroup was made anew"),
        pytest.param(life(EXITED), True, False, RUNNING, 1, id="is started again"),
        pytest.param(life(EXITED, 1), True, False, RUNNING, 2, id="is started a third time"),
    ],
)
def test_a_look_at_the_cgroup_tells_what_happened(
    before: ContainerLife, populated: bool, has_run: bool, state: ContainerState, restarts: int
) -> None:
    after = seen(before, populated=populated, has_run=has_run, now="now")
    assert after == ContainerLife(state=state, since="now", restarts=restarts)


@pytest.mark.parametrize(
    ("before", "populated", "has_run"),
    [
        pytest.param(life(WAITING), False, False, id="waits"),
        pytest.param(life(RUNNING, 2), True, False, id="runs"),
        pytest.param(life(EXITED, 2), False, True, id="has exited"),
    ],
)
def test_a_look_that_shows_nothing_new_changes_nothing(
    before: ContainerLife, populated: bool, has_run: bool
) -> None:
    assert seen(before, populated=populated, has_run=has_run, now="now") is before


@pytest.mark.parametrize(
    ("known", "name", "words"),
    [
        pytest.param(lives(), "first", "", id="the first init container starts at once"),
        pytest.param(
            lives(),
            "main",
            "container main starts when init container first has finished, which has not run yet",
            id="an app container before any init container",
        ),
        pytest.param(
            lives(first=RUNNING),
            "second",
            "container second starts when init container first has finished, which still runs",
            id="an init container beside the one before it",
        ),
        pytest.param(
            lives(),
            "side",
            "container side starts when init container first has finished, which has not run yet",
            id="a sidecar has its place among them",
        ),
        pytest.param(lives(first=EXITED), "side", "", id="a sidecar in its turn"),
        pytest.param(lives(first=EXITED), "second", "", id="nobody waits for a sidecar"),
        pytest.param(
            lives(first=EXITED, second=RUNNING),
            "helper",
            "container helper starts when init container second has finished, which still runs",
            id="the last init container still runs",
        ),
        pytest.param(lives(first=EXITED, second=EXITED), "main", "", id="an app container in its turn"),
        pytest.param(lives(first=EXITED), "first", "", id="a failed init container runs again"),
        pytest.param(
            lives(first=EXITED, second=EXITED, main=RUNNING),
            "second",
            "init container second has finished, and container main has its CPUs and memory now",
            id="an init container whose CPUs another has",
        ),
        pytest.param(
            lives(first=EXITED, second=EXITED, main=EXITED), "main", "", id="a crashed container rejoins"
        ),
        pytest.param(lives(), "debug-1", "", id="ephemeral work at any time"),
    ],
)
def test_init_containers_run_in_order_before_the_others(known: Lives, name: str, words: str) -> None:
    assert refusal(pod(), known, name) == words


def test_containers_of_a_pod_without_init_containers_start_in_any_order() -> None:
    containers = (Container(name="a"), Container(name="b"))
    plain = Pod(name="p", namespace="default", uid=PodUid("u"), containers=containers)
    assert [refusal(plain, lives(), name) for name in ("b", "a")] == ["", ""]
    assert not has_begun(plain, lives(a=RUNNING))


@pytest.mark.parametrize("policy", [RestartPolicy.NEVER, RestartPolicy.ON_FAILURE])
@pytest.mark.parametrize(
    ("known", "ended"),
    [
        pytest.param(lives(), False, id="nothing ran"),
        pytest.param(lives(first=EXITED, second=EXITED, main=EXITED), False, id="helper has not run"),
        pytest.param(
            lives(first=EXITED, second=EXITED, main=EXITED, helper=RUNNING), False, id="helper runs"
        ),
        pytest.param(lives(first=EXITED, second=EXITED, main=EXITED, helper=EXITED), True, id="all ran"),
        pytest.param(
            lives(first=EXITED, side=RUNNING, second=EXITED, main=EXITED, helper=EXITED),
            True,
            id="only a sidecar runs",
        ),
    ],
)
def test_a_pod_ends_when_all_its_work_has_run(policy: RestartPolicy, known: Lives, ended: bool) -> None:
    assert has_ended(pod(policy), known) is ended


def test_a_pod_that_is_to_run_always_never_ends_by_itself() -> None:
    known = lives(first=EXITED, second=EXITED, main=EXITED, helper=EXITED)
    assert not has_ended(pod(RestartPolicy.ALWAYS), known)


@pytest.mark.parametrize(
    ("known", "begun"),
    [
        (lives(), False),
        (lives(first=EXITED), False),
        (lives(first=EXITED, side=RUNNING), True),
        (lives(first=EXITED, second=RUNNING), True),
    ],
)
def test_a_pod_has_begun_when_something_follows_an_init_container(known: Lives, begun: bool) -> None:
    assert has_begun(pod(), known) is begun


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (life(RUNNING), "container main runs"),
        (life(RUNNING, 2), "container main runs again (2. restart)"),
        (life(EXITED, 2), "container main has exited"),
    ],
)
def test_a_change_is_told_in_words(now: ContainerLife, words: str) -> None:
    assert told("main", now) == words
