"""The static policy, container by container and pod by pod."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.cpumanager.static import StaticCpuManager
from agent.domain.hints import Hint, Hints, Impossible
from agent.domain.idset import NO_CPUS, CpuSet
from agent.domain.outcome import Isolation
from agent.domain.pod import CPU, Container, Pod, PodUid
from agent.domain.settings import Fidelity, Gates
from agent.domain.state import CpuState
from agent.domain.trace import WHOLE_POD, CpusGranted, Kept, Pool, Shared
from agent.errors import AdmissionError
from tests.cpumanager.build import NO_HINT, container, fresh, machine, near, pod, settings, shown, static

EIGHT = static(machine(8, threads=1))
HT = static(machine(16, nodes=2, sockets=2), settings({"full-pcpus-only": "true"}, reserved="2"))
U = PodUid("u")


def given(manager: StaticCpuManager, state: CpuState, one: Pod, hint: Hint = NO_HINT) -> CpuState:
    """The state after all containers of ``one`` got theirs, one by one."""
    reuse = NO_CPUS
    for item in one.containers:
        outcome = manager.allocate(state, one, item, hint, reuse)
        state, reuse = outcome.state, outcome.reuse
    return state


def only(name: str, cpu: str, kind: str = "app") -> tuple[Pod, Container]:
    one = pod("u", container(name, cpu, kind))
    return one, one.containers[0]


def test_exclusive_cpus_leave_the_shared_pool() -> None:
    one, item = only("c", "2")
    outcome = EIGHT.allocate(fresh(EIGHT), one, item, NO_HINT, NO_CPUS)
    assert shown(outcome.state) == {"default": "0,3-7", "entries": {"u": {"c": "1-2"}}, "pods": {}}
    (step,) = outcome.steps
    assert isinstance(step, CpusGranted)
    assert (step.container, str(step.cpus), step.source) == ("c", "1-2", Pool.NODE)
    assert EIGHT.isolation(outcome.state, one, item) is Isolation.CONTAINER
    assert str(EIGHT.cpus_of(outcome.state, U, "c")) == "1-2"


def test_a_container_that_shares_stays_in_the_shared_pool() -> None:
    one, item = only("c", "1500m")
    outcome = EIGHT.allocate(fresh(EIGHT), one, item, NO_HINT, CpuSet.parse("5"))
    assert outcome.state == fresh(EIGHT)
    assert outcome.reuse == CpuSet.parse("5")
    assert outcome.steps == (Shared("c", CPU, Pool.NODE, "its CPU request 1500m is not a whole number"),)
    assert EIGHT.isolation(outcome.state, one, item) is Isolation.HOST
    assert str(EIGHT.cpus_of(outcome.state, U, "c")) == "0-7"


def test_a_second_allocation_changes_nothing() -> None:
    one, item = only("c", "2")
    state = given(EIGHT, fresh(EIGHT), one)
    outcome = EIGHT.allocate(state, one, item, near(0), NO_CPUS)
    assert outcome.state == state
    assert outcome.steps == (Kept("c", CPU),)


def test_init_containers_leave_their_cpus_to_the_next() -> None:
    one = pod("u", container("i", "4", "init"), container("a", "2"), container("b", "1"))
    state = given(EIGHT, fresh(EIGHT), one)
    assert shown(state)["entries"] == {"u": {"i": "1-4", "a": "1-2", "b": "3"}}
    after = EIGHT.remove_container(state, U, "i")
    assert shown(after) == {"default": "0,4-7", "entries": {"u": {"a": "1-2", "b": "3"}}, "pods": {}}


def test_sidecars_keep_their_cpus() -> None:
    one = pod("u", container("i", "3", "init"), container("s", "2", "sidecar"), container("a", "2"))
    assert shown(given(EIGHT, fresh(EIGHT), one))["entries"] == {"u": {"i": "1-3", "s": "1-2", "a": "3-4"}}


def test_the_hint_comes_first_and_the_rest_from_anywhere() -> None:
    one, item = only("c", "6")
    manager = static(machine(16, nodes=4, threads=1))
    outcome = manager.allocate(fresh(manager), one, item, near(2), NO_CPUS)
    assert shown(outcome.state)["entries"] == {"u": {"c": "1-2,8-11"}}


def test_align_by_socket_widens_the_hint_to_its_sockets() -> None:
    one, item = only("c", "6")
    options = settings({"align-by-socket": "true"})
    manager = static(machine(16, nodes=4, sockets=2, threads=1), options)
    outcome = manager.allocate(fresh(manager), one, item, near(3), NO_CPUS)
    assert shown(outcome.state)["entries"] == {"u": {"c": "8-13"}}


SMT = [
    ("3", "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2"),
    (
        "16",
        (
            "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 14,"
            " requested CPUs = 16, CPUs per core = 2"
        ),
    ),
]


@pytest.mark.parametrize(("cpu", "message"), SMT, ids=["part of a core", "too many cores"])
def test_full_pcpus_only_refuses_parts_of_cores(cpu: str, message: str) -> None:
    one, item = only("c", cpu)
    budget = pod("u", container("c"), cpu=cpu)
    with pytest.raises(AdmissionError) as alone:
        HT.allocate(fresh(HT), one, item, NO_HINT, NO_CPUS)
    with pytest.raises(AdmissionError) as whole:
        HT.allocate_pod(fresh(HT), budget, NO_HINT)
    for refusal in (alone, whole):
        assert refusal.value.message == message
        assert refusal.value.reason == "SMTAlignmentError"


@pytest.mark.parametrize("fidelity", list(Fidelity))
def test_a_container_is_not_refused_what_it_holds(fidelity: Fidelity) -> None:
    """The kubelet counts free cores even for what is allocated, and so refuses after a restart."""
    options = settings({"full-pcpus-only": "true"}, reserved="2", fidelity=fidelity)
    manager = static(machine(16), options)
    one, item = only("c", "12")
    state = given(manager, fresh(manager), one)
    if fidelity is Fidelity.KUBELET:
        with pytest.raises(AdmissionError, match="not enough free physical CPUs"):
            given(manager, state, one)
    else:
        assert manager.allocate(state, one, item, NO_HINT, NO_CPUS).steps == (Kept("c", CPU),)


def test_too_many_cpus_are_refused_in_the_kubelets_words() -> None:
    one, item = only("c", "8")
    with pytest.raises(AdmissionError) as refusal:
        EIGHT.allocate(fresh(EIGHT), one, item, NO_HINT, NO_CPUS)
    assert refusal.value.message == ("not enough cpus available to satisfy request: requested=8, available=7")
    assert refusal.value.reason == "UnexpectedAdmissionError"


@pytest.mark.parametrize("fidelity", list(Fidelity))
def test_strict_reservation_never_empties_the_shared_pool(fidelity: Fidelity) -> None:
    """Kubernetes issue 141196; the kubelet itself gives the last CPU away."""
    strict = settings({"strict-cpu-reservation": "true"}, fidelity=fidelity)
    manager = static(machine(8, threads=1), strict)
    one, item = only("c", "7")
    if fidelity is Fidelity.KUBELET:
        assert given(manager, fresh(manager), one).default == NO_CPUS
        return
    with pytest.raises(AdmissionError, match="would leave no CPU in the shared pool"):
        manager.allocate(fresh(manager), one, item, NO_HINT, NO_CPUS)


BUDGET = pod("u", container("s", "1", "sidecar"), container("a", "2"), container("b"), cpu="5")
DIVIDED = {
    "default": "0,6-7",
    "entries": {"u": {"s": "1", "a": "2-3", "b": "4-5"}},
    "pods": {"u": "1-5"},
}


def test_a_pod_gets_one_set_and_divides_it() -> None:
    outcome = EIGHT.allocate_pod(fresh(EIGHT), BUDGET, NO_HINT)
    assert shown(outcome.state) == DIVIDED
    whole, sidecar, app, shared = outcome.steps
    assert isinstance(whole, CpusGranted)
    assert (whole.container, str(whole.cpus), whole.source) == (WHOLE_POD, "1-5", Pool.NODE)
    assert isinstance(sidecar, CpusGranted)
    assert isinstance(app, CpusGranted)
    assert sidecar.source is app.source is Pool.POD
    assert isinstance(shared, Shared)
    assert shared.pool is Pool.POD
    levels = [EIGHT.isolation(outcome.state, BUDGET, item) for item in BUDGET.containers]
    assert levels == [Isolation.CONTAINER, Isolation.CONTAINER, Isolation.POD]


def test_a_second_allocation_of_a_pod_changes_nothing() -> None:
    """Kubernetes issue 140989: after a restart the pod was allocated again."""
    state = EIGHT.allocate_pod(fresh(EIGHT), BUDGET, NO_HINT).state
    outcome = EIGHT.allocate_pod(EIGHT.restore(state), BUDGET, near(0))
    assert outcome.state == state
    assert outcome.steps == (Kept(WHOLE_POD, CPU),)


def test_a_pod_of_which_only_the_first_containers_hold_cpus_gets_the_rest() -> None:
    whole = EIGHT.allocate_pod(fresh(EIGHT), BUDGET, NO_HINT).state
    part = whole.without_entry(U, "b").without_entry(U, "a")
    assert shown(EIGHT.allocate_pod(part, BUDGET, NO_HINT).state) == DIVIDED


def test_a_pod_with_a_hole_is_allocated_anew() -> None:
    whole = EIGHT.allocate_pod(fresh(EIGHT), BUDGET, NO_HINT).state
    hole = whole.without_entry(U, "s")
    assert shown(EIGHT.allocate_pod(hole, BUDGET, NO_HINT).state) == DIVIDED


def test_a_pod_whose_set_is_also_shared_is_allocated_anew() -> None:
    whole = EIGHT.allocate_pod(fresh(EIGHT), BUDGET, NO_HINT).state
    overlapping = replace(whole, default=CpuSet.parse("0,5-7"))
    assert shown(EIGHT.allocate_pod(overlapping, BUDGET, NO_HINT).state) == DIVIDED


def test_a_budget_that_is_not_whole_stays_in_the_shared_pool() -> None:
    one = pod("u", container("a", "2"), cpu="2500m")
    outcome = EIGHT.allocate_pod(fresh(EIGHT), one, NO_HINT)
    assert outcome.state == fresh(EIGHT)
    why = "its pod-level CPU request 2500m is not a whole number"
    assert outcome.steps == (Shared(WHOLE_POD, CPU, Pool.NODE, why),)


def test_the_last_container_takes_the_pods_set_with_it() -> None:
    state = EIGHT.allocate_pod(fresh(EIGHT), BUDGET, NO_HINT).state
    for name in ("a", "s"):
        state = EIGHT.remove_container(state, U, name)
        assert shown(state)["default"] == "0,6-7"
    assert EIGHT.remove_container(state, U, "b") == fresh(EIGHT)
    assert EIGHT.remove_container(state, U, "nobody") == state


def test_wishes_of_a_container() -> None:
    one, item = only("c", "2")
    state = fresh(EIGHT)
    assert EIGHT.wishes(state, one, item, NO_CPUS) == {CPU: Hints((1,))}
    shared, other = only("c", "500m")
    assert EIGHT.wishes(state, shared, other, NO_CPUS) == {}
    held = given(EIGHT, state, one)
    assert EIGHT.wishes(held, one, item, NO_CPUS) == {CPU: Hints((1,))}
    grown, more = only("c", "3")
    assert EIGHT.wishes(held, grown, more, NO_CPUS) == {
        CPU: Impossible("it already holds 2 CPUs (1-2) but requests 3")
    }


def test_wishes_of_a_pod_without_a_budget() -> None:
    one = pod("u", container("i", "4", "init"), container("a", "2"), container("b", "1"))
    state = fresh(HT)
    assert HT.pod_wishes(state, one) == {CPU: Hints((1, 2), (3,))}
    first = HT.allocate(state, one, one.containers[0], near(1), NO_CPUS).state
    assert HT.pod_wishes(first, one) == {CPU: Hints((2,), (3,))}
    more = replace(one, containers=(container("i", "5", "init"), *one.containers[1:]))
    assert HT.pod_wishes(first, more) == {
        CPU: Impossible("container i already holds 4 CPUs (4-5,12-13) but requests 5")
    }
    assert HT.pod_wishes(state, pod("u", container("a"))) == {}
    partly = pod("u", container("a", "2"), container("b", "4"))
    begun = HT.allocate(state, partly, partly.containers[0], near(1), NO_CPUS).state
    assert HT.pod_wishes(begun, partly) == {CPU: Hints((2,), (3,))}


def test_wishes_of_a_pod_with_a_budget() -> None:
    state = fresh(EIGHT)
    assert EIGHT.pod_wishes(state, BUDGET) == {CPU: Hints((1,))}
    held = EIGHT.allocate_pod(state, BUDGET, NO_HINT).state
    assert EIGHT.pod_wishes(held, BUDGET) == {CPU: Hints((1,))}
    grown = pod("u", *BUDGET.containers, cpu="6")
    assert EIGHT.pod_wishes(held, grown) == {CPU: Impossible("it already holds 5 CPUs (1-5) but requests 6")}
    hole = held.without_entry(U, "s")
    assert EIGHT.pod_wishes(hole, grown) == {CPU: Hints((1,))}
    empty = pod("u", container("a", "5"), container("b"), cpu="5")
    assert EIGHT.pod_wishes(state, empty) == {
        CPU: Impossible(
            "pod rejected, sum of exclusive container cpu requests equals pod budget,"
            " leaving no cpus for shared containers"
        )
    }


def test_without_the_gate_a_pod_with_a_budget_is_left_alone() -> None:
    shut = static(machine(8), settings(gates=Gates(pod_level_resource_managers=False)))
    state = fresh(shut)
    assert shut.pod_wishes(state, BUDGET) == {}
    assert given(shut, state, BUDGET) == state
