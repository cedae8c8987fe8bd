"""A configuration file is read completely or refused with every problem in it, each with its place."""

from __future__ import annotations

import json
import re

import pytest

from agent.config import Config, load_config
from agent.config.fields import GATES
from agent.config.model import (
    BindingPolicy,
    CgroupDriver,
    HostIsolation,
    LogFormat,
    LogLevel,
    Percent,
    StateRecovery,
)
from agent.config.table import FIELDS, dump
from agent.domain.idset import CpuSet
from agent.domain.pod import CPU, MEMORY, ResourceName
from agent.domain.quantity import parse_quantity
from agent.domain.settings import CpuPolicy, Gates, MemoryPolicy, TopologyPolicy, TopologyScope
from agent.domain.topology import NodeId
from agent.errors import ConfigError

SOURCE = "config.yaml"


def load(text: str) -> Config:
    return load_config(text.encode(), SOURCE)


def problems_of(text: str | bytes) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_config(text if isinstance(text, bytes) else text.encode(), SOURCE)
    lines = caught.value.message.split("\n")
    assert all(re.match(rf"{SOURCE}(:\d+)?: ", line) for line in lines)
    return [line.partition(": ")[2] for line in lines]


def test_a_problem_is_told_with_the_line_of_its_key() -> None:
    text = """# comment

stateDir: state
reservedMemory:
- numaNode: 0
  limits:
    memory: 1Gi
    cpu: x
kubeReserved: {"a/b": 1}
"""
    with pytest.raises(ConfigError) as caught:
        load(text)
    assert [line.partition(": ")[0] for line in caught.value.message.split("\n")] == [
        f"{SOURCE}:3",
        f"{SOURCE}:8",
        f"{SOURCE}:9",
    ]


EVERYTHING = """
apiVersion: numalet/v1
kind: NumaletConfiguration
cpuManagerPolicy: static
cpuManagerPolicyOptions: {full-pcpus-only: true, distribute-cpus-across-numa: "false"}
cpuManagerReconcilePeriod: 1m30s
memoryManagerPolicy: Static
reservedMemory:
- {numaNode: 0, limits: {memory: 1Gi, hugepages-2Mi: 64Mi}}
- {numaNode: 1, limits: {memory: 612Mi}}
topologyManagerPolicy: single-numa-node
topologyManagerScope: container
topologyManagerPolicyOptions: {max-allowable-numa-nodes: 16}
reservedSystemCPUs: 0,8-9
kubeReserved: {cpu: 500m, memory: 1Gi, ephemeral-storage: 1Gi}
systemReserved: {memory: 512Mi, pid: "1000"}
evictionHard: {memory.available: 5%, nodefs.available: 10%}
podPidsLimit: 1024
staticPodPath: /srv/pods/
fileCheckFrequency: 500ms
cgroupDriver: systemd
cgroupRoot: /sys/fs/cgroup/kubepods.slice
hostIsolation: slices
irqAffinity: true
bindings: all
stateDir: /tmp/state
controlSocket: /tmp/control.sock
controlSocketGroup: operators
podResourcesSocket: /tmp/kubelet.sock
podResourcesSocketMode: 0600
metricsBindAddress: "[::1]:9447"
ui: false
stateRecovery: strict
logLevel: warning
logFormat: json
featureGates: {PodLevelResourceManagers: false, CPUManagerPolicyAlphaOptions: false}
"""


def test_every_field_is_read() -> None:
    config = load(EVERYTHING)
    assert config == Config(
        cpu_policy=CpuPolicy.STATIC,
        cpu_options={"full-pcpus-only": "true", "distribute-cpus-across-numa": "false"},
        reconcile_period=90.0,
        memory_policy=MemoryPolicy.STATIC,
        reserved_memory={
            NodeId(0): {
                MEMORY: parse_quantity("1Gi"),
                ResourceName("hugepages-2Mi"): parse_quantity("64Mi"),
            },
            NodeId(1): {MEMORY: parse_quantity("612Mi")},
        },
        topology_policy=TopologyPolicy.SINGLE_NUMA_NODE,
        topology_scope=TopologyScope.CONTAINER,
        topology_options={"max-allowable-numa-nodes": "16"},
        reserved_cpus=CpuSet.of((0, 8, 9)),
        kube_reserved={
            CPU: parse_quantity("500m"),
            MEMORY: parse_quantity("1Gi"),
            ResourceName("ephemeral-storage"): parse_quantity("1Gi"),
        },
        system_reserved={MEMORY: parse_quantity("512Mi"), ResourceName("pid"): parse_quantity("1000")},
        eviction_memory=Percent(5.0),
        pod_pids_limit=1024,
        manifest_dir="/srv/pods",
        manifest_scan_period=0.5,
        cgroup_driver=CgroupDriver.SYSTEMD,
        cgroup_root="/sys/fs/cgroup/kubepods.slice",
        host_isolation=HostIsolation.SLICES,
        irq_affinity=True,
        bindings=BindingPolicy.ALL,
        state_dir="/tmp/state",  # noqa: S108 - only a text here
        control_socket="/tmp/control.sock",  # noqa: S108
        control_group="operators",
        pod_resources_socket="/tmp/kubelet.sock",  # noqa: S108
        pod_resources_mode=0o600,
        metrics_address="[::1]:9447",
        ui=False,
        state_recovery=StateRecovery.STRICT,
        log_level=LogLevel.WARNING,
        log_format=LogFormat.JSON,
        gates=Gates(pod_level_resource_managers=False, cpu_alpha_options=False),
    )
    assert set(re.findall(r"^(\w+):", EVERYTHING, re.MULTILINE)) == {
        *FIELDS,
        "apiVersion",
        "kind",
    }


@pytest.mark.parametrize(
    "text", [EVERYTHING, "", "evictionHard: {memory.available: 12.5%}", "podPidsLimit: 7"]
)
def test_what_is_written_reads_back_as_the_same(text: str) -> None:
    config = load(text)
    assert load(json.dumps(dump(config))) == config


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("# nothing\n---\n", id="a comment"),
        pytest.param("{}", id="an empty object"),
        pytest.param("cpuManagerPolicy:\nfeatureGates:\nreservedMemory: null\n", id="nulls"),
        pytest.param('reservedSystemCPUs: ""\npodPidsLimit: -1\n', id="the kubelet's words for nothing"),
    ],
)
def test_what_is_left_open_has_its_default(text: str) -> None:
    assert load(text) == Config()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("cpuManagerPolicy: static\nmemoryPolicy: None", '$.memoryPolicy: unknown field (did you mean "memoryManagerPolicy"?)', id="unknown field"),
        pytest.param("zzz: 1", "$.zzz: unknown field", id="unknown field like no other"),
        pytest.param('"a/b": 1', '$["a/b"]: unknown field', id="unknown field that needs quotes"),
        pytest.param("apiVersion: kubelet.config.k8s.io/v1beta1", '$.apiVersion: "kubelet.config.k8s.io/v1beta1" is not supported (expected "numalet/v1")', id="apiVersion"),
        pytest.param("cpuManagerPolicy: Static", '$.cpuManagerPolicy: "Static" must be one of: "none", "static" (did you mean "static"?)', id="capital letter"),
        pytest.param("memoryManagerPolicy: static", '$.memoryManagerPolicy: "static" must be one of: "None", "Static" (did you mean "Static"?)', id="small letter"),
        pytest.param("topologyManagerPolicy: 7", '$.topologyManagerPolicy: 7 must be one of: "none", "best-effort", "restricted", "single-numa-node"', id="number for a policy"),
        pytest.param("cpuManagerPolicyOptions: [full-pcpus-only]", "$.cpuManagerPolicyOptions: a list is not a map", id="list for a map"),
        pytest.param("cpuManagerPolicyOptions: {full-pcpus-only: }", "$.cpuManagerPolicyOptions.full-pcpus-only: null is not a text", id="option without value"),
        pytest.param("reservedSystemCPUs: 0-x", "$.reservedSystemCPUs: unable to parse reservedSystemCPUs (--reserved-cpus) 0-x, error: '0-x' is not a CPU or a range (expected e.g. \"0-3,8\")", id="cpu list"),
        pytest.param("cpuManagerReconcilePeriod: 10", '$.cpuManagerReconcilePeriod: 10 is not a duration (expected e.g. "10s" or "1m30s")', id="duration without unit"),
        pytest.param("fileCheckFrequency: 0s", '$.fileCheckFrequency: "0s" must be longer than zero', id="no duration"),
        pytest.param("fileCheckFrequency: 25h", '$.fileCheckFrequency: "25h" must be at most 24h', id="a typing error of a duration"),
        pytest.param("fileCheckFrequency: 1s-", '$.fileCheckFrequency: "1s-" is not a duration (expected e.g. "10s" or "1m30s")', id="garbage after a duration"),
        pytest.param("stateDir: state", '$.stateDir: "state" is not an absolute path', id="relative path"),
        pytest.param('stateDir: "/a\\0b"', '$.stateDir: "/a\\u0000b" is not an absolute path', id="NUL in a path"),
        pytest.param("stateDir: 7", "$.stateDir: 7 is not a string", id="number for a path"),
        pytest.param("kubeReserved: {memroy: 1Gi}", '$.kubeReserved.memroy: cannot be reserved (did you mean "memory"?)', id="unknown resource"),
        pytest.param("kubeReserved: {cpu: lots}", '$.kubeReserved.cpu: "lots" is not a quantity (expected e.g. "2", "1500m" or "4Gi")', id="quantity"),
        pytest.param("systemReserved: {memory: -1Gi}", '$.systemReserved.memory: "-1Gi" is negative', id="negative quantity"),
        pytest.param("systemReserved: {memory: true}", "$.systemReserved.memory: true is not a quantity", id="flag for a quantity"),
        pytest.param("evictionHard: {memory.availabel: 5%}", '$.evictionHard["memory.availabel"]: unknown eviction signal (did you mean "memory.available"?)', id="eviction signal"),
        pytest.param("evictionHard: {memory.available: 101%}", '$.evictionHard["memory.available"]: "101%" is more than all', id="percentage"),
        pytest.param("podPidsLimit: many", '$.podPidsLimit: "many" is not a whole number', id="pids"),
        pytest.param("podPidsLimit: 5000000", "$.podPidsLimit: 5000000 is more than the kernel allows (4194304)", id="too many pids"),
        pytest.param("podResourcesSocket: kubelet.sock", '$.podResourcesSocket: "kubelet.sock" is not an absolute path', id="relative socket"),
        pytest.param("podResourcesSocketMode: 660", '$.podResourcesSocketMode: 660 is not the mode of a socket (expected e.g. "0600" or "0660")', id="decimal mode"),
        pytest.param('podResourcesSocketMode: "0755"', '$.podResourcesSocketMode: "0755" is not the mode of a socket (expected e.g. "0600" or "0660")', id="mode of a program"),
        pytest.param('podResourcesSocketMode: "0060"', '$.podResourcesSocketMode: "0060" is not the mode of a socket (expected e.g. "0600" or "0660")', id="mode without the owner"),
        pytest.param("podResourcesSocketMode: true", '$.podResourcesSocketMode: true is not the mode of a socket (expected e.g. "0600" or "0660")', id="flag for a mode"),
        pytest.param('metricsBindAddress: "9447"', '$.metricsBindAddress: "9447" is not HOST:PORT (expected e.g. "127.0.0.1:9447" or "[::1]:9447")', id="port alone"),
        pytest.param("reservedMemory: {}", "$.reservedMemory: a mapping is not a list of {numaNode, limits}", id="map for reservedMemory"),
        pytest.param("reservedMemory: [7]", "$.reservedMemory[0]: 7 is not a map", id="number for a reservation"),
        pytest.param("reservedMemory: [{numaNode: 0, limit: {}}]", '$.reservedMemory[0]: unknown field "limit" (did you mean "limits"?)', id="reservation's field"),
        pytest.param("reservedMemory: [{numaNode: 0}]", "$.reservedMemory[0]: limits is missing (expected {numaNode, limits})", id="reservation without limits"),
        pytest.param("reservedMemory: [{numaNode: -1, limits: {memory: 1}}]", "$.reservedMemory[0].numaNode: -1 is not a NUMA node", id="negative node"),
        pytest.param("reservedMemory: [{numaNode: 0, limits: {memory: x}}]", '$.reservedMemory[0].limits.memory: "x" is not a quantity (expected e.g. "2", "1500m" or "4Gi")', id="reservation's quantity"),
        pytest.param("reservedMemory: [{numaNode: 0, limits: {cpu: 1}}]", '$.reservedMemory[0]: invalid configuration: the limit type "cpu" for NUMA node 0 is not supported, only [memory hugepages-<HugePageSize>] is accepted', id="cpu in reservedMemory"),
        pytest.param("reservedMemory: [{numaNode: 1, limits: {memory: 0}}]", '$.reservedMemory[0]: invalid configuration: reserved memory may not be zero for NUMA node 1 and resource "memory"', id="zero in reservedMemory"),
        pytest.param("reservedMemory: [{numaNode: 0, limits: {memory: 1}}, {numaNode: 0, limits: {memory: 2}}]", '$.reservedMemory[1]: invalid configuration: the reserved memory has a duplicate value for NUMA node 0 and resource "memory"', id="twice in reservedMemory"),
        pytest.param("featureGates: [PodLevelResources]", "$.featureGates: must be a map of gate names to true or false", id="list of gates"),
        pytest.param("featureGates: {PodLevelResource: true}", '$.featureGates.PodLevelResource: unknown feature gate (did you mean "PodLevelResources"?)', id="unknown gate"),
        pytest.param('featureGates: {PodLevelResources: "true"}', '$.featureGates.PodLevelResources: "true" is not true or false', id="text for a gate"),
        pytest.param("featureGates: {PodLevelResources: false}", "$.featureGates.PodLevelResourceManagers: needs PodLevelResources, which is off (turn both off, or PodLevelResources on)", id="gate without the one it needs"),
        pytest.param("---\n{}\n---\n{}\n", "holds 2 documents, expected one", id="two documents"),
        pytest.param("- a\n", "$: a list is not an object (expected fields, each with a value)", id="a list"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place(text: str, expected: str) -> None:
    assert problems_of(text) == [expected]


def test_all_problems_are_told_at_once() -> None:
    text = """
kind: Pod
cpuManagerPolicy: dynamic
kubeReserved: {cpu: x, memory: y}
reservedMemory:
- {numaNode: 0, limits: {memory: z, cpu: w}}
- {numaNode: zero, limits: {memory: 1Gi}}
podpidslimit: 5
featureGates: {Fancy: true, PodLevelResources: 1}
"""
    places = [problem.partition(": ")[0] for problem in problems_of(text)]
    assert places == [
        "$.kind",
        "$.cpuManagerPolicy",
        "$.kubeReserved.cpu",
        "$.kubeReserved.memory",
        "$.reservedMemory[0].limits.memory",
        "$.reservedMemory[0].limits.cpu",
        "$.reservedMemory[1].numaNode",
        "$.podpidslimit",
        "$.featureGates.Fancy",
        "$.featureGates.PodLevelResources",
    ]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"a: [1, 2", id="malformed"),
        pytest.param(b"stateDir: /a\nstateDir: /b\n", id="a key twice"),
        pytest.param(b"[" * 5000, id="deep"),
        pytest.param(b"a: &a [x]\n" + b"".join(b"%c: &%c [*%c,*%c]\n" % (c, c, c - 1, c - 1) for c in range(98, 123)), id="alias bomb"),
        pytest.param(b"# " + b"x" * (10 << 20), id="more than 10 MB"),
        pytest.param(b"\xff\xfe", id="not UTF-8"),
        pytest.param(b"a: !!python/object/apply:os.system [true]", id="a tag"),
    ],
)  # fmt: skip
def test_hostile_text_is_refused(text: bytes) -> None:
    assert problems_of(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10s", 10.0), ("1m30s", 90.0), ("1.5h", 5400.0), ("250ms", 0.25), ("100us", 1e-4), (".5s", 0.5), ("24h", 86400.0)],
)  # fmt: skip
def test_durations_are_gos(text: str, seconds: float) -> None:
    assert load(f"fileCheckFrequency: {text}").manifest_scan_period == pytest.approx(seconds)


def test_every_gate_can_be_turned_off() -> None:
    text = "featureGates: {" + ", ".join(f"{gate}: false" for gate in GATES) + "}"
    assert load(text).gates == Gates(
        pod_level_resources=False,
        pod_level_resource_managers=False,
        cpu_alpha_options=False,
        cpu_beta_options=False,
    )


@pytest.mark.parametrize("mode", ["0660", '"0660"', '"660"', "0o660", "432"])
def test_a_mode_is_octal_as_text_and_what_yaml_makes_of_a_number(mode: str) -> None:
    assert load(f"podResourcesSocketMode: {mode}").pod_resources_mode == 0o660


def test_the_pod_resources_socket_is_in_the_state_directory_unless_said_otherwise() -> None:
    assert load("stateDir: /a").pod_resources_path == "/a/pod-resources/kubelet.sock"
    assert load("podResourcesSocket: /b/kubelet.sock").pod_resources_path == "/b/kubelet.sock"
    assert load('podResourcesSocket: ""').pod_resources_path == ""


def test_systemd_has_a_slice_of_its_own_where_nothing_is_said() -> None:
    assert load("cgroupDriver: systemd").cgroup_root == "/sys/fs/cgroup/numalet.slice"
    assert load("cgroupDriver: cgroupfs").cgroup_root == "/sys/fs/cgroup/numalet"


@pytest.mark.parametrize(
    "root", ["/sys/fs/cgroup/numalet", "/sys/fs/cgroup/a-b.slice", "/sys/fs/cgroup/-.slice"]
)
def test_a_root_that_systemd_could_not_make_at_the_top_is_refused(root: str) -> None:
    (problem,) = problems_of(f"cgroupDriver: systemd\ncgroupRoot: {root}\n")
    assert problem.startswith(f"$.cgroupRoot: {root} is no slice at the top")
    assert "numalet.slice" in problem
    assert load(f"cgroupRoot: {root}").cgroup_root == root
