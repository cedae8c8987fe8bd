import pytest

from agent.cgroup.facts import CgroupSettings, container_dir
from agent.cgroup.layout import CgroupDir
from agent.cgroup.plan import plan
from agent.cgroup.tree import KernelOffer
from agent.cgroup.units import Micros
from agent.domain.idset import CpuSet, NodeMask
from agent.domain.pod import MEMORY, Pod, PodUid
from agent.domain.settings import Settings
from agent.domain.state import Block
from tests.cgroup.worlds import (
    GIB,
    World,
    amounts,
    app,
    init,
    machine,
    pinned,
    pod,
    resources,
    sidecar,
    texts,
)

U = PodUid("u")


def block(nodes: int, size: int) -> Block:
    return Block(NodeMask(nodes), MEMORY, size)


def pod_scope_mixed() -> World:
    """Budget 4 CPUs; main-app has 2 exclusive ones, two sidecars share the other 2."""
    tenant = pod(
        "u",
        sidecar("metrics"),
        sidecar("backup"),
        app("main-app", pinned("2", "2Gi")),
        budget=pinned("4", "4Gi"),
    )
    shared = (block(1, 2 * GIB),)
    return World(
        pods={U: tenant},
        cpus={
            U: {
                "metrics": CpuSet.parse("4-5"),
                "backup": CpuSet.parse("4-5"),
                "main-app": CpuSet.parse("2-3"),
            }
        },
        pod_cpus={U: CpuSet.parse("2-5")},
        blocks={U: {"metrics": shared, "backup": shared, "main-app": (block(1, 2 * GIB),)}},
        pod_blocks={U: (block(1, 4 * GIB),)},
        shared={(U, "metrics"), (U, "backup")},
    )


def container_scope_mixed() -> World:
    """Pod limit 4 CPUs; the sidecar has 2 exclusive ones, two workers share the node's pool."""
    tenant = pod(
        "u",
        sidecar("infrastructure-sidecar", pinned("2", "1Gi")),
        app("worker-1"),
        app("worker-2"),
        budget=pinned("4", "4Gi"),
    )
    return World(
        pods={U: tenant},
        cpus={U: {"infrastructure-sidecar": CpuSet.parse("2-3")}},
        blocks={U: {"infrastructure-sidecar": (block(1, GIB),)}},
    )


def pod_scope_shared() -> World:
    """Budget 4 CPUs, and no container is exclusive."""
    tenant = pod("u", app("one"), app("two"), budget=pinned("4", "4Gi"))
    return World(
        pods={U: tenant},
        cpus={U: {"one": CpuSet.parse("2-5"), "two": CpuSet.parse("2-5")}},
        pod_cpus={U: CpuSet.parse("2-5")},
        shared={(U, "one"), (U, "two")},
    )


def test_pod_scope_mixed_keeps_the_exclusive_container_unthrottled_and_the_pod_in_its_budget() -> None:
    wanted = pod_scope_mixed().wanted()
    assert texts(wanted, "podu") == {
        "cpuset.cpus": "2-5",
        "cpu.max": "max 100000",
        "cpu.weight": "303",
        "memory.max": str(4 * GIB),
        "pids.max": "max",
    }
    assert texts(wanted, "podu/main-app") == {
        "cpuset.cpus": "2-3",
        "cpuset.mems": "0",
        "cpu.max": "max 100000",
        "cpu.weight": "174",
        "memory.max": str(2 * GIB),
        "memory.oom.group": "1",
    }
    assert texts(wanted, "podu/shared.pool") == {
        "cpuset.cpus": "4-5",
        "cpuset.mems": "0",
        "cpu.max": "200000 100000",
        "cpu.weight": "174",
        "memory.max": str(2 * GIB),
    }
    assert texts(wanted, "podu/shared.pool/metrics") == {
        "cpu.max": "max 100000",
        "cpu.weight": "303",
        "memory.max": "max",
        "memory.oom.group": "1",
    }
    assert not wanted.problems


def test_container_scope_mixed_gives_the_workers_the_rest_of_the_pods_limit() -> None:
    wanted = container_scope_mixed().wanted()
    assert texts(wanted, "podu")["cpuset.cpus"] == "0-15"
    assert texts(wanted, "podu")["cpu.max"] == "max 100000"
    assert texts(wanted, "podu/infrastructure-sidecar")["cpuset.cpus"] == "2-3"
    assert texts(wanted, "podu/infrastructure-sidecar")["cpu.max"] == "max 100000"
    assert texts(wanted, "podu/shared.pool") == {
        "cpuset.cpus": "0-1,4-15",
        "cpuset.mems": "0-1",
        "cpu.max": "200000 100000",
        "cpu.weight": "174",
        "memory.max": "max",
    }


def test_a_pod_without_exclusive_containers_keeps_its_quota() -> None:
    wanted = pod_scope_shared().wanted()
    assert texts(wanted, "podu")["cpu.max"] == "400000 100000"
    assert texts(wanted, "podu/shared.pool")["cpu.max"] == "400000 100000"
    assert texts(wanted, "podu/shared.pool")["cpuset.cpus"] == "2-5"


def test_the_tree_has_parents_before_children_and_inner_cgroups_pass_controllers_on() -> None:
    wanted = pod_scope_mixed().wanted()
    assert list(wanted.dirs) == [
        "",
        "besteffort",
        "burstable",
        "podu",
        "podu/main-app",
        "podu/shared.pool",
        "podu/shared.pool/backup",
        "podu/shared.pool/metrics",
    ]
    inner = [directory for directory, cgroup in wanted.dirs.items() if cgroup.subtree]
    assert inner == ["", "besteffort", "burstable", "podu", "podu/shared.pool"]


def test_a_classic_guaranteed_pod_has_one_cgroup_per_exclusive_container_and_a_pool_for_the_rest() -> None:
    tenant = pod("u", app("fast", pinned("2", "1Gi")), app("slow", pinned("500m", "1Gi")))
    world = World(
        pods={U: tenant},
        cpus={U: {"fast": CpuSet.parse("6-7")}},
        blocks={U: {"fast": (block(1, GIB),), "slow": (block(2, GIB),)}},
    )
    wanted = world.wanted()
    assert texts(wanted, "podu/fast")["cpuset.cpus"] == "6-7"
    assert texts(wanted, "podu/shared.pool")["cpu.max"] == "50000 100000"
    assert texts(wanted, "podu/shared.pool/slow")["cpu.max"] == "50000 100000"
    assert texts(wanted, "podu/shared.pool/slow")["cpuset.mems"] == "1", (
        "it shares CPUs, but has memory of its own"
    )


@pytest.mark.parametrize(
    ("tenant", "directory", "quota"),
    [
        (
            pod("u", app("a", resources(amounts(cpu="1"), amounts(cpu="2")))),
            "burstable/podu",
            "200000 100000",
        ),
        (
            pod(
                "u",
                app("a", resources(amounts(cpu="1"), amounts(cpu="2"))),
                app("b", resources(amounts(), amounts(memory="1Gi"))),
            ),
            "burstable/podu",
            "max 100000",
        ),
        (
            pod("u", app("a"), budget=resources(amounts(cpu="1"), amounts(cpu="3"))),
            "burstable/podu",
            "300000 100000",
        ),
        (pod("u", app("a")), "besteffort/podu", "max 100000"),
    ],
    ids=["every container limited", "one container unlimited", "pod limit", "best effort"],
)
def test_other_classes_share_the_node_pool_and_have_a_quota_only_if_it_is_stated(
    tenant: Pod, directory: str, quota: str
) -> None:
    wanted = World(pods={U: tenant}).wanted()
    assert texts(wanted, directory)["cpu.max"] == quota
    assert texts(wanted, f"{directory}/shared.pool")["cpuset.cpus"] == "0-15"


def test_the_burstable_class_weighs_as_much_as_its_pods_ask_for() -> None:
    one, two = PodUid("one"), PodUid("two")
    ask = resources(amounts(cpu="2"), amounts())
    wanted = World(pods={one: pod("one", app("a", ask)), two: pod("two", app("a", ask))}).wanted()
    assert texts(wanted, "burstable") == {"cpu.weight": "303"}
    assert texts(wanted, "besteffort") == {"cpu.weight": "1"}


@pytest.mark.parametrize("directory", ["", "burstable", "besteffort"])
def test_what_is_above_the_pods_has_no_cpuset_or_one_with_room_for_all_that_a_pod_may_be_given(
    directory: str,
) -> None:
    files = World(withheld=CpuSet.of([0])).wanted().dirs[CgroupDir(directory)].settings
    cpus, mems = files["cpuset.cpus"], files["cpuset.mems"]
    assert (cpus.text, mems.text) == ("0-15", "0-1")
    assert [cpus.is_met(text) for text in ("", "1-15", "0-15", "0-127", "0-14", "2")] == [True] * 4 + [
        False
    ] * 2
    assert [mems.is_met(text) for text in ("", "0-1", "0")] == [True, True, False]
    every = World().wanted().dirs[CgroupDir(directory)].settings["cpuset.cpus"]
    assert (every.is_met("0-15"), every.is_met("1-15")) == (True, False)


def test_a_weight_by_the_older_formula_is_left_alone() -> None:
    weight = pod_scope_mixed().wanted().dirs
    setting = next(cgroup.settings["cpu.weight"] for path, cgroup in weight.items() if path == "podu")
    assert setting.is_met("303")
    assert setting.is_met("157")
    assert not setting.is_met("100")


def test_a_shared_init_container_runs_apart_on_what_the_sidecars_before_it_leave() -> None:
    tenant = pod(
        "u",
        sidecar("proxy", pinned("1", "1Gi")),
        init("migrate"),
        app("main", pinned("2", "1Gi")),
        app("rest"),
        budget=pinned("4", "4Gi"),
    )
    world = World(
        pods={U: tenant},
        cpus={
            U: {
                "proxy": CpuSet.parse("2"),
                "migrate": CpuSet.parse("3-5"),
                "main": CpuSet.parse("3-4"),
                "rest": CpuSet.parse("5"),
            }
        },
        pod_cpus={U: CpuSet.parse("2-5")},
        shared={(U, "migrate"), (U, "rest")},
    )
    wanted = world.wanted()
    assert texts(wanted, "podu/migrate")["cpuset.cpus"] == "3-5"
    assert texts(wanted, "podu/migrate")["cpu.max"] == "300000 100000"
    assert texts(wanted, "podu/shared.pool")["cpuset.cpus"] == "5"
    assert texts(wanted, "podu/shared.pool")["cpu.max"] == "100000 100000"


def test_an_exclusive_init_container_takes_nothing_from_the_pools_quota() -> None:
    tenant = pod("u", init("warm", pinned("3", "1Gi")), app("rest"), budget=pinned("4", "4Gi"))
    world = World(
        pods={U: tenant},
        cpus={U: {"warm": CpuSet.parse("2-4"), "rest": CpuSet.parse("2-5")}},
        pod_cpus={U: CpuSet.parse("2-5")},
        shared={(U, "rest")},
    )
    assert texts(world.wanted(), "podu/shared.pool")["cpu.max"] == "400000 100000"
    assert texts(world.wanted(), "podu")["cpu.max"] == "max 100000"


def test_an_init_containers_own_limit_holds_where_it_is_lower() -> None:
    tenant = pod(
        "u", init("low", resources(amounts(), amounts(cpu="500m"))), app("rest"), budget=pinned("4", "4Gi")
    )
    assert texts(World(pods={U: tenant}).wanted(), "podu/low")["cpu.max"] == "50000 100000"


def test_when_nothing_is_left_of_the_limit_the_pool_gets_the_kernels_minimum() -> None:
    world = container_scope_mixed()
    world.cpus = {U: {"infrastructure-sidecar": CpuSet.parse("2-5")}}
    assert texts(world.wanted(), "podu/shared.pool")["cpu.max"] == "1000 100000"


def test_debug_work_runs_apart_on_the_node_pool() -> None:
    world = pod_scope_mixed()
    tenant = world.pods[U]
    world.pods[U] = pod("u", *tenant.containers, budget=tenant.resources, ephemeral=("debug",))
    wanted = world.wanted()
    assert texts(wanted, "podu/debug")["cpuset.cpus"] == "0-1,6-15"
    assert texts(wanted, "podu/debug")["cpu.weight"] == "1"
    assert texts(wanted, "podu")["cpuset.cpus"] == "0-15"
    assert container_dir(world.pods[U], {}, "debug") == "podu/debug"


def test_each_container_is_found_where_the_plan_puts_it() -> None:
    world = pod_scope_mixed()
    levels = {name: level for (_, name), level in world.facts().cpu_isolation.items()}
    assert container_dir(world.pods[U], levels, "main-app") == "podu/main-app"
    assert container_dir(world.pods[U], levels, "metrics") == "podu/shared.pool/metrics"


def test_without_a_cpu_policy_everything_shares_all_online_cpus() -> None:
    world = World(pods={U: pod("u", app("a", pinned("2", "1Gi")))}, settings=Settings())
    assert texts(world.wanted(), "podu/shared.pool")["cpuset.cpus"] == "0-15"


def test_huge_pages_follow_requests_and_limits_and_every_other_size_is_nothing() -> None:
    stated = pinned("1", "1Gi", hugepages_2Mi="8Mi")
    wanted = World(pods={U: pod("u", app("a", stated), app("b", pinned("1", "1Gi")))}).wanted()
    contents = {
        path: cgroup.settings["hugetlb.2MB.max"].text
        for path, cgroup in wanted.dirs.items()
        if path.count("pod") and "hugetlb.2MB.max" in cgroup.settings
    }
    assert contents == {"podu": str(8 << 20), "podu/shared.pool/a": str(8 << 20), "podu/shared.pool/b": "0"}


def test_a_container_that_states_no_huge_pages_may_use_its_pods() -> None:
    tenant = pod("u", app("a"), budget=pinned("1", "1Gi", hugepages_2Mi="8Mi"))
    wanted = World(pods={U: tenant}).wanted()
    assert [
        c.settings["hugetlb.2MB.max"].text for p, c in wanted.dirs.items() if p == "podu/shared.pool/a"
    ] == [str(8 << 20)]


def test_the_operators_cgroup_settings_are_followed() -> None:
    world = container_scope_mixed()
    world.cgroup = CgroupSettings(pod_pids=100, single_process_oom_kill=True, cfs_period=Micros(10_000))
    wanted = world.wanted()
    assert texts(wanted, "podu")["pids.max"] == "100"
    assert texts(wanted, "podu/shared.pool")["cpu.max"] == "20000 10000"
    assert "memory.oom.group" not in texts(wanted, "podu/shared.pool/worker-1")
    world.cgroup = CgroupSettings(cfs_quota=False)
    assert texts(world.wanted(), "podu")["pids.max"] == "max", "a limit of before is lifted"
    assert texts(world.wanted(), "podu/shared.pool")["cpu.max"] == "max 100000"


def test_only_files_that_the_kernel_offers_are_planned() -> None:
    kernel = KernelOffer(controllers=frozenset({"cpuset"}), files=frozenset({"cpuset.cpus"}), page_size=4096)
    wanted = plan(pod_scope_mixed().facts(kernel))
    assert {file for cgroup in wanted.dirs.values() for file in cgroup.settings} == {"cpuset.cpus"}
    assert {name for cgroup in wanted.dirs.values() for name in cgroup.subtree} == {"cpuset"}


def test_offline_cpus_are_left_out_so_that_what_is_asked_is_what_is_given() -> None:
    world = pod_scope_mixed()
    world.topology = machine(5, 1)
    wanted = world.wanted()
    assert texts(wanted, "podu/shared.pool")["cpuset.cpus"] == "4"


def test_who_has_no_cpu_of_its_own_left_runs_in_the_node_shared_pool_not_on_other_pods_cpus() -> None:
    world = pod_scope_mixed()
    world.topology = machine(4, 1)
    quota = texts(pod_scope_mixed().wanted(), "podu/shared.pool")["cpu.max"]
    wanted = world.wanted()
    assert not wanted.problems
    assert texts(wanted, "podu/main-app")["cpuset.cpus"] == "2-3"
    assert texts(wanted, "podu/shared.pool")["cpuset.cpus"] == "0-1"
    assert texts(wanted, "podu/shared.pool")["cpu.max"] == quota
    assert texts(wanted, "podu")["cpuset.cpus"] == "0-3"


def test_memory_on_numa_nodes_that_are_gone_is_taken_from_all_that_are_there() -> None:
    world = pod_scope_mixed()
    world.topology = machine(8, 1)
    world.blocks = {U: {"main-app": (block(1, GIB),)}}
    world.pod_blocks = {U: (block(1, 2 * GIB),)}
    assert texts(world.wanted(), "podu/main-app")["cpuset.mems"] == "0"
    assert texts(world.wanted(), "podu/shared.pool")["cpuset.mems"] == "0"


def test_a_set_without_an_online_cpu_is_a_problem_and_its_cgroup_is_left_alone() -> None:
    world = pod_scope_mixed()
    world.topology = machine(4, 1)
    other = pod("v", app("main", pinned("2", "1Gi")))
    world.pods[other.uid], world.cpus[other.uid] = other, {"main": CpuSet.parse("0-1")}
    wanted = world.wanted()
    assert [problem.directory for problem in wanted.problems] == ["podu/shared.pool"]
    assert "empty" in wanted.problems[0].reason
    assert wanted.held == {"podu/shared.pool", "podu/shared.pool/backup", "podu/shared.pool/metrics"}
    assert not wanted.held & wanted.dirs.keys()
    assert all(c.settings["cpuset.cpus"].text for c in wanted.dirs.values() if "cpuset.cpus" in c.settings)


def test_a_container_without_its_part_of_the_pods_set_is_a_problem_not_a_guest_of_the_node_pool() -> None:
    world = pod_scope_mixed()
    del world.cpus[U]["metrics"], world.cpus[U]["backup"]
    assert [problem.directory for problem in world.wanted().problems] == ["podu/shared.pool"]


def test_the_same_facts_give_the_same_tree_whatever_the_order_of_the_pods() -> None:
    one, two = pod("one", app("a")), pod("two", app("a"))
    there = World(pods={one.uid: one, two.uid: two}).wanted()
    back = World(pods={two.uid: two, one.uid: one}).wanted()
    assert there == back
    assert list(there.dirs) == list(back.dirs)


def test_memory_cut_out_for_a_container_in_the_pool_is_not_taken_from_the_pools_limit() -> None:
    world = pod_scope_mixed()
    tenant = pod(
        "u",
        app("half", pinned("500m", "1Gi")),
        app("main-app", pinned("2", "2Gi")),
        budget=pinned("4", "4Gi"),
    )
    world.pods[U] = tenant
    world.cpus = {U: {"half": CpuSet.parse("4-5"), "main-app": CpuSet.parse("2-3")}}
    world.blocks = {U: {"half": (block(1, GIB),), "main-app": (block(1, 2 * GIB),)}}
    world.shared = {(U, "half")}
    assert texts(world.wanted(), "podu/shared.pool")["memory.max"] == str(2 * GIB)


def test_without_memory_cut_out_for_containers_only_the_pods_limit_bounds_the_pool() -> None:
    world = pod_scope_mixed()
    world.blocks, world.pod_blocks = {}, {}
    assert texts(world.wanted(), "podu/shared.pool")["memory.max"] == "max"
