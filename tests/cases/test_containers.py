"""What went wrong for other people with init containers, sidecars, shared pools and quotas: B and C."""

from __future__ import annotations

from typing import Any

import pytest

from agent.admission import Admitted, Rejected, admit, cpus_of, new_managers, remove_container, restore
from agent.cgroup.layout import CgroupDir
from agent.cgroup.tree import CPU_MAX, CPUS, MakeDir, Write
from agent.config import Config
from agent.domain.idset import CpuSet
from agent.domain.pod import MEMORY, PodUid
from agent.domain.settings import TopologyPolicy, TopologyScope
from agent.domain.state import NodeState
from agent.domain.trace import MemoryGranted, Offered
from tests.containermanager.node import (
    Node,
    best_effort,
    budgeted,
    container_scope,
    limits,
    manifest,
    parsed,
    pod,
    topology,
)

UID = PodUid("uid-p")
ANY = TopologyPolicy.BEST_EFFORT


def containers(*, inits: list[Any] | None = None, apps: list[Any], budget: Any = None) -> Any:
    document = manifest("p")
    document["spec"] = {"initContainers": inits or [], "containers": apps}
    if budget:
        document["spec"]["resources"] = budget
    return parsed(document)


def one(name: str, cpu: str, memory: str = "256Mi", **more: str) -> dict[str, Any]:
    return {"name": name, "resources": limits(cpu, memory), **more}


def test_b1_what_an_init_container_leaves_goes_back_but_not_what_the_app_reuses() -> None:
    machine = topology(8, 1)
    managers = new_managers(Config(topology_policy=ANY).settings(machine), machine)
    made = containers(inits=[one("init", "4")], apps=[one("app", "2")])
    state = admit(managers, restore(managers, NodeState()), made).state
    init, app = (cpus_of(managers, state, UID, name) for name in ("init", "app"))
    assert app <= init
    after = remove_container(managers, state, UID, "init")
    assert cpus_of(managers, after, UID, "app") == app
    assert after.cpu.default == state.cpu.default | (init - app)


def test_b3_an_app_never_gets_the_cpus_of_a_sidecar() -> None:
    machine = topology(16, 1)
    managers = new_managers(Config(topology_policy=ANY).settings(machine), machine)
    made = containers(
        inits=[one("init", "8"), one("side", "4", restartPolicy="Always")], apps=[one("app", "4")]
    )
    state = admit(managers, restore(managers, NodeState()), made).state
    init, side, app = (cpus_of(managers, state, UID, name) for name in ("init", "side", "app"))
    assert side | app <= init
    assert side.isdisjoint(app)


@pytest.mark.parametrize(
    ("cpu", "memory", "message"),
    [
        pytest.param(
            "4",
            "2Gi",
            "pod rejected, sum of exclusive container cpu requests equals pod budget,"
            " leaving no cpus for shared containers",
            id="cpu",
        ),
        pytest.param(
            "5",
            "512Mi",
            "pod rejected, sum of exclusive container memory requests equals pod budget,"
            " leaving no memory for shared containers",
            id="memory",
        ),
    ],
)
def test_b5_a_container_that_would_share_an_empty_pool_is_refused_with_the_pools_name(
    cpu: str, memory: str, message: str
) -> None:
    machine = topology(8, 1)
    managers = new_managers(Config(topology_policy=ANY).settings(machine), machine)
    state = restore(managers, NodeState())
    made = containers(apps=[one("a", "3"), one("b", "1"), {"name": "pool"}], budget=limits(cpu, memory))
    decision = admit(managers, state, made)
    assert isinstance(decision, Rejected)
    assert (decision.reason, decision.message) == ("EmptyPodSharedPoolError", message)
    assert decision.state == state


def test_b6_a_container_that_wants_no_memory_gets_none_and_is_not_counted() -> None:
    machine = topology(8, 1)
    settings = Config(topology_policy=ANY, topology_scope=TopologyScope.CONTAINER).settings(machine)
    managers = new_managers(settings, machine)
    made = containers(apps=[one("a", "2"), {"name": "pool"}], budget=limits("3", "1Gi"))
    decision = admit(managers, restore(managers, NodeState()), made)
    assert isinstance(decision, Admitted)
    assert list(decision.state.memory.entries[UID]) == ["a"]
    granted = [step.container for step in decision.trace if isinstance(step, MemoryGranted)]
    assert granted == ["a"]
    asked = [s.container for s in decision.trace if isinstance(s, Offered) and MEMORY in s.wishes]
    assert asked == ["a"]


def test_c1_exclusive_pods_never_take_the_last_shared_cpu() -> None:
    node = Node(
        Config(
            topology_policy=TopologyPolicy.NONE,
            topology_scope=TopologyScope.CONTAINER,
            cpu_options={"strict-cpu-reservation": "true"},
        ),
        topology(4, 1),
    )
    owner = node.owner()
    owner.admit(pod("a", cpu="2", memory="1Gi"), "api")
    before, writes = owner.snapshot().state, len(node.cgroups.log)
    verdict = owner.admit(pod("b", cpu="1", memory="1Gi"), "api")
    assert "would leave no CPU in the shared pool" in verdict.message
    assert owner.snapshot().state == before
    assert len(node.cgroups.log) == writes
    assert str(before.cpu.default) == "3"


def test_c2_every_shared_container_has_left_the_cpus_before_their_owner_can_start() -> None:
    node = Node(container_scope())
    owner = node.owner()
    owner.admit(parsed(best_effort("guest")), "api")
    guest = owner.snapshot().pods[PodUid("uid-guest")].directories["main"]
    start = len(node.cgroups.log)
    owner.admit(pod("a"), "api")
    taken = owner.snapshot().cpus(PodUid("uid-a"), "main")
    made = node.cgroups.log.index(MakeDir(CgroupDir("poduid-a")), start)
    shrunk = [op for op in node.cgroups.log[start:made] if isinstance(op, Write) and op.file == CPUS]
    assert shrunk
    assert all(CpuSet.parse(op.text).isdisjoint(taken) for op in shrunk)
    assert node.cgroups.effective_cpus(guest).isdisjoint(taken)


def test_c3_a_pod_without_cpu_is_admitted_where_no_cpu_is_left_to_give() -> None:
    node = Node(Config(topology_policy=TopologyPolicy.NONE), topology(4, 1))
    owner = node.owner()
    owner.admit(pod("a", cpu="3", memory="1Gi"), "api")
    verdict = owner.admit(pod("zero", cpu="0", memory="64Mi"), "api")
    assert verdict.reason == ""
    assert owner.snapshot().cpus(PodUid("uid-zero"), "main") == CpuSet.parse("0")


def test_c6_an_exclusive_container_is_never_throttled() -> None:
    node = Node()
    owner = node.owner()
    owner.admit(pod("a", cpu="1"), "api")
    view = owner.kernel_view(PodUid("uid-a"), "main")
    assert view[CPU_MAX].split()[0] == "max"
    assert view["nr_throttled"] == "0"


def test_c7_one_exclusive_container_does_not_unlock_the_others() -> None:
    node = Node()
    owner = node.owner()
    owner.admit(parsed(budgeted("team", cpu="3")), "api")
    directories = owner.snapshot().pods[PodUid("uid-team")].directories
    assert node.cgroups.read(directories["main"], CPU_MAX) == "max 100000"
    pool = CgroupDir(directories["helper"].rpartition("/")[0])
    assert node.cgroups.read(CgroupDir("poduid-team"), CPU_MAX) == "max 100000"
    assert node.cgroups.read(pool, CPU_MAX) == "100000 100000", "3 CPUs less the 2 exclusive ones"


@pytest.mark.parametrize(
    ("sidecar", "sizes"),
    [
        pytest.param(one("log", "1"), {"main": 2, "log": 1, "rest": 1}, id="a whole CPU is its own"),
        pytest.param({"name": "log"}, {"main": 2, "log": 2, "rest": 2}, id="nothing stated, it shares"),
    ],
)
def test_c10_a_sidecar_shares_the_budget_unless_it_states_whole_cpus(
    sidecar: dict[str, Any], sizes: dict[str, int]
) -> None:
    owner = Node().owner()
    owner.admit(
        containers(apps=[one("main", "2"), sidecar, {"name": "rest"}], budget=limits("4", "2Gi")), "api"
    )
    cpus = {name: owner.snapshot().cpus(UID, name) for name in sizes}
    assert {name: len(held) for name, held in cpus.items()} == sizes
    assert (cpus["log"] == cpus["rest"]) == (sizes["log"] == 2)
    assert cpus["main"].isdisjoint(cpus["log"] | cpus["rest"])
