"""A configuration is checked against a machine completely, with the kubelet's words and the way out."""

from __future__ import annotations

import pytest

from agent.config import load_config
from agent.config.check import machine_problems
from tests.containermanager.node import topology

MEMORY = "kubeReserved: {memory: 1Gi}\n"
CASES = {
    "no cpu is left to reserve": (
        "evictionHard: {memory.available: 0}",
        "$.reservedMemory",
        "[memorymanager] you should specify the system reserved memory (memoryManagerPolicy Static needs",
    ),
    "a CPU that is not there": (
        "reservedSystemCPUs: 0,99",
        "$.reservedSystemCPUs",
        (
            "new static policy error: [cpumanager] unable to build the reserved physical CPUs from the reserved set:"
            " unknown CPU ID: 99"
        ),
    ),
    "more CPUs than there are": (
        'systemReserved: {cpu: "9"}',
        "$.reservedSystemCPUs",
        "new static policy error: [cpumanager] unable to reserve the required amount of CPUs (size of  did not equal 9)",
    ),
    "options under none": (
        "cpuManagerPolicy: none\ncpuManagerPolicyOptions: {full-pcpus-only: true}",
        "$.cpuManagerPolicyOptions",
        "new none policy error: None policy: received unsupported options=map[full-pcpus-only:true]",
    ),
    "an unknown option": (
        "cpuManagerPolicyOptions: {full-cpus: true}",
        "$.cpuManagerPolicyOptions.full-cpus",
        'unknown CPU Manager Policy option: "full-cpus"',
    ),
    "an option's value": (
        "cpuManagerPolicyOptions: {full-pcpus-only: yup}",
        "$.cpuManagerPolicyOptions.full-pcpus-only",
        'bad value for option "full-pcpus-only": strconv.ParseBool: parsing "yup": invalid syntax',
    ),
    "an alpha option without its gate": (
        "featureGates: {CPUManagerPolicyAlphaOptions: false}\ncpuManagerPolicyOptions: {align-by-socket: true}",
        "$.cpuManagerPolicyOptions.align-by-socket",
        'CPU Manager Policy Alpha-level Options not enabled, but option "align-by-socket" provided',
    ),
    "a beta option without its gate": (
        "featureGates: {CPUManagerPolicyBetaOptions: false}\ncpuManagerPolicyOptions: {distribute-cpus-across-numa: true}",
        "$.cpuManagerPolicyOptions.distribute-cpus-across-numa",
        'CPU Manager Policy Beta-level Options not enabled, but option "distribute-cpus-across-numa" provided',
    ),
    "options that exclude each other": (
        "cpuManagerPolicyOptions: {full-pcpus-only: true, distribute-cpus-across-cores: true}",
        "$.cpuManagerPolicyOptions",
        (
            "new static policy error: static policy options full-pcpus-only and distribute-cpus-across-cores"
            " can not be used at the same time"
        ),
    ),
    "align-by-socket on one NUMA node": (
        "topologyManagerPolicy: single-numa-node\ncpuManagerPolicyOptions: {align-by-socket: true}",
        "$.cpuManagerPolicyOptions",
        (
            "new static policy error: Topolgy manager single-numa-node policy is incompatible"  # codespell:ignore
            " with CPUManager align-by-socket policy option"
        ),
    ),
    "max-allowable-numa-nodes from the old docs": (
        "topologyManagerPolicyOptions: {max-allowable-numa-nodes: true}",
        "$.topologyManagerPolicyOptions.max-allowable-numa-nodes",
        (
            'unable to convert policy option to integer "max-allowable-numa-nodes":'
            ' strconv.Atoi: parsing "true": invalid syntax (max-allowable-numa-nodes is an integer, 8 or more;'
        ),
    ),
    "a small max-allowable-numa-nodes": (
        'topologyManagerPolicyOptions: {max-allowable-numa-nodes: "4"}',
        "$.topologyManagerPolicyOptions.max-allowable-numa-nodes",
        'the minimum value of "max-allowable-numa-nodes" should not be less than 8',
    ),
    "an unknown topology option": (
        "topologyManagerPolicyOptions: {numa-score-weights: x}",
        "$.topologyManagerPolicyOptions.numa-score-weights",
        'unknown Topology Manager Policy option: "numa-score-weights"',
    ),
    "a topology flag": (
        "topologyManagerPolicyOptions: {prefer-closest-numa-nodes: 2}",
        "$.topologyManagerPolicyOptions.prefer-closest-numa-nodes",
        'bad value for option "prefer-closest-numa-nodes": strconv.ParseBool: parsing "2": invalid syntax',
    ),
    "a NUMA node that is not there": (
        "reservedMemory: [{numaNode: 7, limits: {memory: 100Mi}}]",
        "$.reservedMemory",
        (
            "the reserved memory configuration references a NUMA node 7 that does not exist on this machine"
            " (this machine has NUMA nodes 0-1)"
        ),
    ),
    "reserved memory that does not add up": (
        MEMORY + "reservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}]",
        "$.reservedMemory",
        (
            'the total amount "1Gi" of type "memory" is not equal to the value "1124Mi" determined by Node Allocatable'
            " feature (reservedMemory: 1Gi on node 0; kubeReserved 1Gi + systemReserved 0 + evictionHard 100Mi = 1124Mi)"
        ),
    ),
    "huge pages that do not add up": (
        "systemReserved: {hugepages-2Mi: 4Mi}\nreservedMemory: [{numaNode: 0, limits: {memory: 100Mi, hugepages-2Mi: 2Mi}}]",
        "$.reservedMemory",
        'the total amount "2Mi" of type "hugepages-2Mi" is not equal to the value "4Mi" determined by Node Allocatable',
    ),
}


@pytest.mark.parametrize(("text", "place", "expected"), CASES.values(), ids=CASES.keys())
def test_a_manager_that_would_refuse_is_told_with_its_words(text: str, place: str, expected: str) -> None:
    ((found, problem),) = machine_problems(load_config(text.encode(), "config.yaml"), topology())
    assert found == place
    assert problem.startswith(expected)


def test_every_managers_problems_are_told_at_once() -> None:
    text = """
cpuManagerPolicyOptions: {a: 1, full-pcpus-only: maybe, strict-cpu-reservation: true}
topologyManagerPolicyOptions: {max-allowable-numa-nodes: true, b: 2}
reservedMemory: [{numaNode: 0, limits: {memory: 1}}]
"""
    found = machine_problems(load_config(text.encode(), "config.yaml"), topology())
    assert [place for place, _ in found] == [
        "$.topologyManagerPolicyOptions.max-allowable-numa-nodes",
        "$.topologyManagerPolicyOptions.b",
        "$.cpuManagerPolicyOptions.a",
        "$.cpuManagerPolicyOptions.full-pcpus-only",
        "$.reservedMemory",
    ]


def test_a_sound_configuration_has_no_problem() -> None:
    assert machine_problems(load_config(b"", "config.yaml"), topology()) == ()
