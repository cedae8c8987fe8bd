"""A KubeletConfiguration (kubelet.config.k8s.io/v1beta1) as numalet's: what is taken over, what is not, and why.

Where the kubelet's default is another than numalet's, the kubelet's is written down: the node decides as
it did. What the kubelet would refuse is refused here, too, with its words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from agent.config.fields import GATES, duration
from agent.config.load import Problem
from agent.config.table import API_VERSION, KIND
from agent.manifest.problem import child, shown

KUBELET_API: Final = "kubelet.config.k8s.io/v1beta1"
KUBELET_KIND: Final = "KubeletConfiguration"

_DEFAULTS: Final[Mapping[str, Any]] = {
    "cpuManagerPolicy": "none",
    "memoryManagerPolicy": "None",
    "topologyManagerPolicy": "none",
    "topologyManagerScope": "container",
}
"""Of the kubelet, where numalet's are others."""
_GATE_DEFAULTS: Final = {"PodLevelResourceManagers": False, "CPUManagerPolicyAlphaOptions": False}

_SAME: Final = (
    "cpuManagerPolicyOptions",
    "cpuManagerReconcilePeriod",
    "topologyManagerPolicyOptions",
    "reservedSystemCPUs",
    "kubeReserved",
    "systemReserved",
    "reservedMemory",
    "podPidsLimit",
    "staticPodPath",
    "fileCheckFrequency",
)
_NO_EVICTION: Final = "numalet evicts nobody; only memory.available of evictionHard is kept free"
_WHY_NOT: Final[Mapping[str, str]] = {
    "cgroupsPerQOS": "pods are always below a cgroup of their QoS class",
    "cpuCFSQuota": "a limit of cpu always becomes cpu.max, and exclusive CPUs are never throttled",
    "cpuCFSQuotaPeriod": "the period is 100ms",
    "enforceNodeAllocatable": "what is reserved is never handed out; no cgroup limits the pods as a whole",
    "evictionSoft": _NO_EVICTION,
    "evictionSoftGracePeriod": _NO_EVICTION,
    "evictionMinimumReclaim": _NO_EVICTION,
    "evictionPressureTransitionPeriod": _NO_EVICTION,
    "kubeReservedCgroup": "numalet limits nothing outside of its own tree",
    "systemReservedCgroup": "numalet limits nothing outside of its own tree",
    "memoryThrottlingFactor": "memory.high is left alone, as the kubelet's default leaves it",
    "memoryReservationPolicy": "memory.min and memory.low are left alone, as the kubelet's default leaves them",
    "singleProcessOOMKill": "a container is killed as a whole (memory.oom.group), the default on cgroup v2",
    "staticPodURL": "manifests come from staticPodPath and numalet apply",
}
_NOTHING_LIKE_IT: Final = "numalet has nothing like it"


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenOver:
    """``document`` is numalet's configuration; ``taken`` are its keys with what is to be said of each."""

    document: Mapping[str, Any]
    taken: Mapping[str, str]
    left_out: Mapping[str, str]
    problems: tuple[Problem, ...]


def from_kubelet(kubelet: Mapping[str, Any]) -> TakenOver:
    """Translate; ``problems`` are places in ``kubelet`` the kubelet itself would refuse."""
    stated = {key: value for key, value in kubelet.items() if value is not None}
    document: dict[str, Any] = {}
    taken: dict[str, str] = {}
    for key, default in _DEFAULTS.items():
        document[key] = stated.get(key, default)
        taken[key] = "" if key in stated else "the kubelet's default"
    for key in _SAME:
        if key in stated:
            document[key], taken[key] = stated[key], ""
    left_out = {key: _WHY_NOT.get(key, _NOTHING_LIKE_IT) for key in stated if not _is_read(key)}
    for part in (_gates(stated), _eviction(stated), _cgroups(stated)):
        document |= part.document
        taken |= part.taken
        left_out |= part.left_out
    return TakenOver(
        document={"apiVersion": API_VERSION, "kind": KIND, **document},
        taken=taken,
        left_out=left_out,
        problems=(*_header(kubelet), *_refusals(stated)),
    )


def _is_read(key: str) -> bool:
    special = (
        "apiVersion",
        "kind",
        "featureGates",
        "evictionHard",
        "mergeDefaultEvictionSettings",
        "cgroupDriver",
        "cgroupRoot",
    )
    return key in _DEFAULTS or key in _SAME or key in special


def _part(document: Mapping[str, Any], taken: Mapping[str, str], left_out: Mapping[str, str]) -> TakenOver:
    return TakenOver(document=document, taken=taken, left_out=left_out, problems=())


def _gates(stated: Mapping[str, Any]) -> TakenOver:
    gates = stated.get("featureGates", {})
    if not isinstance(gates, Mapping):
        return _part({"featureGates": gates}, {"featureGates": ""}, {})
    known = {gate: on for gate, on in gates.items() if gate in GATES}
    others = [gate for gate in gates if gate not in GATES]
    chosen = {**_GATE_DEFAULTS, **known}
    defaults = [gate for gate in _GATE_DEFAULTS if gate not in known]
    note = f"{' and '.join(defaults)} off: the kubelet's default" if defaults else ""
    left_out = {child("featureGates", gate): "changes no decision of numalet" for gate in others}
    return _part({"featureGates": chosen}, {"featureGates": note}, left_out)


def _eviction(stated: Mapping[str, Any]) -> TakenOver:
    thresholds = stated.get("evictionHard")
    if thresholds is None:
        return _part({}, {}, {})
    if not isinstance(thresholds, Mapping):
        return _part({"evictionHard": thresholds}, {"evictionHard": ""}, {})
    # A kubelet that is told one threshold has no others by default, unless it is told to merge them.
    unsaid = "100Mi" if stated.get("mergeDefaultEvictionSettings") is True else "0"
    kept = thresholds.get("memory.available", unsaid)
    left_out = {
        child("evictionHard", name): _NO_EVICTION for name in thresholds if name != "memory.available"
    }
    note = (
        ""
        if "memory.available" in thresholds
        else f"memory.available {unsaid}: others are stated and this is not"
    )
    return _part({"evictionHard": {"memory.available": kept}}, {"evictionHard": note}, left_out)


def _cgroups(stated: Mapping[str, Any]) -> TakenOver:
    driver = {"cgroupDriver": stated["cgroupDriver"]} if "cgroupDriver" in stated else {}
    told = dict.fromkeys(driver, "")
    root = stated.get("cgroupRoot", "")
    if not isinstance(root, str) or not root.strip("/"):
        return _part(driver, told, {})
    if stated.get("cgroupDriver") == "systemd":
        why = "numalet's slice is at the top of the hierarchy, beside the kubelet's own kubepods.slice"
        return _part(driver, told, {"cgroupRoot": why})
    path = f"/sys/fs/cgroup/{root.strip('/')}/numalet"
    note = {"cgroupRoot": "beside the kubelet's own kubepods"}
    return _part({**driver, "cgroupRoot": path}, {**told, **note}, {})


def _header(kubelet: Mapping[str, Any]) -> Iterator[Problem]:
    for key, expected in (("apiVersion", KUBELET_API), ("kind", KUBELET_KIND)):
        if kubelet.get(key) != expected:
            yield f"$.{key}", f'{shown(kubelet.get(key))} is not supported (expected "{expected}")'


def _refusals(stated: Mapping[str, Any]) -> Iterator[Problem]:
    """What the kubelet's validation refuses among the keys that numalet does not read."""
    if stated.get("reservedSystemCPUs") and (
        stated.get("systemReservedCgroup") or stated.get("kubeReservedCgroup")
    ):
        text = (
            "can't use reservedSystemCPUs (--reserved-cpus) with systemReservedCgroup"
            " (--system-reserved-cgroup) or kubeReservedCgroup (--kube-reserved-cgroup)"
        )
        yield "$.reservedSystemCPUs", text
    gates = stated.get("featureGates")
    gates = gates if isinstance(gates, Mapping) else {}
    yield from _quota_period(stated.get("cpuCFSQuotaPeriod", "100ms"), gates)
    yield from _memory_qos(stated, gates)
    yield from _enforced(stated)
    if stated.get("cgroupDriver", "cgroupfs") not in ("cgroupfs", "systemd"):
        yield "$.cgroupDriver", f'{shown(stated["cgroupDriver"])} must be one of: "cgroupfs", "systemd"'


def _quota_period(period: Any, gates: Mapping[str, Any]) -> Iterator[Problem]:
    place = "$.cpuCFSQuotaPeriod"
    try:
        seconds = duration(period)
    except ValueError as error:
        yield place, str(error)
        return
    if not 0.001 <= seconds <= 1:
        yield place, f"{shown(period)} must be between 1ms and 1sec, inclusive"
    if seconds != 0.1 and gates.get("CustomCPUCFSQuotaPeriod") is not True:
        yield place, f"{period} requires feature gate CustomCPUCFSQuotaPeriod"


def _memory_qos(stated: Mapping[str, Any], gates: Mapping[str, Any]) -> Iterator[Problem]:
    factor = stated.get("memoryThrottlingFactor", 1.0)
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor <= 1:
        text = f"{shown(factor)} must be greater than 0 and less than or equal to 1.0"
        yield "$.memoryThrottlingFactor", text
    policy = stated.get("memoryReservationPolicy", "None")
    if policy not in ("None", "TieredReservation"):
        yield (
            "$.memoryReservationPolicy",
            f'{shown(policy)} must be one of: "None", "TieredReservation"',
        )
    if policy == "TieredReservation" and gates.get("MemoryQoS") is False:
        yield "$.memoryReservationPolicy", "TieredReservation requires feature gate MemoryQoS"


def _enforced(stated: Mapping[str, Any]) -> Iterator[Problem]:
    place, enforced = "$.enforceNodeAllocatable", stated.get("enforceNodeAllocatable", [])
    if not isinstance(enforced, list) or not all(isinstance(name, str) for name in enforced):
        yield place, f"{shown(enforced)} is not a list of names"
        return
    if len(set(enforced)) < len(enforced):
        yield place, "a name is given twice"
    if "none" in enforced and len(enforced) > 1:
        yield place, '"none" must stand alone'
    for name, key in (("system-reserved", "systemReservedCgroup"), ("kube-reserved", "kubeReservedCgroup")):
        if name in enforced and not stated.get(key):
            yield place, f'"{name}" needs {key}'
    if enforced not in ([], ["none"]) and stated.get("cgroupsPerQOS") is False:
        yield place, "must be empty where cgroupsPerQOS is false"
