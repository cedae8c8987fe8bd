"""What a configuration means on a machine: what is reserved, where, and whether it adds up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.config import Config, load_config
from agent.config.address import Address, parse_address
from agent.containermanager.machine import Machine
from agent.domain.idset import CpuSet
from agent.domain.pod import CPU, MEMORY, ResourceName
from agent.domain.topology import CoreId, CpuId, Topology
from agent.errors import ConfigError
from tests.containermanager.node import GIB, topology

MIB = 1 << 20


def config(text: str) -> Config:
    return load_config(text.encode(), "config.yaml")


def smt(cpus: int, threads: int) -> Topology:
    """One NUMA node whose neighbouring CPUs share a core."""
    plain = topology()
    return Topology(
        cpus=tuple(replace(plain.cpus[0], id=CpuId(cpu), core=CoreId(cpu // threads)) for cpu in range(cpus)),
        nodes=(replace(plain.nodes[0], cpus=CpuSet.of(range(cpus)), distances=(10,)),),
    )


def reserved_memory(config: Config, machine: Topology) -> dict[int, dict[str, int]]:
    settings = config.settings(machine)
    return {
        node: {name: amount.value for name, amount in limits.items()}
        for node, limits in settings.reserved_memory.items()
    }


def test_by_default_one_cpu_and_the_eviction_threshold_are_reserved_and_it_adds_up() -> None:
    machine = topology()
    settings = Config().settings(machine)
    assert settings.node_reserved[CPU].value == 1
    assert settings.node_reserved[MEMORY].value == 100 * MIB
    assert reserved_memory(Config(), machine) == {0: {"memory": 100 * MIB}}
    made = Machine.of(machine, settings, "")
    assert made.managers.cpu.reserved == CpuSet.of([0])


@pytest.mark.parametrize(
    ("threads", "cpus", "reserved"),
    [
        pytest.param(1, 8, CpuSet.of([0]), id="cores of one thread"),
        pytest.param(2, 8, CpuSet.of([0, 1]), id="the sibling, too"),
        pytest.param(2, 2, CpuSet.of([0]), id="one core only: the other thread is left for pods"),
        pytest.param(1, 1, CpuSet.of([0]), id="one CPU only"),
    ],
)
def test_where_nothing_is_reserved_one_whole_core_is(threads: int, cpus: int, reserved: CpuSet) -> None:
    machine = smt(cpus, threads)
    made = Machine.of(machine, Config().settings(machine), "")
    assert made.managers.cpu.reserved == reserved


def test_reserved_system_cpus_replace_the_reserved_amount() -> None:
    settings = config("reservedSystemCPUs: 0,4\nkubeReserved: {cpu: 500m}").settings(topology())
    assert settings.node_reserved[CPU].value == 2


def test_kube_and_system_reserved_add_up_with_the_eviction_threshold() -> None:
    text = "kubeReserved: {cpu: 500m, memory: 1Gi}\nsystemReserved: {cpu: 700m, memory: 512Mi}"
    settings = config(text).settings(topology())
    assert settings.node_reserved[CPU].milli == 1200
    assert settings.node_reserved[MEMORY].value == GIB + 612 * MIB


def test_an_eviction_percentage_is_of_the_whole_machines_memory() -> None:
    settings = config("evictionHard: {memory.available: 12.5%}").settings(topology())
    assert settings.node_reserved[MEMORY].value == GIB


def test_reserved_memory_fills_the_lowest_nodes_to_one_half() -> None:
    assert reserved_memory(config("kubeReserved: {memory: 3Gi}"), topology()) == {
        0: {"memory": 2 * GIB},
        1: {"memory": GIB + 100 * MIB},
    }


def test_reserved_huge_pages_are_placed_where_there_are_any() -> None:
    plain = topology()
    nodes = (plain.nodes[0], replace(plain.nodes[1], hugepages={2048: 64}))
    machine = Topology(cpus=plain.cpus, nodes=nodes)
    made = config("systemReserved: {hugepages-2Mi: 32Mi}")
    assert reserved_memory(made, machine)[1] == {"hugepages-2Mi": 32 * MIB}
    settings = made.settings(machine)
    assert settings.node_reserved[ResourceName("hugepages-2Mi")].value == 32 * MIB
    Machine.of(machine, settings, made.reservation_arithmetic(machine))


def test_a_machine_without_memory_gets_no_reservation() -> None:
    plain = topology()
    machine = Topology(cpus=plain.cpus, nodes=tuple(replace(node, memory=0) for node in plain.nodes))
    assert reserved_memory(Config(), machine) == {}


def test_reserved_memory_that_does_not_add_up_is_refused_with_the_arithmetic() -> None:
    text = """
kubeReserved: {memory: 1Gi}
systemReserved: {memory: 512Mi}
reservedMemory:
- {numaNode: 0, limits: {memory: 1Gi}}
- {numaNode: 1, limits: {memory: 256Mi}}
"""
    machine, made = topology(), config(text)
    with pytest.raises(ConfigError) as caught:
        Machine.of(machine, made.settings(machine), made.reservation_arithmetic(machine))
    assert caught.value.message == (
        'the total amount "1280Mi" of type "memory" is not equal to the value "1636Mi"'
        " determined by Node Allocatable feature"
    )
    assert caught.value.hint == (
        "reservedMemory: 1Gi on node 0 + 256Mi on node 1;"
        " kubeReserved 1Gi + systemReserved 512Mi + evictionHard 100Mi = 1636Mi"
    )


def test_other_errors_keep_their_own_hint() -> None:
    machine, made = topology(), config("reservedMemory: [{numaNode: 7, limits: {memory: 100Mi}}]")
    with pytest.raises(ConfigError, match="references a NUMA node 7") as caught:
        Machine.of(machine, made.settings(machine), "arithmetic")
    assert caught.value.hint == "this machine has NUMA nodes 0-1"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("", None),
        ("127.0.0.1:9447", Address("127.0.0.1", 9447)),
        ("localhost:0", Address("localhost", 0)),
        (":9447", Address("", 9447)),
        ("[::1]:9447", Address("::1", 9447)),
        ("[::]:9447", Address("::", 9447)),
    ],
)
def test_addresses(text: str, address: Address | None) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text",
    [
        "9447",
        "localhost",
        "::1:9447",
        "[localhost]:1",
        "[::1]",
        "a:65536",
        "a:-1",
        "a:\u0663",
        "a:99999999999",
    ],
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        parse_address(text)
