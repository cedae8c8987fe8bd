"""Discovery: what sysfs says about the machine, as one `Topology`."""

from __future__ import annotations

from agent.domain.topology import CoreId, Cpu, CpuId, SocketId, Topology, UncoreId
from agent.sysfs.caches import uncore_caches
from agent.sysfs.cpus import core_types, cores, part, presence, sockets
from agent.sysfs.nodes import nodes_of_cpus, numa_nodes
from agent.sysfs.probe import Probe
from agent.sysfs.reader import SysfsReader


def discover(reader: SysfsReader) -> Topology:
    """Read the machine; what is missing or contradictory is told in ``Topology.warnings``.

    Raises HostError only where not a single CPU can be found.
    """
    probe = Probe(reader)
    found = presence(probe)
    online = found.online
    nodes = numa_nodes(probe, online)
    node_of = nodes_of_cpus(probe, nodes, online)
    core_of = cores(probe, online)
    socket_of = sockets(probe, online, node_of)
    uncore_of, cacheless = uncore_caches(probe, online, socket_of)
    types = core_types(probe, online)
    cpus = tuple(
        Cpu(
            id=CpuId(cpu),
            core=CoreId(core_of[cpu]),
            socket=SocketId(socket_of[cpu]),
            node=node_of[cpu],
            uncore=UncoreId(uncore_of[cpu]),
            die=part(probe, cpu, "die_id"),
            cluster=part(probe, cpu, "cluster_id"),
            core_type=types.get(cpu, ""),
        )
        for cpu in online
    )
    return Topology(
        cpus=cpus,
        nodes=nodes,
        offline=found.offline,
        possible=found.possible,
        isolated=found.isolated,
        cacheless=cacheless,
        warnings=probe.findings.sentences(),
    )
