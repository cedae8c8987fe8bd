"""The kubelet's metrics of the topology, CPU and memory manager: names, labels, moments."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import Any

import pytest

from agent.cgroup.backend import DIRECTORY
from agent.cgroup.layout import CgroupDir
from agent.config import Config
from agent.domain.settings import CpuPolicy, MemoryPolicy, TopologyPolicy, TopologyScope
from agent.domain.topology import CoreId
from agent.errors import HostError
from tests.containermanager.node import best_effort, budgeted, limits, manifest, topology
from tests.metrics.scraped import Scraped

ALIGNED = "container_aligned_compute_resources_count"
NOT_ALIGNED = "container_aligned_compute_resources_failure_count"
TOO_MUCH = "64"


def pinning(scraped: Scraped, manager: str) -> tuple[float, float]:
    """Requests and errors."""
    [requests] = scraped.series(f"{manager}_manager_pinning_requests_total").values()
    [errors] = scraped.series(f"{manager}_manager_pinning_errors_total").values()
    return requests, errors


def admissions(scraped: Scraped) -> tuple[float, float]:
    """Requests and errors."""
    [requests] = scraped.series("topology_manager_admission_requests_total").values()
    [errors] = scraped.series("topology_manager_admission_errors_total").values()
    return requests, errors


def options(**cpu_options: str) -> Config:
    return Config(cpu_options={name.replace("_", "-"): text for name, text in cpu_options.items()})


def single_numa_node(scope: TopologyScope) -> Config:
    return Config(topology_policy=TopologyPolicy.SINGLE_NUMA_NODE, topology_scope=scope)


def two_containers(name: str, first: str, second: str) -> dict[str, Any]:
    document = manifest(name)
    document["spec"]["containers"] = [
        {"name": "one", "resources": limits(first, "64Mi")},
        {"name": "two", "resources": limits(second, "64Mi")},
    ]
    return document


def with_init_containers(name: str) -> dict[str, Any]:
    """A pod with pod-level resources, an exclusive app, a sharing one, a sharing init and a sharing sidecar."""
    document = budgeted(name)
    document["spec"]["initContainers"] = [
        {"name": "init"},
        {"name": "sidecar", "restartPolicy": "Always"},
    ]
    return document


def test_each_admission_is_a_request_and_each_refusal_an_error() -> None:
    scraped = Scraped()
    scraped.admit(manifest("a"), best_effort("b"), manifest("c", cpu=TOO_MUCH), manifest("a"))
    assert admissions(scraped) == (3, 1)  # the last is the first again: nothing was decided


def test_policy_none_is_never_in_error() -> None:
    scraped = Scraped(Config(topology_policy=TopologyPolicy.NONE))
    scraped.admit(manifest("a", cpu=TOO_MUCH))
    assert admissions(scraped) == (1, 0)
    assert pinning(scraped, "cpu") == (1, 1)


def test_the_duration_is_observed_in_whole_milliseconds_in_the_kubelets_buckets() -> None:
    scraped = Scraped()
    scraped.admit(manifest("a"), manifest("b", cpu=TOO_MUCH))
    buckets = scraped.series("topology_manager_admission_duration_ms_bucket")
    bounds = "0.05 0.1 0.2 0.4 0.8 1.6 3.2 6.4 12.8 25.6 51.2 102.4 204.8 409.6 819.2 +Inf"
    assert list(buckets) == bounds.split()
    assert buckets["+Inf"] == scraped.series("topology_manager_admission_duration_ms_count")[""] == 2
    assert scraped.series("topology_manager_admission_duration_ms_sum")[""] % 1 == 0


def test_a_restart_asks_again_for_what_is_held() -> None:
    scraped = Scraped(options(full_pcpus_only="true"))
    scraped.admit(manifest("a"))
    scraped.start()
    assert admissions(scraped) == (1, 0)
    assert pinning(scraped, "cpu") == pinning(scraped, "memory") == (1, 0)
    assert scraped.counted(ALIGNED) == {"physical_cpu container": 1}


def test_each_container_with_cpus_or_memory_of_its_own_is_a_request_to_pin() -> None:
    scraped = Scraped()
    scraped.admit(two_containers("a", "1", "500m"), best_effort("b"))
    assert pinning(scraped, "cpu") == (1, 0)
    assert pinning(scraped, "memory") == (2, 0)


def test_of_a_pod_allocated_as_one_each_exclusive_container_asks_for_cpus() -> None:
    scraped = Scraped()
    scraped.admit(budgeted("a"))
    assert pinning(scraped, "cpu") == (1, 0)


def test_of_a_pod_allocated_as_one_pod_init_containers_and_exclusive_apps_ask_for_memory() -> None:
    scraped = Scraped()
    scraped.admit(with_init_containers("a"))
    assert pinning(scraped, "memory") == (1 + 2 + 1, 0)


def test_a_container_that_shares_in_a_budget_does_not_ask_in_container_scope() -> None:
    scraped = Scraped(Config(topology_scope=TopologyScope.CONTAINER))
    scraped.admit(budgeted("a"))
    assert pinning(scraped, "cpu") == pinning(scraped, "memory") == (1, 0)


def test_a_pod_whose_exclusive_containers_leave_nothing_to_share_is_an_error_without_a_request() -> None:
    scraped = Scraped(Config(topology_policy=TopologyPolicy.BEST_EFFORT))
    scraped.admit(budgeted("a", cpu="2"))
    assert pinning(scraped, "cpu") == (0, 1)
    assert admissions(scraped) == (1, 1)
    assert scraped.counted("admission_rejections_total") == {"EmptyPodSharedPoolError": 1}


def test_memory_that_cannot_be_had_is_an_error() -> None:
    scraped = Scraped(Config(topology_policy=TopologyPolicy.NONE))
    scraped.admit(manifest("a", memory="64Gi"))
    assert pinning(scraped, "cpu") == (1, 0)
    assert pinning(scraped, "memory") == (1, 1)


def test_what_is_undone_because_the_kernel_failed_is_a_request_and_a_rejection_alone() -> None:
    scraped = Scraped()
    scraped.node.cgroups.fail(CgroupDir("poduid-a"), DIRECTORY, errno.EIO)
    scraped.admit(manifest("a"))
    assert admissions(scraped) == (1, 0)
    assert pinning(scraped, "cpu") == (0, 0)
    assert scraped.counted("admission_rejections_total") == {"EnforcementError": 1}


def test_without_a_machine_nothing_is_decided_but_the_pod_is_rejected() -> None:
    scraped = Scraped()

    def look() -> None:
        raise HostError("no sysfs")

    scraped.owner.hardware_changed(look)  # type: ignore[arg-type]
    scraped.admit(manifest("a"))
    assert admissions(scraped) == (0, 0)
    assert scraped.counted("admission_rejections_total") == {"DiscoveryError": 1}


def test_rejections_have_the_reason_the_pod_is_given() -> None:
    scraped = Scraped(options(full_pcpus_only="true"))
    scraped.admit(manifest("a", cpu=TOO_MUCH), manifest("b", cpu=TOO_MUCH))
    assert scraped.counted("admission_rejections_total") == {"TopologyAffinityError": 2}
    assert scraped.series("admission_rejections_total")["SMTAlignmentError"] == 0


@pytest.mark.parametrize("scope", TopologyScope)
def test_a_single_numa_node_is_aligned_per_pod_or_per_container(scope: TopologyScope) -> None:
    scraped = Scraped(single_numa_node(scope))
    scraped.admit(two_containers("a", "1", "1"), manifest("b", cpu="5"))
    alignments = 1 if scope is TopologyScope.POD else 2
    assert scraped.counted(ALIGNED) == {f"numa_node {scope.value}": alignments}
    assert scraped.counted(NOT_ALIGNED) == {f"numa_node {scope.value}": 1}


def test_containers_aligned_before_one_that_is_not_count() -> None:
    scraped = Scraped(single_numa_node(TopologyScope.CONTAINER))
    scraped.admit(two_containers("a", "1", "5"))
    assert scraped.counted(ALIGNED) == scraped.counted(NOT_ALIGNED) == {"numa_node container": 1}


def test_other_policies_promise_no_alignment() -> None:
    scraped = Scraped()
    scraped.admit(manifest("a"), manifest("b", cpu=TOO_MUCH))
    zero = {"numa_node container": 0, "numa_node pod": 0}
    assert scraped.series(ALIGNED) == scraped.series(NOT_ALIGNED) == zero


def test_without_policies_there_is_nothing_to_align() -> None:
    off = Config(
        cpu_policy=CpuPolicy.NONE, memory_policy=MemoryPolicy.NONE, topology_policy=TopologyPolicy.NONE
    )
    scraped = Scraped(off)
    assert scraped.series(ALIGNED) == {}
    assert scraped.series("cpu_manager_shared_pool_size_millicores") == {"": 0}


def test_full_pcpus_only_counts_containers_on_whole_cores_and_those_that_could_not_be() -> None:
    config = replace(options(full_pcpus_only="true"), topology_policy=TopologyPolicy.NONE)
    plain = topology()
    cores = tuple(replace(cpu, core=CoreId(cpu.id // 2 * 2)) for cpu in plain.cpus)
    scraped = Scraped(config, replace(plain, cpus=cores))
    scraped.admit(manifest("a"), manifest("b", cpu="1"), budgeted("c", cpu="4"))
    assert scraped.series(ALIGNED) == {"physical_cpu container": 2}
    assert scraped.series(NOT_ALIGNED) == {"physical_cpu container": 1}


def test_with_the_uncore_option_allocations_within_one_cache_count() -> None:
    scraped = Scraped(options(prefer_align_cpus_by_uncorecache="true"))
    scraped.admit(manifest("a", cpu="2"), manifest("b", cpu="5"), budgeted("c", cpu="3"))
    assert scraped.counted(ALIGNED) == {"uncore_cache container": 2}


def test_the_gauges_follow_what_is_taken_and_released() -> None:
    scraped = Scraped()

    def gauges() -> tuple[float, float, float]:
        names = ("shared_pool_size_millicores", "exclusive_cpu_allocation_count", "allocation_per_numa")
        pool, exclusive, per_node = (sum(scraped.series(f"cpu_manager_{name}").values()) for name in names)
        return pool, exclusive, per_node

    all_shared = (8 - len(scraped.node.managers.cpu.reserved)) * 1000.0
    assert gauges() == (all_shared, 0, 0)
    scraped.admit(manifest("a"), budgeted("b"))
    assert gauges() == (all_shared - 5000, 5, 5)
    assert set(scraped.series("cpu_manager_allocation_per_numa")) == {"0", "1"}
    for uid in tuple(scraped.owner.snapshot().pods):
        scraped.owner.remove(uid, 0)
    assert gauges() == (all_shared, 0, 0)
