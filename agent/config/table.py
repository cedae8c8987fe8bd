"""Every configuration key, told once: the reader, the schema, the reference and the default file follow.

How to add one is in CONTRIBUTING.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from agent.config import kinds
from agent.config.kinds import Kind
from agent.config.model import (
    BindingPolicy,
    CgroupDriver,
    Config,
    HostIsolation,
    LogFormat,
    LogLevel,
    StateRecovery,
)
from agent.domain.settings import CpuPolicy, MemoryPolicy, TopologyPolicy, TopologyScope

API_VERSION: Final = "numalet/v1"
KIND: Final = "NumaletConfiguration"


class Reload(Enum):
    """What a reload does with a changed value."""

    LIVE = "at once"
    NEW_PODS = "for pods admitted from then on"
    RESTART = "with a restart"


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One key. ``name`` is `Config`'s attribute, where the default is.

    ``example`` stands in the default file where the default says nothing; ``computed`` tells what
    becomes of a default that depends on the machine or on other keys. ``packaged`` is what the default
    file states, where a packaged service is to differ from a run by hand.
    """

    key: str
    name: str
    kind: Kind
    text: str
    reload: Reload = Reload.RESTART
    unit: str = ""
    since: str = "0.1"
    example: str = ""
    computed: str = ""
    packaged: str = ""

    def written(self, config: Config) -> Any:
        """The value in ``config`` as YAML and JSON write it; None where it is left open."""
        value = getattr(config, self.name)
        return None if value is None and self.computed else self.kind.write(value)


def _field(key: str, name: str, kind: Kind, text: str, **more: Any) -> Field:
    return Field(key=key, name=name, kind=kind, text=text, **more)


POLICIES: Final = (
    _field(
        "cpuManagerPolicy",
        "cpu_policy",
        kinds.choice(CpuPolicy),
        "static gives containers that ask for whole CPUs (Guaranteed, or a slice of a pod-level budget) CPUs of"
        " their own; none gives nobody any.",
    ),
    _field(
        "cpuManagerPolicyOptions",
        "cpu_options",
        kinds.OPTIONS,
        "Options of the static policy, as in the kubelet: full-pcpus-only, distribute-cpus-across-numa,"
        " align-by-socket, distribute-cpus-across-cores, strict-cpu-reservation, prefer-align-cpus-by-uncorecache.",
        example='{full-pcpus-only: "true"}',
    ),
    _field(
        "memoryManagerPolicy",
        "memory_policy",
        kinds.choice(MemoryPolicy),
        "Static binds Guaranteed pods' memory to NUMA nodes and counts it there; None does not.",
    ),
    _field(
        "topologyManagerPolicy",
        "topology_policy",
        kinds.choice(TopologyPolicy),
        "How strictly CPUs and memory must lie together: restricted refuses a pod that could be better aligned on"
        " an empty machine, single-numa-node one that does not fit one NUMA node.",
        reload=Reload.NEW_PODS,
    ),
    _field(
        "topologyManagerScope",
        "topology_scope",
        kinds.choice(TopologyScope),
        "What is aligned: the whole pod (pod-level budgets need this), or each container.",
    ),
    _field(
        "topologyManagerPolicyOptions",
        "topology_options",
        kinds.OPTIONS,
        "prefer-closest-numa-nodes (true or false), max-allowable-numa-nodes (an integer, 8 or more).",
        reload=Reload.NEW_PODS,
        example='{prefer-closest-numa-nodes: "true"}',
    ),
    _field(
        "featureGates",
        "gates",
        kinds.GATES,
        "The kubelet's feature gates that change decisions. PodLevelResourceManagers needs PodLevelResources.",
    ),
)
RESERVATIONS: Final = (
    _field(
        "reservedSystemCPUs",
        "reserved_cpus",
        kinds.CPU_LIST,
        "CPUs kept for the system: never given to a pod alone. Replaces the cpu of kubeReserved and systemReserved.",
        example='"0,8"',
        computed="as many CPUs as kubeReserved and systemReserved say, chosen by topology; where they say none,"
        " one whole core",
    ),
    _field(
        "kubeReserved",
        "kube_reserved",
        kinds.AMOUNTS,
        "cpu, memory and huge pages kept for node daemons; further resources of the kubelet are read and not used.",
        example="{cpu: 500m, memory: 512Mi}",
    ),
    _field(
        "systemReserved",
        "system_reserved",
        kinds.AMOUNTS,
        "cpu, memory and huge pages kept for the operating system; is added to kubeReserved.",
        example='{cpu: "1", memory: 256Mi}',
    ),
    _field(
        "evictionHard",
        "eviction_memory",
        kinds.EVICTION,
        "memory.available is kept free beside what is reserved: a quantity, or a percentage of the machine's memory."
        " Other signals are read and not used.",
    ),
    _field(
        "reservedMemory",
        "reserved_memory",
        kinds.RESERVATIONS,
        "Where the reserved memory lies, by NUMA node and type. Per type the sum must be kubeReserved +"
        " systemReserved + evictionHard.",
        example="[{numaNode: 0, limits: {memory: 100Mi}}]",
        computed="on the lowest NUMA nodes, at most half of each",
    ),
)
PODS: Final = (
    _field(
        "staticPodPath",
        "manifest_dir",
        kinds.PATH,
        "Directory of pod manifests: a file's pods are admitted, and removed when the file is gone.",
    ),
    _field(
        "fileCheckFrequency",
        "manifest_scan_period",
        kinds.DURATION,
        "How often staticPodPath is looked through where no event told of a change.",
        unit="Go duration, at most 24h",
        reload=Reload.LIVE,
    ),
    _field(
        "cpuManagerReconcilePeriod",
        "reconcile_period",
        kinds.DURATION,
        "How often cgroups are compared with what was decided, and mended.",
        unit="Go duration, at most 24h",
        reload=Reload.LIVE,
    ),
    _field(
        "podPidsLimit",
        "pod_pids_limit",
        kinds.PIDS,
        "The most processes and threads of a pod (pids.max); -1 for no limit.",
        unit="tasks",
        reload=Reload.LIVE,
    ),
)
HOST: Final = (
    _field(
        "hostIsolation",
        "host_isolation",
        kinds.choice(HostIsolation),
        "slices keeps host processes off the CPUs that pods hold, through AllowedCPUs of systemd's top-level slices;"
        " partition makes these CPUs cpuset partitions, which the kernel itself keeps everybody else off (Linux 6.7"
        " and newer, where it cannot: slices, and numalet status says why); none lets host processes run there"
        " (numalet status says so). Before a removal: numalet release-host. See docs/isolation.md.",
        packaged="slices",
    ),
    _field(
        "irqAffinity",
        "irq_affinity",
        kinds.FLAG,
        "Steers device interrupts off the CPUs that pods hold, and back when these are free again. The packaged unit"
        " needs a drop-in with ProtectKernelTunables=no for it.",
    ),
    _field(
        "bindings",
        "bindings",
        kinds.choice(BindingPolicy),
        "Whose pods may set CPUs and limits of systemd units and cgroups outside of numalet, by annotation: manifests,"
        " those in staticPodPath; all, those over the control socket, too; none, nobody's. What is bound stays bound."
        " See docs/bindings.md.",
        reload=Reload.LIVE,
    ),
)
PLACES: Final = (
    _field(
        "cgroupDriver",
        "cgroup_driver",
        kinds.choice(CgroupDriver),
        "Who makes the pods' cgroups: cgroupfs makes directories; systemd makes each a slice, which systemctl and"
        " systemd-cgls show. Needs an empty node: delete the pods before it is changed. See docs/modes.md.",
        since="0.2",
    ),
    _field(
        "cgroupRoot",
        "cgroup_root",
        kinds.PATH,
        "cgroup v2 directory below which pods get their cgroups. Outside of numalet's own unit, so that pods"
        " outlive it. With cgroupDriver: systemd a slice at the top of the hierarchy,"
        " /sys/fs/cgroup/numalet.slice where nothing is said.",
    ),
    _field("stateDir", "state_dir", kinds.PATH, "Where state files and pod records are kept."),
    _field(
        "stateRecovery",
        "state_recovery",
        kinds.choice(StateRecovery),
        "Stored state that cannot be used: rebuild sets it aside and makes it anew from the pod records; strict"
        " refuses to start.",
    ),
)
FACES: Final = (
    _field("controlSocket", "control_socket", kinds.PATH, "Unix socket of the numalet commands."),
    _field(
        "controlSocketGroup",
        "control_group",
        kinds.GROUP,
        "Members of this group may do on the control socket all that root may; empty: root alone.",
        reload=Reload.LIVE,
        example="numalet",
    ),
    _field(
        "podResourcesSocket",
        "pod_resources_socket",
        kinds.PATH_OR_NOTHING,
        'Unix socket of the kubelet\'s PodResources API; "" for none.',
        computed="STATEDIR/pod-resources/kubelet.sock",
        example="/var/lib/numalet/pod-resources/kubelet.sock",
    ),
    _field(
        "podResourcesSocketMode",
        "pod_resources_mode",
        kinds.SOCKET_MODE,
        "Who may read what pods hold: the mode of podResourcesSocket.",
    ),
    _field(
        "metricsBindAddress",
        "metrics_address",
        kinds.ADDRESS,
        'Where /metrics, /healthz, /readyz and the web page are served; "" for nowhere.',
        reload=Reload.LIVE,
    ),
    _field(
        "ui",
        "ui",
        kinds.FLAG,
        "Serve the web page, which can change nothing, on metricsBindAddress; see docs/page.md.",
    ),
    _field(
        "logLevel",
        "log_level",
        kinds.choice(LogLevel),
        "The least important message that is logged. --log-level comes first.",
        reload=Reload.LIVE,
    ),
    _field(
        "logFormat",
        "log_format",
        kinds.choice(LogFormat),
        "Log format: one sentence a line, or one JSON object a line. --log-format comes first.",
        reload=Reload.LIVE,
    ),
)

GROUPS: Final[Mapping[str, tuple[Field, ...]]] = {
    "Policies": POLICIES,
    "What is kept for the system": RESERVATIONS,
    "Pods": PODS,
    "The host": HOST,
    "Where things are": PLACES,
    "Sockets, pages, log": FACES,
}
FIELDS: Final[Mapping[str, Field]] = {field.key: field for group in GROUPS.values() for field in group}


def dump(config: Config) -> dict[str, Any]:
    """The configuration as a document that reads back as ``config``; what is left open is left out."""
    written = {field.key: field.written(config) for field in FIELDS.values()}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        **{key: value for key, value in written.items() if value is not None},
    }
