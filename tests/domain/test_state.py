"""What the state tells of itself, and of what became of another."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from agent.domain.idset import CpuSet, union
from agent.domain.pod import PodUid
from agent.domain.state import CpuState, changed_pods

UIDS = st.sampled_from([PodUid(name) for name in "abcdefgh"])
PODS = st.lists(st.tuples(UIDS, st.integers(0, 2)), max_size=8).map(dict)
SETS = st.integers(0, 255).map(CpuSet)
STATES = st.builds(
    CpuState,
    default=SETS,
    entries=st.dictionaries(UIDS, st.dictionaries(st.sampled_from("xy"), SETS, min_size=1)),
    pod_entries=st.dictionaries(UIDS, SETS),
)


@given(PODS, PODS)
def test_the_pods_that_came_went_or_are_others(
    before: Mapping[PodUid, int], after: Mapping[PodUid, int]
) -> None:
    every = before.keys() | after.keys()
    assert changed_pods(before, after) == {uid for uid in every if before.get(uid) != after.get(uid)}


@given(PODS, UIDS)
def test_one_pod_that_came_goes_or_is_another(pods: Mapping[PodUid, int], uid: PodUid) -> None:
    with_it, without = {**pods, uid: 9}, {key: value for key, value in pods.items() if key != uid}
    for before, after in ((pods, with_it), (without, with_it), (with_it, without)):
        assert changed_pods(before, after) == {uid}


def test_a_value_that_is_written_anew_may_be_told_but_never_one_that_is_the_same() -> None:
    one, other = [1], [1]
    assert changed_pods({PodUid("a"): one}, {PodUid("a"): other}) <= {"a"}
    assert changed_pods({PodUid("a"): one}, {PodUid("a"): one}) == set()


@given(STATES, UIDS, SETS)
def test_what_pods_hold_is_carried_along_when_cpus_are_granted(
    state: CpuState, uid: PodUid, cpus: CpuSet
) -> None:
    gathered = state.granting(uid, "new", cpus)
    assert state.held == union(
        [*state.pod_entries.values(), *(s for p in state.entries.values() for s in p.values())]
    )
    carried = state.granting(uid, "new", cpus)
    assert carried.held == gathered.held
    assert carried.of(uid, "new") == cpus
    assert carried.default == state.default - cpus
