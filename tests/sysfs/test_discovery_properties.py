"""Any machine written out as sysfs files is discovered as it was."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from agent.domain.idset import NO_CPUS, CpuSet
from agent.domain.topology import CoreId, Cpu, CpuId, NodeId, NumaNode, SocketId, Topology, UncoreId
from agent.sysfs.discovery import discover
from agent.sysfs.reader import RecordedSysfs
from agent.sysfs.recorded import record
from tests.sysfs.synthetic import GIB, Files, files_of, without

IDS = st.integers(0, 2047)


@st.composite
def labels(draw: st.DrawFn, cpus: list[int]) -> dict[int, int]:
    """Any grouping of the CPUs: each group is named by its lowest CPU."""
    chosen = draw(st.lists(st.integers(0, 4), min_size=len(cpus), max_size=len(cpus)))
    lowest: dict[int, int] = {}
    return {cpu: lowest.setdefault(label, cpu) for cpu, label in zip(cpus, chosen, strict=True)}


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """A machine whose cores, sockets, caches and nodes are grouped independently of one another."""
    ids = sorted(draw(st.sets(IDS, min_size=1, max_size=12)))
    node_ids = sorted(draw(st.sets(st.integers(0, 255), min_size=1, max_size=4)))
    node_of = {cpu: draw(st.sampled_from(node_ids)) for cpu in ids}
    core, socket, uncore = (draw(labels(ids)) for _ in range(3))
    has_cache = draw(st.booleans())
    first_id = draw(st.sampled_from((0, 5000)))
    hybrid = draw(st.booleans()) and len(ids) > 1
    capacity = {cpu: f"capacity-{1024 if cpu == ids[0] else 512}" for cpu in ids} if hybrid else {}
    cpus = tuple(
        Cpu(
            id=CpuId(cpu),
            core=CoreId(core[cpu]),
            socket=SocketId(socket[cpu]),
            node=NodeId(node_of[cpu]),
            uncore=UncoreId(first_id + uncore[cpu] if has_cache else socket[cpu]),
            die=draw(st.integers(0, 3)),
            cluster=draw(st.integers(0, 99)),
            core_type=capacity.get(cpu, ""),
        )
        for cpu in ids
    )
    nodes = tuple(
        NumaNode(
            id=NodeId(node),
            cpus=CpuSet.of(cpu for cpu in ids if node_of[cpu] == node),
            memory=draw(st.sampled_from((0, GIB, 3 * GIB + 4096))),
            hugepages=draw(st.dictionaries(st.sampled_from((64, 2048, 1048576)), st.integers(0, 9))),
            distances=tuple(draw(st.integers(10, 254)) for _ in node_ids),
        )
        for node in node_ids
    )
    online = CpuSet.of(ids)
    possible = online | CpuSet.of(draw(st.sets(IDS, max_size=4)))
    return Topology(
        cpus=cpus,
        nodes=nodes,
        offline=possible - online,
        possible=possible,
        isolated=CpuSet.of(draw(st.sets(st.sampled_from(ids)))),
        cacheless=NO_CPUS if has_cache else online,
    )


@given(topologies(), st.booleans(), st.sampled_from(("", "\n", "\0\0")))
def test_any_machine_is_discovered_as_it_was(topology: Topology, masks: bool, end: str) -> None:
    found = discover(RecordedSysfs("any", files_of(topology, masks=masks, end=end)))
    assert replace(found, warnings=()) == topology
    assert bool(found.warnings) == bool(topology.cacheless)


@st.composite
def damaged(draw: st.DrawFn) -> Files:
    """A machine of which some files are missing and some hold anything."""
    files = files_of(draw(topologies()), masks=draw(st.booleans()))
    files = without(
        files,
        *draw(st.lists(st.sampled_from(("online", "siblings", "package", "cache", "/node", "meminfo")))),
    )
    files |= {"proc/stat": "cpu0 1\n"}
    for path in draw(st.lists(st.sampled_from(sorted(files)), max_size=4)):
        files[path] = draw(st.text(st.characters(max_codepoint=255), max_size=12))
    return files


@given(damaged())
def test_no_damage_makes_discovery_fail_or_lose_a_cpu(files: Files) -> None:
    reader = RecordedSysfs("damaged", files)
    topology = discover(reader)
    assert topology.cpus
    for groups in (topology.cores, topology.sockets, topology.uncores, topology.node_cpus):
        assert CpuSet.of(cpu for cpus in groups.values() for cpu in cpus) == topology.online
    assert discover(record(reader, "copy")) == topology
