"""The CPU manager: the policies behind one interface, and how one is built from settings.

KEP-3570 (static policy), KEP-5526 (pods with pod-level resources). All methods are pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from agent.cpumanager.assignment import Strategy, take
from agent.cpumanager.hints import HintSearch
from agent.cpumanager.options import check_options, parse_options
from agent.cpumanager.static import StaticCpuManager
from agent.cpumanager.tables import CpuTables, cpu_tables
from agent.domain.hints import Hint, Wishes
from agent.domain.idset import NO_CPUS, CpuSet
from agent.domain.outcome import Isolation, Outcome
from agent.domain.pod import CPU, Container, Pod, PodUid
from agent.domain.settings import CpuPolicy, Settings
from agent.domain.state import CpuState
from agent.domain.topology import Topology
from agent.domain.trace import WHOLE_POD, Pool, Shared
from agent.errors import AdmissionError, ConfigError


class CpuManager(Protocol):
    """What admission needs of a CPU policy.

    `restore` raises StateError, `allocate` and `allocate_pod` raise AdmissionError. ``reuse`` are
    the CPUs that finished init containers of the same pod leave to the next container.
    """

    @property
    def reserved(self) -> CpuSet:
        """CPUs that are never given exclusively."""

    @property
    def reserved_physical(self) -> CpuSet:
        """The reserved CPUs and their thread siblings."""

    @property
    def allocatable(self) -> CpuSet:
        """CPUs that could ever be given exclusively."""

    def restore(self, state: CpuState) -> CpuState:
        """Check a stored state; an empty one becomes the initial one."""

    def adapted(self, state: CpuState) -> CpuState:
        """The state with what pods hold kept and all else as this machine has it; never refuses."""

    def wishes(self, state: CpuState, pod: Pod, container: Container, reuse: CpuSet) -> Wishes:
        """Hints for one container."""

    def pod_wishes(self, state: CpuState, pod: Pod) -> Wishes:
        """Hints for the pod as a whole."""

    def allocate(
        self, state: CpuState, pod: Pod, container: Container, hint: Hint, reuse: CpuSet
    ) -> Outcome[CpuState, CpuSet]:
        """Give one container its CPUs."""

    def allocate_pod(self, state: CpuState, pod: Pod, hint: Hint) -> Outcome[CpuState, CpuSet]:
        """Give a pod with pod-level resources its CPUs and divide them."""

    def remove_container(self, state: CpuState, uid: PodUid, name: str) -> CpuState:
        """Release what one container holds."""

    def remove_pod(self, state: CpuState, uid: PodUid) -> CpuState:
        """Release what a pod holds."""

    def isolation(self, state: CpuState, pod: Pod, container: Container) -> Isolation:
        """How far the container is kept apart."""

    def cpus_of(self, state: CpuState, uid: PodUid, name: str) -> CpuSet:
        """The CPUs the container runs on."""


@dataclass(frozen=True, slots=True)
class NoneCpuManager:
    """Policy none: every container runs in the shared pool, nothing is kept."""

    reserved: CpuSet = NO_CPUS
    reserved_physical: CpuSet = NO_CPUS
    allocatable: CpuSet = NO_CPUS

    def restore(self, state: CpuState) -> CpuState:
        """The state as it is."""
        return state

    def adapted(self, _state: CpuState) -> CpuState:
        """Nothing is kept."""
        return CpuState()

    def wishes(self, _state: CpuState, _pod: Pod, _container: Container, _reuse: CpuSet) -> Wishes:
        """No opinion."""
        return {}

    def pod_wishes(self, _state: CpuState, _pod: Pod) -> Wishes:
        """No opinion."""
        return {}

    def allocate(
        self, state: CpuState, _pod: Pod, container: Container, _hint: Hint, reuse: CpuSet
    ) -> Outcome[CpuState, CpuSet]:
        """Nothing is exclusive."""
        return Outcome(state, reuse, (_no_policy(container.name),))

    def allocate_pod(self, state: CpuState, _pod: Pod, _hint: Hint) -> Outcome[CpuState, CpuSet]:
        """Nothing is exclusive."""
        return Outcome(state, NO_CPUS, (_no_policy(WHOLE_POD),))

    def remove_container(self, state: CpuState, _uid: PodUid, _name: str) -> CpuState:
        """Nothing was given."""
        return state

    def remove_pod(self, state: CpuState, _uid: PodUid) -> CpuState:
        """Nothing was given."""
        return state

    def isolation(self, _state: CpuState, _pod: Pod, _container: Container) -> Isolation:
        """Nobody is kept apart."""
        return Isolation.HOST

    def cpus_of(self, state: CpuState, _uid: PodUid, _name: str) -> CpuSet:
        """The shared pool, which this policy leaves empty: not managed."""
        return state.default


def _no_policy(container: str) -> Shared:
    return Shared(container, CPU, Pool.NODE, "the CPU manager policy is none")


def new_cpu_manager(settings: Settings, topology: Topology) -> NoneCpuManager | StaticCpuManager:
    """Build the policy of ``settings``; raises ConfigError with the kubelet's text."""
    if settings.cpu_policy is CpuPolicy.NONE:
        if settings.cpu_options:
            given = " ".join(f"{name}:{text}" for name, text in sorted(settings.cpu_options.items()))
            raise ConfigError(
                f"new none policy error: None policy: received unsupported options=map[{given}]",
                hint="cpuManagerPolicyOptions need cpuManagerPolicy: static",
            )
        return NoneCpuManager()
    count = _reserved_count(settings)
    try:
        return _static(settings, topology, count)
    except ConfigError as error:
        raise ConfigError(f"new static policy error: {error.message}", hint=error.hint) from error


def _static(settings: Settings, topology: Topology, count: int) -> StaticCpuManager:
    options = parse_options(settings.cpu_options, settings.gates)
    check_options(options, topology, settings.topology_policy)
    tables = cpu_tables(topology, settings.fidelity)
    strategy = options.strategy(tables.threads_per_core)
    reserved = settings.reserved_cpus or _reserved_by_topology(tables, topology, count, strategy)
    if len(reserved) != count:
        raise ConfigError(
            "[cpumanager] unable to reserve the required amount of CPUs"
            f" (size of {reserved} did not equal {count})"
        )
    unknown = reserved - topology.online
    if unknown:
        raise ConfigError(
            "[cpumanager] unable to build the reserved physical CPUs from the reserved set:"
            f" unknown CPU ID: {next(iter(unknown))}"
        )
    return StaticCpuManager(
        topology=topology,
        tables=tables,
        options=options,
        gates=settings.gates,
        fidelity=settings.fidelity,
        strategy=strategy,
        search=HintSearch(topology, align_by_socket=options.align_by_socket),
        reserved=reserved,
        reserved_physical=topology.siblings(reserved),
        allocatable=topology.online - reserved,
    )


def _reserved_count(settings: Settings) -> int:
    """How many CPUs to reserve: kubeReserved + systemReserved, rounded up."""
    quantity = settings.node_reserved.get(CPU)
    if quantity is None:
        raise ConfigError("[cpumanager] unable to determine reserved CPU resources for static policy")
    if quantity.nano == 0:
        raise ConfigError(
            "[cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero",
            hint="set reservedSystemCPUs, or cpu in kubeReserved or systemReserved",
        )
    return -(-quantity.milli // 1000)


def _reserved_by_topology(tables: CpuTables, topology: Topology, count: int, strategy: Strategy) -> CpuSet:
    try:
        return take(tables, topology.online, count, strategy).cpus
    except AdmissionError:
        return NO_CPUS
