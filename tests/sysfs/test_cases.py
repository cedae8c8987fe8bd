"""What went wrong for other people when they read a machine: the cases D1 to D22."""

from __future__ import annotations

import pytest

from agent.domain.idset import CpuSet, NodeMask
from agent.domain.topology import NO_NODE, CoreId, CpuId, SocketId, Topology
from agent.errors import HostError
from agent.sysfs.discovery import discover
from agent.sysfs.reader import ABSENT, RecordedSysfs
from tests.sysfs.machines import discovered, recording
from tests.sysfs.synthetic import CPU, GIB, NODE, Files, files_of, machine, mask, texts, without


def _discover(files: Files) -> Topology:
    return discover(RecordedSysfs("synthetic", files))


def _warned(topology: Topology, *parts: str) -> bool:
    return any(all(part in warning for part in parts) for warning in topology.warnings)


@pytest.mark.parametrize(
    ("name", "cores"),
    [
        pytest.param("x86_64-epyc_7451", 48, id="core_id repeats in each socket"),
        pytest.param("rv64-milkvpioneer", 64, id="core_id repeats in each cluster"),
        pytest.param("s390-lpar-drawer", 8, id="books and drawers"),
        pytest.param("s390x-smt2", 4, id="books and drawers, SMT"),
    ],
)
def test_d1_a_core_is_its_thread_siblings(name: str, cores: int) -> None:
    assert len(discovered(name).cores) == cores


def test_d2_an_unknown_socket_is_a_pseudo_socket_per_numa_node_and_said() -> None:
    power, sparc = discovered("256ppc-8n8s4t"), discovered("sparc64")
    assert power.sockets == {SocketId(node): cpus for node, cpus in power.node_cpus.items()}
    assert list(power.sockets) == [0, 1, 4, 5, 8, 9, 12, 13]
    assert _warned(power, "CPU 0-255", "socket unknown")
    assert texts(sparc.sockets.values()) == ["6-7,10-11,14-15"]
    assert _warned(sparc, "CPU 6-7,10-11,14-15", "socket unknown")


def test_d2_pseudo_sockets_never_take_a_known_sockets_id() -> None:
    files = files_of(machine(sockets=2, nodes=2, cores=1, threads=2))
    for cpu in (4, 5, 6):
        files[f"{CPU}/cpu{cpu}/topology/physical_package_id"] = "-1\n"
    files[f"{NODE}/node3/cpulist"] = "7\n"
    topology = _discover(files)
    assert texts(topology.sockets.values()) == ["0-3", "7", "4-5", "6"]
    assert list(topology.sockets) == [0, 1, 4, 6]
    assert _warned(topology, "CPU 4-6:", "socket unknown")


@pytest.mark.parametrize(
    ("name", "online", "offline"),
    [
        ("16em64t-4s2c2t-offlines", "0-1,3-4,6-12,15", "2,5,13-14"),
        ("s390-lpar-drawer", "0-7", "8-140"),
        ("vm-offline-cpus", "0-1", "2-3"),
        ("32amd64-4s2n4c-cgroup2", "0-31", "32-47"),
    ],
)
def test_d4_offline_cpus_are_in_no_socket(name: str, online: str, offline: str) -> None:
    topology = discovered(name)
    assert (str(topology.online), str(topology.offline)) == (online, offline)
    assert all(topology.offline.isdisjoint(cpus) for cpus in topology.sockets.values())


def test_d5_a_cpu_without_an_online_file_is_online() -> None:
    files = without(files_of(machine(cores=4, threads=1)), "cpu/online", "cpu/offline", "cpu/possible")
    files |= {f"{CPU}/cpu1/online": "1\n", f"{CPU}/cpu2/online": "0\n"}
    topology = _discover(files)
    assert str(topology.online) == "0-1,3"
    assert str(topology.offline) == "2"
    assert not topology.warnings


def test_d6_without_topology_files_the_machine_is_one_socket_of_single_threads() -> None:
    topology = _discover({f"{CPU}/online": "0-3\n", "proc/meminfo": "MemTotal: 4096 kB\n"})
    assert texts(topology.cores.values()) == ["0", "1", "2", "3"]
    assert texts(topology.sockets.values()) == ["0-3"]
    assert [(node.id, str(node.cpus), node.memory) for node in topology.nodes] == [(0, "0-3", 4 << 20)]
    assert _warned(topology, "CPU 0-3", "no thread siblings")
    assert _warned(topology, "whole machine counts as one")


def test_d6_without_a_list_in_sysfs_the_cpus_are_those_of_proc_stat() -> None:
    topology = _discover({"proc/stat": "cpu  1 2 3\ncpu0 1 2 3\ncpu7 1 2 3\nintr 12\n"})
    assert str(topology.online) == "0,7"
    assert _warned(topology, "proc/stat")


def test_d6_a_machine_never_has_no_cpus() -> None:
    with pytest.raises(HostError, match="no CPU found"):
        _discover({})


def test_d7_only_online_nodes_count() -> None:
    files = files_of(machine(sockets=2))
    files |= {f"{NODE}/possible": "0-7\n", f"{NODE}/node2/cpulist": "0-3\n", f"{NODE}/node2/distance": "10\n"}
    topology = _discover(files)
    assert topology.all_nodes == NodeMask.parse("0-1")
    assert not topology.warnings


def test_d8_column_k_of_the_distances_is_the_kth_online_node() -> None:
    ids = (0, 1, 2, 33, 34, 45, 72, 73)
    files = without(files_of(machine(cores=8, threads=1)), NODE)
    files[f"{NODE}/online"] = "0-2,33-34,45,72-73\n"
    for k, node in enumerate(ids):
        row = " ".join(str(10 + abs(k - other)) for other in range(len(ids)))
        files |= {f"{NODE}/node{node}/cpulist": f"{k}\n", f"{NODE}/node{node}/distance": f"{row}\n"}
    nodes = _discover(files).nodes
    assert tuple(node.id for node in nodes) == ids
    assert nodes[3].distances == (13, 12, 11, 10, 11, 12, 13, 14)
    assert discovered("256ppc-8n8s4t").nodes[2].distances == (40, 40, 10, 20, 40, 40, 40, 40)


def test_d8_distances_that_do_not_fit_the_nodes_are_left_out_and_said() -> None:
    files = files_of(machine(sockets=2))
    files[f"{NODE}/node1/distance"] = "20 10 20\n"
    topology = _discover(files)
    assert [node.distances for node in topology.nodes] == [(10, 20), ()]
    assert _warned(topology, "NUMA node 1", "distances")


def test_d9_cpus_of_an_offline_node_are_usable_but_on_no_node() -> None:
    topology = discovered("offline-cpu0-node0")
    stray = CpuSet.parse("4,6,8,10,12,14,16,18,20")
    assert topology.node_cpus[NO_NODE] == stray
    assert stray <= topology.online
    assert topology.cpu_nodes == NodeMask.parse("1")
    assert topology.by_id[CpuId(4)].socket == SocketId(0)
    assert _warned(topology, f"CPU {stray}", "no online NUMA node")


@pytest.mark.parametrize(
    ("name", "with_cpus", "memory_only"),
    [("nvidiagpunumanodes", "0,8", "250-255"), ("intel-snc2-pmem-112cpu", "0-3", "4-7")],
)
def test_d10_memory_only_nodes_are_no_cpu_nodes(name: str, with_cpus: str, memory_only: str) -> None:
    topology = discovered(name)
    assert topology.cpu_nodes == NodeMask.parse(with_cpus)
    assert topology.all_nodes - topology.cpu_nodes == NodeMask.parse(memory_only)
    assert all(node.memory > 0 for node in topology.nodes)


def test_d11_a_node_may_have_cpus_and_no_memory() -> None:
    topology = discovered("fakememinitiators-1np2c+1npp+gi")
    assert [node.memory for node in topology.nodes if node.cpus] == [0, 0, 0, 0]
    assert NodeMask.of(node.id for node in topology.nodes if node.memory) == NodeMask.parse("5-10")
    assert not _warned(topology, "memory unknown")


def test_d13_threads_are_counted_per_core() -> None:
    topology = discovered("intel-hybrid-laptop")
    assert len(topology.cpus) == 16
    assert texts(topology.cores.values()) == ["0-1", "2-3", "4-5", "6-7", *map(str, range(8, 16))]
    assert topology.siblings(CpuSet.parse("1")) == CpuSet.parse("0-1")
    assert topology.siblings(CpuSet.parse("9")) == CpuSet.parse("9")


def test_d14_absent_hybrid_files_mean_a_uniform_machine() -> None:
    uniform = _discover(files_of(machine()))
    assert {cpu.core_type for cpu in uniform.cpus} == {""}
    assert not uniform.warnings
    same = files_of(machine()) | {f"{CPU}/cpu{cpu}/cpu_capacity": "1024\n" for cpu in range(4)}
    assert {cpu.core_type for cpu in _discover(same).cpus} == {""}
    one_kind = files_of(machine()) | {"sys/devices/cpu_core/cpus": "0-3\n"}
    assert {cpu.core_type for cpu in _discover(one_kind).cpus} == {""}


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("intel-hybrid-laptop", {"cpu_core": "0-7", "cpu_atom": "8-15"}),
        (
            "intel-snc2-hybrid-80cpu",
            {"cpu_core": "0-15,20-35,40-55,60-75", "cpu_atom": "16-19,36-39,56-59,76-79"},
        ),
        ("arm-A510-A710-A715-X3", {"capacity-280": "0-2", "capacity-855": "3-6", "capacity-1024": "7"}),
    ],
)
def test_d14_core_types_are_named_as_the_kernel_names_them(name: str, types: dict[str, str]) -> None:
    cpus = discovered(name).cpus
    found = {kind: str(CpuSet.of(cpu.id for cpu in cpus if cpu.core_type == kind)) for kind in types}
    assert found == types


@pytest.mark.parametrize(
    ("name", "caches"),
    [
        pytest.param("nvidia-dgx-gb10", ["0-9", "10-19"], id="L3 without id"),
        pytest.param("loongarch-kvm_on_loongson_3c6000", ["0-31"], id="one L3 for 32 sockets"),
        pytest.param(
            "memorysidecaches",
            [str(CpuSet.of(range(first, 80, 2))) for first in (0, 1)],
            id="one L3 over two nodes",
        ),
    ],
)
def test_d15_a_cache_is_the_cpus_that_share_it(name: str, caches: list[str]) -> None:
    topology = discovered(name)
    assert texts(topology.uncores.values()) == caches
    assert not topology.cacheless


def test_d15_repeated_ids_of_caches_and_unknown_clusters_do_not_count() -> None:
    files = files_of(machine(nodes=2))
    for cpu in range(8):
        files |= {f"{CPU}/cpu{cpu}/topology/cluster_id": "65535\n", f"{CPU}/cpu{cpu}/cache/index3/id": "7\n"}
    topology = _discover(files)
    assert {uncore: str(cpus) for uncore, cpus in topology.uncores.items()} == {0: "0-3", 4: "4-7"}
    assert {cpu.cluster for cpu in topology.cpus} == {0}


def test_d15_ids_of_caches_give_their_order() -> None:
    files = files_of(machine(nodes=2))
    files |= {f"{CPU}/cpu{cpu}/cache/index3/id": f"{9 - cpu // 4}\n" for cpu in range(8)}
    uncores = _discover(files).uncores
    assert {uncore: str(cpus) for uncore, cpus in uncores.items()} == {8: "4-7", 9: "0-3"}


def test_d15_cores_without_l3_do_not_join_the_cache_of_their_socket() -> None:
    topology = _discover(without(files_of(machine(cores=3)), "cpu4/cache", "cpu5/cache"))
    shared = _discover(without(files_of(machine(cores=3)), "cpu4/cache/index3", "cpu5/cache/index3"))
    # CPUs 0-3 still name 4 and 5 among those that share their L3: they are believed.
    assert texts(topology.uncores.values()) == texts(shared.uncores.values()) == ["0-5"]
    files = files_of(machine(cores=3)) | {
        f"{CPU}/cpu{c}/cache/index3/shared_cpu_list": "0-3\n" for c in range(4)
    }
    apart = _discover(without(files, "cpu4/cache/index3", "cpu5/cache/index3"))
    assert texts(apart.uncores.values()) == ["0-3", "4-5"]
    assert str(apart.cacheless) == "4-5"
    assert list(apart.uncores) == [0, 1]
    assert _warned(apart, "CPU 4-5", "no L3 cache")


def test_d17_cpu_ids_may_be_large_and_sparse() -> None:
    ids = (0, 1, 2, 511, 1024, 4095)
    files = {f"{CPU}/online": "0-2,511,1024,4095\n", f"{CPU}/kernel_max": "8191\n", f"{NODE}/online": "255\n"}
    files[f"{NODE}/node255/cpumap"] = mask(CpuSet.of(ids)) + "\n"
    for cpu in ids:
        files[f"{CPU}/cpu{cpu}/topology/thread_siblings"] = mask(CpuSet.of([cpu])) + "\n"
        files[f"{CPU}/cpu{cpu}/topology/physical_package_id"] = "0\n"
    topology = _discover(files)
    assert tuple(topology.online) == ids
    assert tuple(topology.nodes[0].cpus) == ids
    assert tuple(topology.cores) == ids


@pytest.mark.parametrize("end", ["", "\n", "\n\0", "\0\0\0\0"], ids=repr)
def test_d18_nul_padding_and_a_missing_newline_are_ignored(end: str) -> None:
    expected = machine(sockets=2)
    assert _discover(files_of(expected, end=end)) == expected


def test_d18_an_empty_cpulist_is_a_node_without_cpus() -> None:
    files = files_of(machine(sockets=2)) | {f"{NODE}/node1/cpulist": "\n"}
    topology = _discover(files)
    assert [str(node.cpus) for node in topology.nodes] == ["0-3", ""]
    assert _warned(topology, "CPU 4-7", "no online NUMA node")


@pytest.mark.parametrize(
    ("name", "listed", "counted"),
    [("nvidiagpunumanodes", "0-87", "0-15"), ("s390-lpar-drawer", "1fff", "0-7")],
)
def test_d19_cpus_that_do_not_exist_are_on_no_node(name: str, listed: str, counted: str) -> None:
    raw = (recording(name).read(f"{NODE}/node0/{file}") for file in ("cpulist", "cpumap"))
    assert any(text is not ABSENT and text.startswith(listed) for text in raw)
    assert str(discovered(name).nodes[0].cpus) == counted


def test_d21_isolated_cpus_are_read_from_sysfs_without_cpuinfo() -> None:
    assert str(discovered("intel-snc2-pmem-112cpu").isolated) == "4-7,60-63"
    assert recording("intel-snc2-pmem-112cpu").read("proc/cpuinfo") is ABSENT
    assert not _discover(without(files_of(machine()), "isolated")).isolated


def test_d22_discovery_after_hotplug_shows_the_machine_as_it_is_then() -> None:
    before = files_of(machine(sockets=2))
    after = without(before, "cpu7/topology", "cpu7/cache") | {
        f"{CPU}/online": "0-6\n",
        f"{CPU}/offline": "7\n",
        f"{CPU}/cpu6/topology/thread_siblings_list": "6\n",
    }
    assert str(_discover(before).online) == "0-7"
    topology = _discover(after)
    assert (str(topology.online), str(topology.offline)) == ("0-6", "7")
    assert str(topology.cores[CoreId(6)]) == "6"
    assert str(topology.nodes[1].cpus) == "4-6"


@pytest.mark.parametrize(
    ("change", "warning"),
    [
        pytest.param(
            {f"{CPU}/cpu2/topology/physical_package_id": "zero\n"},
            f"{CPU}/cpuN/topology/physical_package_id: not understood for N = 2, counts as absent",
            id="text for a number",
        ),
        pytest.param(
            {f"{CPU}/isolated": "7-3\n"},
            f"{CPU}/isolated: not understood, counts as absent",
            id="backward range",
        ),
        pytest.param(
            {f"{CPU}/cpu1/topology/thread_siblings_list": "1-2\n"},
            "CPU 1: contradictory thread siblings, the lowest CPU of each core is believed",
            id="siblings that disagree",
        ),
        pytest.param(
            {f"{CPU}/cpu3/cache/index3/shared_cpu_list": "3\n"},
            "CPU 3: contradictory L3 caches, the lowest CPU of each cache is believed",
            id="caches that disagree",
        ),
        pytest.param(
            {f"{NODE}/node1/cpulist": "3-7\n"},
            "CPU 3: on several NUMA nodes, the lowest counts",
            id="a CPU on two nodes",
        ),
        pytest.param(
            {f"{NODE}/node1/meminfo": "Node 1 MemFree: 1 kB\n"},
            "NUMA node 1: size of the memory unknown, counts as none",
            id="meminfo without a total",
        ),
        pytest.param(
            {f"{NODE}/online": "0-2\n"},
            "NUMA node 2: CPUs unknown, counts as having none",
            id="a node without files",
        ),
    ],
)
def test_what_is_contradictory_is_said_and_the_machine_stays_whole(change: Files, warning: str) -> None:
    topology = _discover(files_of(machine(sockets=2)) | change)
    assert warning in topology.warnings
    assert str(topology.online) == "0-7"
    assert sum(map(len, topology.cores.values())) == 8


def test_a_machine_without_numa_is_one_node_with_all_memory_and_huge_pages() -> None:
    files = without(files_of(machine()), NODE) | {
        "proc/meminfo": f"MemTotal: {GIB // 1024} kB\n",
        "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "3\n",
        "sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages": "1\n",
    }
    (node,) = _discover(files).nodes
    assert (node.id, str(node.cpus), node.memory) == (0, "0-3", GIB)
    assert node.hugepages == {2048: 3, 1048576: 1}
