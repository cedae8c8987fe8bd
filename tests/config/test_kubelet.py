"""A kubelet's configuration is taken over as it decides, and what is left out is told."""

from __future__ import annotations

from typing import Any

import pytest

from agent.config import load_config
from agent.config.kubelet import TakenOver, from_kubelet
from agent.config.model import CgroupDriver
from agent.domain.pod import MEMORY
from agent.domain.quantity import parse_quantity
from agent.domain.settings import CpuPolicy, MemoryPolicy, TopologyPolicy, TopologyScope
from agent.domain.topology import NodeId
from agent.manifest.yamlnodes import yaml_text

HEADER = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
NODE: dict[str, Any] = {
    "cpuManagerPolicy": "static",
    "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
    "cpuManagerReconcilePeriod": "5s",
    "memoryManagerPolicy": "Static",
    "topologyManagerPolicy": "single-numa-node",
    "topologyManagerScope": "pod",
    "topologyManagerPolicyOptions": {"prefer-closest-numa-nodes": "true"},
    "reservedSystemCPUs": "0,4",
    "kubeReserved": {"memory": "256Mi", "ephemeral-storage": "1Gi"},
    "systemReserved": {"memory": "256Mi", "pid": "1000"},
    "evictionHard": {"memory.available": "100Mi", "nodefs.available": "10%"},
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "612Mi"}}],
    "featureGates": {"PodLevelResourceManagers": True, "KubeletPSI": True},
    "podPidsLimit": 4096,
    "staticPodPath": "/etc/kubernetes/manifests",
    "fileCheckFrequency": "20s",
    "cgroupDriver": "systemd",
    "cgroupRoot": "/",
    "cpuCFSQuota": True,
    "clusterDNS": ["10.96.0.10"],
}


def taken(**fields: Any) -> TakenOver:
    return from_kubelet(HEADER | fields)


def test_a_node_is_taken_over_and_reads_as_numalets() -> None:
    made = taken(**NODE)
    assert made.problems == ()
    config = load_config(yaml_text(dict(made.document)).encode(), "config.yaml")
    assert (config.cpu_policy, config.memory_policy) == (CpuPolicy.STATIC, MemoryPolicy.STATIC)
    assert (config.topology_policy, config.topology_scope) == (
        TopologyPolicy.SINGLE_NUMA_NODE,
        TopologyScope.POD,
    )
    assert str(config.reserved_cpus) == "0,4"
    assert config.reserved_memory == {NodeId(0): {MEMORY: parse_quantity("612Mi")}}
    assert (config.reconcile_period, config.pod_pids_limit) == (5.0, 4096)
    assert config.gates.pod_level_resource_managers
    assert (config.cgroup_driver, config.cgroup_root) == (
        CgroupDriver.SYSTEMD,
        "/sys/fs/cgroup/numalet.slice",
    )
    assert made.left_out.keys() == {
        "cpuCFSQuota",
        "clusterDNS",
        "featureGates.KubeletPSI",
        'evictionHard["nodefs.available"]',
    }


def test_what_the_kubelet_defaults_otherwise_is_written_down() -> None:
    made = taken()
    config = load_config(yaml_text(dict(made.document)).encode(), "config.yaml")
    assert (config.cpu_policy, config.memory_policy) == (CpuPolicy.NONE, MemoryPolicy.NONE)
    assert (config.topology_policy, config.topology_scope) == (TopologyPolicy.NONE, TopologyScope.CONTAINER)
    assert not config.gates.pod_level_resource_managers
    assert made.taken["cpuManagerPolicy"] == "the kubelet's default"
    assert made.taken["featureGates"].startswith(
        "PodLevelResourceManagers and CPUManagerPolicyAlphaOptions off"
    )


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({"evictionHard": {"nodefs.available": "10%"}}, "0"),
        ({"evictionHard": {"nodefs.available": "10%"}, "mergeDefaultEvictionSettings": True}, "100Mi"),
        ({"evictionHard": {"memory.available": "5%"}}, "5%"),
    ],
)
def test_the_eviction_threshold_is_the_kubelets(fields: dict[str, Any], kept: str) -> None:
    assert taken(**fields).document["evictionHard"] == {"memory.available": kept}


def test_a_cgroup_root_is_kept_beside_the_kubelets_pods_unless_systemd_owns_it() -> None:
    assert taken(cgroupRoot="/prod").document["cgroupRoot"] == "/sys/fs/cgroup/prod/numalet"
    assert "cgroupRoot" not in taken(cgroupRoot="/prod", cgroupDriver="systemd").document
    assert "cgroupRoot" in taken(cgroupRoot="/prod", cgroupDriver="systemd").left_out
    assert taken(cgroupDriver="systemd").document["cgroupDriver"] == "systemd"


@pytest.mark.parametrize(
    ("fields", "place", "text"),
    [
        ({"reservedSystemCPUs": "0", "systemReservedCgroup": "/system"}, "$.reservedSystemCPUs", "can't use reservedSystemCPUs (--reserved-cpus) with systemReservedCgroup (--system-reserved-cgroup) or kubeReservedCgroup (--kube-reserved-cgroup)"),
        ({"cpuCFSQuotaPeriod": "50ms"}, "$.cpuCFSQuotaPeriod", "50ms requires feature gate CustomCPUCFSQuotaPeriod"),
        ({"cpuCFSQuotaPeriod": "2s", "featureGates": {"CustomCPUCFSQuotaPeriod": True}}, "$.cpuCFSQuotaPeriod", '"2s" must be between 1ms and 1sec, inclusive'),
        ({"memoryThrottlingFactor": 0}, "$.memoryThrottlingFactor", "0 must be greater than 0 and less than or equal to 1.0"),
        ({"memoryReservationPolicy": "TieredReservation", "featureGates": {"MemoryQoS": False}}, "$.memoryReservationPolicy", "TieredReservation requires feature gate MemoryQoS"),
        ({"enforceNodeAllocatable": ["pods", "pods"]}, "$.enforceNodeAllocatable", "a name is given twice"),
        ({"enforceNodeAllocatable": ["none", "pods"]}, "$.enforceNodeAllocatable", '"none" must stand alone'),
        ({"enforceNodeAllocatable": ["kube-reserved"]}, "$.enforceNodeAllocatable", '"kube-reserved" needs kubeReservedCgroup'),
        ({"enforceNodeAllocatable": ["pods"], "cgroupsPerQOS": False}, "$.enforceNodeAllocatable", "must be empty where cgroupsPerQOS is false"),
        ({"cgroupDriver": "openrc"}, "$.cgroupDriver", '"openrc" must be one of: "cgroupfs", "systemd"'),
        ({"kind": "Pod"}, "$.kind", '"Pod" is not supported (expected "KubeletConfiguration")'),
    ],
)  # fmt: skip
def test_what_a_kubelet_would_refuse_is_refused(fields: dict[str, Any], place: str, text: str) -> None:
    assert taken(**fields).problems == ((place, text),)
