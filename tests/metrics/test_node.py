"""The node as a scrape shows it: CPUs, memory, pods, throttling, and what went wrong."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from agent.cgroup.backend import EnforcementError
from agent.cgroup.layout import CgroupDir
from agent.config import Config
from agent.domain.settings import CpuPolicy, MemoryPolicy, TopologyPolicy
from agent.errors import HostError
from agent.metrics import DecisionMetrics, NodeMetrics
from agent.metrics.throttling import READ_AT_MOST
from tests.containermanager.node import GIB, best_effort, budgeted, manifest, topology
from tests.metrics.scraped import Scraped


def test_cpus_are_shown_per_numa_node() -> None:
    scraped = Scraped()
    scraped.admit(manifest("a"))
    reserved = len(scraped.node.managers.cpu.reserved)
    assert scraped.series("numalet_cpus_allocatable") == {"0": 4 - reserved, "1": 4}
    assert scraped.series("numalet_cpus_allocated") == {"0": 2, "1": 0}
    assert scraped.series("numalet_cpus_free") == {"0": 2 - reserved, "1": 4}
    assert scraped.series("numalet_cpus_shared") == {"0": 2, "1": 4}


def test_memory_is_shown_per_numa_node_and_type() -> None:
    plain = topology()
    nodes = tuple(replace(node, hugepages={2048: 8, 1 << 20: 1}) for node in plain.nodes)
    scraped = Scraped(machine=replace(plain, nodes=nodes))
    free = scraped.series("numalet_memory_free_bytes")
    scraped.admit(manifest("a"))
    allocatable = scraped.series("numalet_memory_allocatable_bytes")
    assert allocatable["1 hugepages-2Mi"] == 16 << 20
    assert allocatable["1 hugepages-1Gi"] == GIB
    assert scraped.series("numalet_memory_allocated_bytes")["0 memory"] == GIB
    assert scraped.series("numalet_memory_free_bytes")["0 memory"] == free["0 memory"] - GIB
    assert allocatable["0 memory"] == free["0 memory"]


def test_each_pod_is_counted_once_by_state_and_scope() -> None:
    scraped = Scraped()
    scraped.admit(manifest("a"), budgeted("b"), best_effort("c"), manifest("d", cpu="64"))
    pods = scraped.series("numalet_pods")
    assert {labels: count for labels, count in pods.items() if count} == {
        "container admitted": 1,
        "pod admitted": 1,
        "none admitted": 1,
        "none rejected": 1,
    }
    assert len(pods) == 12


def test_without_a_cpu_policy_every_cpu_is_shared_and_none_to_be_had() -> None:
    off = Config(
        cpu_policy=CpuPolicy.NONE, memory_policy=MemoryPolicy.NONE, topology_policy=TopologyPolicy.NONE
    )
    scraped = Scraped(off)
    assert scraped.series("numalet_cpus_shared") == {"0": 4, "1": 4}
    assert scraped.series("numalet_cpus_allocatable") == scraped.series("numalet_cpus_free")
    assert scraped.series("numalet_cpus_free") == {"0": 0, "1": 0}


def test_what_was_lost_drifted_or_is_degraded_is_counted() -> None:
    scraped = Scraped()
    scraped.admit(manifest("a"))
    scraped.node.store.files["cpu_manager_state"] = b""
    nodes = tuple(replace(node, memory=node.memory + (1 << 20)) for node in scraped.node.topology.nodes)
    lost = topology(offline=frozenset({1}))
    scraped.node = scraped.node.rebooted(replace(lost, nodes=nodes))
    scraped.start()
    assert scraped.series("numalet_state_recoveries_total") == {
        "cpu_manager_state": 1,
        "memory_manager_state": 0,
        "pods": 0,
    }
    assert scraped.series("numalet_memory_drift_bytes") == {"0": 1 << 20, "1": 1 << 20}
    assert scraped.counted("numalet_pods") == {"container degraded": 1}


def test_a_node_that_cannot_enforce_is_not_ready_and_shows_no_machine_it_cannot_look_at() -> None:
    scraped = Scraped()
    assert scraped.series("numalet_ready") == {"": 1}

    def look() -> None:
        raise HostError("no sysfs")

    scraped.owner.hardware_changed(look)  # type: ignore[arg-type]
    assert scraped.series("numalet_ready") == {"": 0}
    for name in ("numalet_cpus_free", "numalet_memory_free_bytes", "cpu_manager_allocation_per_numa"):
        assert scraped.series(name) == {}
        assert f"# TYPE {name} gauge\n" in scraped.page()


def test_the_mode_that_holds_is_the_one_that_is_told() -> None:
    scraped = Scraped()
    assert scraped.series("numalet_host_isolation") == {"none": 1, "slices": 0, "partition": 0}
    snapshot = replace(scraped.owner.snapshot(), host_isolation="partition")
    metrics = NodeMetrics(DecisionMetrics(), lambda: snapshot, scraped.node.cgroups.stat)
    page = metrics.page("text/plain")[0].decode()
    assert 'numalet_host_isolation{mode="partition"} 1.0' in page


def test_repairs_of_drift_are_counted_by_file() -> None:
    scraped = Scraped()
    repairs = scraped.series("cgroup_drift_repairs_total")
    assert repairs["cpuset.cpus"] == repairs["cgroup"] == 0
    snapshot = replace(scraped.owner.snapshot(), drift_repairs={"cpu.max": 2})
    metrics = NodeMetrics(DecisionMetrics(), lambda: snapshot, scraped.node.cgroups.stat)
    page = metrics.page("text/plain")[0].decode()
    assert 'cgroup_drift_repairs_total{file="cpu.max"} 2.0' in page


def test_the_stages_of_admissions_are_observed() -> None:
    scraped = Scraped()
    scraped.admit(manifest("a"), manifest("b", cpu="64"))
    counts = scraped.series("numalet_admission_stage_duration_seconds_count")
    assert counts == {"decide": 2, "persist": 1, "enforce": 1}


def test_the_build_is_told() -> None:
    assert re.search(r'^numalet_build_info\{version="[^"]+"\} 1\.0$', Scraped().page(), re.MULTILINE)


# --- throttling of exclusive slices ---------------------------------------------------------


class Kernel:
    """cpu.stat by cgroup; what was read, in order."""

    def __init__(self) -> None:
        self.stats: dict[str, Mapping[str, int]] = {}
        self.read: list[str] = []

    def stat(self, directory: CgroupDir) -> Mapping[str, int]:
        self.read.append(directory)
        if directory not in self.stats:
            raise EnforcementError(directory, "cpu.stat", "", "ENOENT", "gone", "")
        return self.stats[directory]


def throttled(scraped: Scraped, kernel: Kernel) -> dict[str, float]:
    """Periods by labels, from a page of metrics that read from ``kernel``."""
    scraped.metrics._throttling._stat = kernel.stat
    return dict(scraped.series("numalet_exclusive_throttled_periods_total"))


def test_exclusive_slices_tell_of_their_throttling_and_nobody_else_does() -> None:
    scraped, kernel = Scraped(), Kernel()
    scraped.admit(manifest("a"), budgeted("b"), best_effort("c"))
    kernel.stats = {
        "poduid-a/main": {"nr_throttled": 3, "throttled_usec": 2_500_000},
        "poduid-b/main": {"nr_throttled": 0, "throttled_usec": 0},
    }
    assert throttled(scraped, kernel) == {"main default a": 3, "main default b": 0}
    assert sorted(kernel.read) == ["poduid-a/main", "poduid-b/main"]
    assert scraped.series("numalet_exclusive_throttled_seconds_total")["main default a"] == 2.5


def test_a_slice_without_a_cgroup_or_without_the_cpu_controller_is_left_out() -> None:
    scraped, kernel = Scraped(), Kernel()
    scraped.admit(manifest("a"), budgeted("b"))
    kernel.stats = {"poduid-b/main": {"usage_usec": 1}}
    assert throttled(scraped, kernel) == {}


def test_a_scrape_reads_a_bounded_number_of_files_those_read_longest_ago_first() -> None:
    pods = READ_AT_MOST + 10
    scraped, kernel = Scraped(machine=topology(cpus=2 * pods)), Kernel()
    scraped.admit(*(manifest(f"p{number:03}", cpu="1", memory="1Mi") for number in range(pods)))
    kernel.stats = {f"poduid-p{number:03}/main": {"nr_throttled": number} for number in range(pods)}
    assert len(throttled(scraped, kernel)) == READ_AT_MOST
    first = set(kernel.read)
    kernel.read.clear()
    assert len(throttled(scraped, kernel)) == pods
    assert len(kernel.read) == READ_AT_MOST
    assert set(kernel.stats) - first <= set(kernel.read)


def test_a_pod_that_is_gone_has_no_series() -> None:
    scraped, kernel = Scraped(), Kernel()
    scraped.admit(manifest("a"))
    kernel.stats = {"poduid-a/main": {"nr_throttled": 1}}
    assert throttled(scraped, kernel)
    [uid] = scraped.owner.snapshot().pods
    scraped.owner.remove(uid, 0)
    assert throttled(scraped, kernel) == {}
