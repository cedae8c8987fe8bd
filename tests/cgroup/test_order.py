"""No overlap, ever: at no step of any plan can a process run in another container's exclusive slice."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from agent.cgroup.backend import EnforcementError, apply
from agent.cgroup.diff import deviations, diff
from agent.cgroup.facts import CgroupSettings
from agent.cgroup.fake import FakeCgroups
from agent.cgroup.layout import ROOT, CgroupDir, Kind, kind_of, parent_of
from agent.cgroup.partitionplan import exclusive_of
from agent.cgroup.tree import CPUS as CPUS_FILE
from agent.cgroup.tree import Wanted, Write
from agent.domain.idset import CpuSet, union
from agent.domain.pod import Container, ContainerKind, PodUid
from tests.cgroup.worlds import World, app, init, machine, pinned, pod, prepared, sidecar

CPUS = 12
MAKERS = {ContainerKind.APP: app, ContainerKind.INIT: init, ContainerKind.SIDECAR: sidecar}


@st.composite
def tenants(draw: st.DrawFn, uid: str, free: list[int]) -> tuple[World, list[int]]:
    """One pod, allocated from ``free`` (in any order); returns it and what is left."""
    kinds = draw(st.lists(st.sampled_from(list(ContainerKind)), min_size=1, max_size=3))
    kinds.sort(key=lambda kind: kind is ContainerKind.APP)
    wants = [draw(st.integers(0, 2)) for _ in kinds]
    scope_is_pod = draw(st.booleans())
    containers: list[Container] = []
    held: dict[str, CpuSet] = {}
    shared: set[tuple[PodUid, str]] = set()
    key = PodUid(uid)
    pool = list(free)
    if scope_is_pod:
        pool, free = free[: sum(wants) + 1], free[sum(wants) + 1 :]
    whole = CpuSet.of(pool)
    for number, (kind, want) in enumerate(zip(kinds, wants, strict=True)):
        name = f"c{number}"
        exclusive = 0 < want < len(pool)
        containers.append(MAKERS[kind](name, pinned(str(want), "64Mi") if exclusive else app(name).resources))
        if exclusive:
            held[name] = CpuSet.of(pool[:want])
            if kind is not ContainerKind.INIT or not scope_is_pod:
                pool = pool[want:]
    if scope_is_pod:
        for container in containers:
            if container.name not in held:
                held[container.name] = CpuSet.of(pool)
                shared.add((key, container.name))
    else:
        free = pool
    budget = pinned(str(max(1, len(whole))), "1Gi") if scope_is_pod else pinned("8", "1Gi")
    world = World(
        pods={key: pod(uid, *containers, budget=budget)},
        cpus={key: held} if held else {},
        pod_cpus={key: whole} if scope_is_pod else {},
        shared=shared,
    )
    return world, free


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Up to four pods, in partitions or not; CPU 0 is always shared."""
    free = draw(st.permutations(range(1, CPUS)))
    world = World(topology=machine(CPUS, 1), cgroup=CgroupSettings(partitions=draw(st.booleans())))
    for uid in draw(st.lists(st.sampled_from("abcd"), unique=True)):
        if len(free) < 8:
            break
        one, free = draw(tenants(uid, list(free)))
        world.pods |= one.pods
        world.cpus |= one.cpus
        world.pod_cpus |= one.pod_cpus
        world.shared |= one.shared
    return world


@st.composite
def histories(draw: st.DrawFn) -> list[World]:
    """Worlds one after another; a pod that is in two of them in a row keeps its CPUs."""
    history = [draw(worlds())]
    for _ in range(draw(st.integers(1, 3))):
        last, fresh = history[-1], draw(worlds())
        keep = draw(st.sets(st.sampled_from(sorted(last.pods)))) if last.pods else set()
        history.append(joined(last, keep, fresh))
    return history


def joined(last: World, keep: set[PodUid], fresh: World) -> World:
    """The kept pods of ``last``, and those of ``fresh`` that fit beside them."""
    world = World(topology=last.topology, cgroup=fresh.cgroup)
    for source, uid in [(last, uid) for uid in sorted(keep)] + [(fresh, uid) for uid in sorted(fresh.pods)]:
        cpus = {*source.cpus.get(uid, {}).values(), source.pod_cpus.get(uid, CpuSet())}
        # A uid names one pod for ever: one that goes does not come back with other CPUs.
        is_new = uid not in world.pods and (source is last or uid not in last.pods)
        if is_new and all(c <= world.default for c in cpus):
            world.pods[uid] = source.pods[uid]
            world.cpus |= {uid: source.cpus[uid]} if uid in source.cpus else {}
            world.pod_cpus |= {uid: source.pod_cpus[uid]} if uid in source.pod_cpus else {}
            world.shared |= {key for key in source.shared if key[0] == uid}
    return world


def slices(world: World) -> dict[CgroupDir, CpuSet]:
    """The exclusive slices, by cgroup."""
    return {
        CgroupDir(f"pod{uid}/{name}"): cpus
        for uid, held in world.cpus.items()
        for name, cpus in held.items()
        if (uid, name) not in world.shared
    }


def overlaps(fake: FakeCgroups, world: World, running: list[CgroupDir]) -> list[str]:
    """Each case of a cgroup with processes that may run in the slice of another one that exists."""
    sequential = inits(world)
    where = {directory: fake.effective_cpus(directory) for directory in running if fake.exists(directory)}
    return [
        f"{other} may run on {cpus}, part of {directory}'s {exclusive}"
        for directory, exclusive in slices(world).items()
        if fake.exists(directory)
        for other, cpus in where.items()
        if other != directory
        and not (other.startswith(parent_of(directory) + "/") and {other, directory} & sequential)
        and not cpus.isdisjoint(exclusive)
    ]


def inits(world: World) -> set[CgroupDir]:
    """Ordinary init containers: their CPUs are taken over by containers that start after they ended."""
    return {
        CgroupDir(f"pod{uid}/{container.name}")
        for uid, one in world.pods.items()
        for container in one.containers
        if container.kind is ContainerKind.INIT
    }


def cut_out(fake: FakeCgroups) -> CpuSet:
    """The CPUs that no process outside of the pods may run on."""
    return fake.online - fake.effective_cpus(ROOT)


def populate(fake: FakeCgroups, wanted: Wanted) -> list[CgroupDir]:
    """Let a process run in every container; returns where."""
    leaves = [d for d in wanted.dirs if kind_of(d) in {Kind.CONTAINER, Kind.POOLED}]
    for directory in leaves:
        if not fake.procs(directory):
            fake.add_process(directory, fake.spawn())
    return leaves


def end_all_but(fake: FakeCgroups, wanted: Wanted) -> None:
    """End the processes of pods that go, as a removal does before it plans without them."""
    for directory in fake.observe().dirs.keys() - wanted.dirs.keys():
        if kind_of(directory) is Kind.POD:
            fake.kill(directory)


@settings(deadline=None)
@given(histories())
def test_no_step_of_any_plan_lets_a_process_into_another_containers_slice(history: list[World]) -> None:
    fake = prepared(history[0].topology)
    running: list[CgroupDir] = []
    for world in history:
        wanted = world.wanted()
        assert not wanted.problems
        end_all_but(fake, wanted)
        for op in diff(wanted, fake.observe()):
            apply(fake, [op])
            assert overlaps(fake, world, running) == [], op
        assert diff(wanted, fake.observe()) == ()
        assert deviations(wanted, fake.observe()) == ()
        assert cut_out(fake) == exclusive_of(wanted)
        if world.cgroup.partitions and not inits(world):
            assert cut_out(fake) == union(cpus for held in world.cpus.values() for cpus in held.values())
        running = populate(fake, wanted)


@settings(deadline=None)
@given(histories())
def test_processes_of_pods_nobody_knows_any_more_live_on_and_never_get_into_a_slice(
    history: list[World],
) -> None:
    fake = prepared(history[0].topology)
    running: list[CgroupDir] = []
    seen: set[PodUid] = set()
    last: set[PodUid] = set()
    for world in history:
        assume(not world.pods.keys() & (seen - last))  # a uid names one pod for ever
        last = set(world.pods)
        seen |= last
        wanted = world.wanted()
        for op in diff(wanted, fake.observe()):
            apply(fake, [op])
            assert overlaps(fake, world, running) == [], op
        assert diff(wanted, fake.observe()) == ()
        assert all(fake.procs(directory) for directory in running)
        assert all(
            fake.effective_cpus(directory) <= world.default
            for directory in running
            if directory not in wanted.dirs
        )
        running = [*running, *populate(fake, wanted)]


@settings(deadline=None)
@given(histories(), st.data())
def test_once_what_somebody_narrowed_above_the_pods_is_open_nobody_gets_into_a_slice(
    history: list[World], data: st.DataObject
) -> None:
    fake = prepared(history[0].topology)
    running: list[CgroupDir] = []
    for world in history:
        wanted = world.wanted()
        end_all_but(fake, wanted)
        shell = sorted(d for d in fake.observe().dirs if kind_of(d) in {Kind.ROOT, Kind.QOS})
        for directory in data.draw(st.lists(st.sampled_from(shell), unique=True)):
            if CPUS_FILE in fake.observe().dirs[directory].files:
                cpus = CpuSet.of(data.draw(st.sets(st.integers(0, CPUS - 1), min_size=1)))
                with suppress(EnforcementError):  # its effective set may be smaller still
                    fake.write(directory, CPUS_FILE, str(cpus))
        for op in diff(wanted, fake.observe()):
            apply(fake, [op])
            if not (isinstance(op, Write) and op.directory in shell):
                assert overlaps(fake, world, running) == [], op
        assert diff(wanted, fake.observe()) == ()
        assert deviations(wanted, fake.observe()) == ()
        running = populate(fake, wanted)


@settings(deadline=None)
@given(histories(), st.data())
def test_a_crash_at_any_step_heals_with_the_next_plan(history: list[World], data: st.DataObject) -> None:
    fake = prepared(history[0].topology)
    running: list[CgroupDir] = []
    for world in history:
        wanted = world.wanted()
        end_all_but(fake, wanted)
        ops = diff(wanted, fake.observe())
        apply(fake, ops[: data.draw(st.integers(0, len(ops)))])
        for op in diff(wanted, fake.observe()):
            apply(fake, [op])
            assert overlaps(fake, world, running) == [], op
        assert deviations(wanted, fake.observe()) == ()
        running = populate(fake, wanted)
