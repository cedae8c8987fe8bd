"""Enforcement by what changed leaves the kernel as a full plan against a full scan would, and costs no more."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.cgroup.backend import NOTHING, EnforcementError
from agent.cgroup.diff import diff
from agent.cgroup.fake import FakeCgroups
from agent.cgroup.layout import ROOT, CgroupDir, Kind, group_of, kind_of
from agent.cgroup.plan import plan
from agent.cgroup.tree import CPUS, CgroupOp, MakeDir, Observed, Wanted, Write
from agent.config import Config
from agent.containermanager import ContainerManager, VerdictKind
from agent.domain.idset import CpuSet
from agent.domain.pod import PodUid
from agent.errors import NumaletError
from tests.containermanager.faults import FaultyCgroups, FaultyStore, Fuse, Mode
from tests.containermanager.node import (
    Node,
    best_effort,
    budgeted,
    fake_cgroups,
    parsed,
    pod,
    topology,
    unsound,
)

CPU_COUNT = 12
NAMES = "abcde"
STRAY = CgroupDir("besteffort/poduid-stray")
TEXTS = {
    "cpuset.cpus": st.sampled_from(["", "0", "1-3", "0-11"]),
    "cpuset.mems": st.sampled_from(["", "0", "0-1"]),
    "cpu.max": st.sampled_from(["max 100000", "5000 100000"]),
    "cpu.weight": st.sampled_from(["1", "77"]),
    "memory.max": st.sampled_from(["max", "1073741824"]),
    "memory.oom.group": st.sampled_from(["0", "1"]),
}
DOCUMENTS = {
    "exclusive": lambda name: pod(name, cpu="2"),
    "budgeted": lambda name: parsed(budgeted(name)),
    "best effort": lambda name: parsed(best_effort(name)),
}


class Guarded(FaultyCgroups):
    """Finds it when an exclusive slice is confined while somebody of another pod may still run on it.

    A stranger counts beside a slice that is new. Where somebody else took a slice's cpuset away and moved the
    stranger in, the two are on the same CPUs already; both shrink, and either may be the first.
    """

    made: set[CgroupDir]

    def make(self, directory: CgroupDir) -> None:
        self.made.add(directory)
        super().make(directory)

    def write(self, directory: CgroupDir, file: str, text: str) -> Mapping[str, str]:
        fresh = file == CPUS and directory.startswith("pod") and not self._cgroups[directory].files.get(CPUS)
        if fresh and directory.endswith("/main") and not self._stranger:
            slice_ = CpuSet.parse(text)
            bearing = {Kind.CONTAINER, Kind.POOL, Kind.POOLED}
            new = directory in self.made
            others = [d for d in self._cgroups if (d == STRAY and new) or kind_of(d) in bearing]
            for other in others:
                if group_of(other) != group_of(directory):
                    assert self.effective_cpus(other).isdisjoint(slice_), (directory, other)
        written = super().write(directory, file, text)
        if file == CPUS:
            self.made.discard(directory)
        return written


def guarded_node() -> tuple[Node, Fuse]:
    fuse, machine = Fuse(), topology(CPU_COUNT)
    cgroups = fake_cgroups(machine, Guarded)
    assert isinstance(cgroups, Guarded)
    cgroups.fuse, cgroups.made = fuse, set()
    return Node(machine=machine, store=FaultyStore(fuse), cgroups=cgroups), fuse


def planned(owner: ContainerManager) -> Wanted:
    """The full plan."""
    shot = owner.snapshot()
    return plan(owner._enforcer._facts(shot.state, {uid: entry.pod for uid, entry in shot.pods.items()}))


def differs(node: Node, owner: ContainerManager) -> tuple[CgroupOp, ...]:
    """What a full plan against a full scan would do."""
    return diff(planned(owner), node.cgroups.observe())


def tamper(node: Node, owner: ContainerManager, data: st.DataObject) -> None:
    """Somebody else writes a file of ours, takes a controller away, or removes a cgroup nobody lives in."""
    kernel, wanted = node.cgroups, planned(owner).dirs
    directory = data.draw(st.sampled_from(sorted(wanted)))
    files = sorted(TEXTS.keys() & wanted[directory].settings)
    what = data.draw(st.sampled_from([*files, "remove", "disable", "make", "move in"]))
    with kernel.somebody_else(), suppress(EnforcementError):
        if what == "remove":
            FakeCgroups.remove(kernel, directory)
        elif what == "disable":
            kernel.disable(directory, ["cpuset"] if directory else [])
        elif what == "make":
            FakeCgroups.make(kernel, STRAY)
        elif what == "move in":
            FakeCgroups.make(kernel, STRAY)
            kernel.add_process(STRAY, kernel.spawn())
        else:
            FakeCgroups.write(kernel, directory, what, data.draw(TEXTS[what]))


@settings(deadline=None)
@given(st.data())
def test_after_any_history_the_kernel_is_as_a_full_plan_would_leave_it(data: st.DataObject) -> None:
    node, fuse = guarded_node()
    owner = node.owner()
    for _ in range(data.draw(st.integers(1, 8), label="steps")):
        step = data.draw(st.sampled_from(["admit", "remove", "tamper", "fault", "hotplug"]), label="step")
        name = data.draw(st.sampled_from(NAMES), label="name")
        if step == "tamper":
            tamper(node, owner, data)
            if data.draw(st.booleans(), label="something follows before it is noticed"):
                continue
        if step == "fault":
            modes = st.sampled_from([Mode.ONCE, Mode.LATE, Mode.LASTING])
            fuse.arm(data.draw(st.integers(0, 30)), data.draw(modes))
        if step == "hotplug":
            machine = topology(CPU_COUNT, offline=data.draw(st.sampled_from([frozenset(), frozenset({11})])))
            owner.hardware_changed(lambda machine=machine: node.plug(machine))  # type: ignore[misc]
        with suppress(NumaletError):
            if step in {"admit", "fault"}:
                owner.admit(DOCUMENTS[data.draw(st.sampled_from(sorted(DOCUMENTS)))](name), "api")
            if step in {"remove", "fault"}:
                owner.remove(PodUid(f"uid-{name}"), 0)
        fuse.disarm()
        owner.reconcile()
        assert differs(node, owner) == ()
        assert [text for text in unsound(node, owner) if not text.startswith(STRAY)] == []
        assert not node.cgroups.exists(STRAY) or node.cgroups.effective_cpus(STRAY) <= owner.snapshot().shared
    owner.reconcile()
    assert differs(node, owner) == ()
    done = len(node.cgroups.log)
    assert owner.reconcile() == owner.repair_drift() == 0
    assert len(node.cgroups.log) == done


@pytest.mark.parametrize("how", ["its controller", "its text"])
def test_a_slice_whose_cpuset_was_taken_away_and_a_stranger_on_it_part(how: str) -> None:
    node, _ = guarded_node()
    owner = node.owner()
    owner.admit(DOCUMENTS["budgeted"]("a"), "api")
    main, kernel = CgroupDir("poduid-a/main"), node.cgroups
    held = kernel.effective_cpus(main)
    with kernel.somebody_else(), suppress(EnforcementError):
        FakeCgroups.make(kernel, STRAY)
        kernel.add_process(STRAY, kernel.spawn())
        if how == "its controller":
            kernel.disable(CgroupDir("poduid-a"), ["cpuset"])
        else:
            FakeCgroups.write(kernel, main, CPUS, "")
    assert not kernel.effective_cpus(main) <= held
    assert not kernel.effective_cpus(STRAY).isdisjoint(held)
    owner.repair_drift()
    assert kernel.effective_cpus(main) == held
    assert kernel.effective_cpus(STRAY) == owner.snapshot().shared
    assert differs(node, owner) == ()


class Counting(FakeCgroups):
    """Counts looks at cgroups; ``scans`` are their tops."""

    scans: list[CgroupDir]

    def observe(self, top: CgroupDir = ROOT, leave_out: frozenset[Kind] = NOTHING) -> Observed:
        self.scans.append(top)
        return super().observe(top, leave_out)


def crowd(exclusive: int, shared: int) -> tuple[Node, ContainerManager, Counting]:
    machine = topology(64, 2)
    cgroups = fake_cgroups(machine, Counting)
    assert isinstance(cgroups, Counting)
    cgroups.scans = []
    node = Node(machine=machine, cgroups=cgroups)
    owner = node.owner()
    for number in range(exclusive):
        owner.admit(pod(f"own-{number}", cpu="1", memory="64Mi"), "api")
    for number in range(shared):
        owner.admit(parsed(best_effort(f"all-{number}")), "api")
    cgroups.log.clear()
    cgroups.scans.clear()
    return node, owner, cgroups


@pytest.mark.parametrize("present", [0, 5, 30])
def test_an_exclusive_pod_beside_exclusive_pods_costs_its_own_cgroups(present: int) -> None:
    _, owner, cgroups = crowd(present, 0)
    owner.admit(pod("new", cpu="1", memory="64Mi"), "api")
    new = CgroupDir("poduid-new")
    assert {group_of(op.directory) for op in cgroups.log} == {new}
    assert cgroups.scans == [new]
    cgroups.log.clear()
    owner.remove(PodUid("uid-new"), 0)
    assert {group_of(op.directory) for op in cgroups.log} == {new}
    assert set(cgroups.scans) == {new}


def test_an_exclusive_pod_beside_sharing_pods_costs_one_write_for_each_of_their_cpusets() -> None:
    _, owner, cgroups = crowd(3, 20)
    owner.admit(pod("new", cpu="1", memory="64Mi"), "api")
    others = [op for op in cgroups.log if group_of(op.directory) != "poduid-new"]
    assert all(isinstance(op, Write) and op.file == CPUS for op in others)
    confined = [
        d for d in cgroups.observe().dirs if d.startswith("besteffort/") and kind_of(d) is not Kind.POOLED
    ]
    assert sorted(op.directory for op in others) == sorted(confined)
    assert [op.directory for op in cgroups.log].index(CgroupDir("poduid-new")) == len(others)


def test_a_sharing_pod_costs_its_own_cgroups() -> None:
    _, owner, cgroups = crowd(3, 20)
    owner.admit(parsed(best_effort("new")), "api")
    assert {group_of(op.directory) for op in cgroups.log} == {"besteffort/poduid-new"}


def test_reconciles_read_a_few_cgroups_each_and_all_of_them_in_turn() -> None:
    _, owner, cgroups = crowd(40, 0)
    cgroups.scans.clear()
    for _ in range(3):
        before = len(cgroups.scans)
        assert owner.reconcile() == 0
        assert len(cgroups.scans) - before <= 17
    assert set(cgroups.scans) >= {ROOT, *(f"poduid-own-{number}" for number in range(40))}
    assert cgroups.log == []


def test_what_others_did_is_counted_by_file_once_it_is_put_right(caplog: pytest.LogCaptureFixture) -> None:
    node, owner, cgroups = crowd(2, 1)
    with cgroups.somebody_else():
        cgroups.write(CgroupDir("poduid-own-0/main"), "memory.max", "max")
        cgroups.write(CgroupDir("poduid-own-0/main"), "cpu.max", "5000 100000")
        with pytest.raises(EnforcementError, match="effective"):
            cgroups.write(CgroupDir("poduid-own-1"), CPUS, "")
        cgroups.remove(CgroupDir("besteffort/poduid-all-0/shared.pool/main"))
    caplog.clear()
    assert owner.repair_drift() > 0
    assert owner.snapshot().drift_repairs == {"memory.max": 1, "cpu.max": 1, "cpuset.cpus": 1, "cgroup": 1}
    assert sorted(text.partition(" had")[0] for text in caplog.messages) == [
        "cgroup besteffort/poduid-all-0/shared.pool/main",
        "cgroup poduid-own-0/main",
        "cgroup poduid-own-1",
    ]
    assert "memory.max was max" in caplog.text
    assert differs(node, owner) == ()
    assert owner.repair_drift() == 0


POOLED = CgroupDir("besteffort/poduid-all-0/shared.pool/main")


@pytest.mark.parametrize(
    ("directory", "file", "text", "all_of_it"),
    [
        *((above, CPUS, "5", "0-63") for above in ("", "burstable", "besteffort")),
        *((above, "cpuset.mems", "1", "0-1") for above in ("", "burstable", "besteffort", "poduid-own-0")),
        (POOLED, CPUS, "5", "0,3-63"),
        (POOLED, "cpuset.mems", "1", "0-1"),
    ],
)
def test_a_cpuset_that_was_not_set_and_was_narrowed_is_put_right_and_counted_and_told_by_its_own_path(
    directory: str, file: str, text: str, all_of_it: str, caplog: pytest.LogCaptureFixture
) -> None:
    node, owner, cgroups = crowd(2, 1)
    with cgroups.somebody_else():
        cgroups.write(CgroupDir(directory), file, text)
    caplog.clear()
    assert owner.repair_drift() == 1
    assert cgroups.read(CgroupDir(directory), file) == all_of_it
    assert caplog.messages == [
        f"cgroup {directory or 'root'} had drifted and was put right: {file} was {text}"
    ]
    shot = owner.snapshot()
    assert (shot.drift_repairs, shot.failures) == ({file: 1}, ())
    assert unsound(node, owner) == []
    assert owner.repair_drift() == 0


def test_a_root_without_the_cpus_that_no_pod_is_given_is_as_it_should_be() -> None:
    options = {"strict-cpu-reservation": "true"}
    node = Node(Config(cpu_options=options, reserved_cpus=CpuSet.of([0, 1])))
    owner = node.owner()
    owner.admit(parsed(best_effort("guest")), "api")
    with node.cgroups.somebody_else():
        node.cgroups.write(ROOT, CPUS, "2-7")
    assert owner.repair_drift() == 0
    assert owner.deviations() == ()
    with node.cgroups.somebody_else():
        node.cgroups.write(ROOT, CPUS, "3-7")
    assert owner.repair_drift() == 1
    assert node.cgroups.read(ROOT, CPUS) == "0-7"


def test_a_slice_that_comes_after_the_root_was_narrowed_and_opened_again_is_left_by_all_before() -> None:
    node, _ = guarded_node()
    owner = node.owner()
    owner.admit(parsed(best_effort("guest")), "api")
    with node.cgroups.somebody_else():
        node.cgroups.write(ROOT, CPUS, "0")
    assert owner.repair_drift() == 1
    for name in "ab":
        assert owner.admit(pod(name, cpu="4"), "api").kind is VerdictKind.ADMITTED
    assert unsound(node, owner) == []


def test_a_root_that_cannot_be_opened_is_named_itself_and_it_heals(caplog: pytest.LogCaptureFixture) -> None:
    node, owner, cgroups = crowd(1, 1)
    with cgroups.somebody_else():
        cgroups.write(CgroupDir("besteffort"), CPUS, "5")
    cgroups.fail(CgroupDir("besteffort"), CPUS, errno.EACCES)
    owner.repair_drift()
    (failure,) = owner.snapshot().failures
    assert failure.startswith("EnforcementError: cannot write '0-63' to besteffort/cpuset.cpus: permission")
    cgroups.mend()
    assert owner.repair_drift() == 1
    assert owner.snapshot().failures == ()
    assert owner.snapshot().drift_repairs == {CPUS: 1}
    assert unsound(node, owner) == []


def test_many_drifted_cgroups_are_not_all_told(caplog: pytest.LogCaptureFixture) -> None:
    _, owner, cgroups = crowd(30, 0)
    with cgroups.somebody_else():
        for number in range(30):
            cgroups.write(CgroupDir(f"poduid-own-{number}"), "cpu.weight", "7")
    caplog.clear()
    owner.repair_drift()
    assert len(caplog.messages) == 11
    assert caplog.messages[-1].startswith("20 more cgroups had drifted")
    assert owner.snapshot().drift_repairs == {"cpu.weight": 30}


def test_a_cgroup_that_vanished_unnoticed_does_not_refuse_another_pod() -> None:
    node, owner, cgroups = crowd(0, 2)
    cgroups.remove(CgroupDir("besteffort/poduid-all-0/shared.pool/main"))
    cgroups.remove(CgroupDir("besteffort/poduid-all-0/shared.pool"))
    owner.admit(pod("new", cpu="1", memory="64Mi"), "api")
    assert "uid-new" in owner.snapshot().pods
    assert differs(node, owner) == ()


def test_where_nobody_tells_who_writes_every_enforcement_looks_at_everything() -> None:
    class Blind(Counting):
        def changed(self) -> frozenset[CgroupDir] | None:
            return None

    machine = topology()
    cgroups = fake_cgroups(machine, Blind)
    assert isinstance(cgroups, Blind)
    cgroups.scans = []
    node = Node(machine=machine, cgroups=cgroups)
    owner = node.owner()
    owner.admit(pod("a", cpu="1"), "api")
    cgroups.write(CgroupDir("poduid-a/main"), "memory.max", "max")
    cgroups.scans.clear()
    owner.admit(pod("b", cpu="1"), "api")
    assert cgroups.scans == [ROOT]
    assert cgroups.read(CgroupDir("poduid-a/main"), "memory.max") == str(1 << 30)
    assert MakeDir(CgroupDir("poduid-b")) in cgroups.log
