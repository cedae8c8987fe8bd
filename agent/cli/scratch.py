"""A scratch node: pods are tried on a copy of the state; nothing is written, no daemon is asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from agent.admission import Admitted, Decision, Rejected, adapted, admit
from agent.checkpoint.codec import decode_cpu, decode_memory, require_policy
from agent.checkpoint.store import CPU_FILE, MEMORY_FILE
from agent.cli.common import machine_topology
from agent.cli.recorded import Recorded, path_of
from agent.config import Config, load_config
from agent.containermanager.machine import Machine
from agent.domain.pod import Pod
from agent.domain.settings import Settings
from agent.domain.state import CpuState, MemoryState, NodeState
from agent.errors import ConfigError, StateError
from agent.explain.english import plural


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsed:
    """One pod's decision, where its manifest is, and the state after it."""

    pod: Pod
    source: str
    decision: Decision

    @property
    def refusal(self) -> Rejected | None:
        """The refusal, if it is one."""
        return self.decision if isinstance(self.decision, Rejected) else None

    @property
    def state(self) -> NodeState:
        """The state after the decision."""
        return self.decision.state


@dataclass(frozen=True, slots=True)
class Unread:
    """A file that holds no pods numalet understands, and why, a problem a line."""

    source: str
    problems: tuple[str, ...]


@dataclass(slots=True)
class Scratch:
    """The node that pods are tried on, one after the other; ``origin`` says what it began with."""

    machine: Machine
    state: NodeState
    origin: str
    done: dict[str, Rehearsed] = field(default_factory=dict)

    def rehearse(self, pod: Pod, source: str) -> Rehearsed:
        """Decide about one more pod."""
        decision = self._taken(pod) or admit(self.machine.managers, self.state, pod)
        self.state = decision.state
        rehearsed = Rehearsed(pod=pod, source=source, decision=decision)
        if isinstance(decision, Admitted):
            self.done[pod.full_name] = self.done[pod.uid] = rehearsed
        return rehearsed

    def _taken(self, pod: Pod) -> Rejected | None:
        """A refusal as the daemon's if a pod of that name or uid is there with another spec."""
        other = self.done.get(pod.uid) or self.done.get(pod.full_name)
        if other is None or other.pod == pod:
            return None
        return Rejected(
            state=self.state,
            reason="AlreadyExists",
            message=f"pod {other.pod.full_name} (uid {other.pod.uid}) of {other.source} has another spec",
            remedy="give one of them another name and uid",
            trace=(),
        )


DEFAULT_CONFIG = Path("/etc/numalet/config.yaml")


def live_node(config_file: Path | None) -> tuple[Path | None, Path | None]:
    """This host as its daemon decides on it: the configuration file and the state directory, if there."""
    if config_file is None and DEFAULT_CONFIG.exists():
        config_file = DEFAULT_CONFIG
    config = load_config(config_file.read_bytes(), str(config_file)) if config_file else Config()
    state_dir = Path(config.state_dir)
    return config_file, state_dir if (state_dir / CPU_FILE).exists() else None


def recorded_node(machine: Recorded | None, config_file: Path | None, state_dir: Path | None) -> Scratch:
    """The node of a bundle, where no other configuration or state is given; else `scratch_node`."""
    if machine is None or machine.root is None:
        return scratch_node(path_of(machine), config_file, state_dir)
    scratch = scratch_node(machine.path, config_file or machine.config, state_dir or machine.state)
    if state_dir is None and machine.state is not None:
        scratch.origin = f"{machine}: {plural(len(scratch.state.pods()), 'pod')} there already"
    return scratch


def scratch_node(machine: Path | None, config_file: Path | None, state_dir: Path | None) -> Scratch:
    """Raises ConfigError, StateError or HostError: bad input."""
    topology = machine_topology(machine)
    config = load_config(config_file.read_bytes(), str(config_file)) if config_file else Config()
    try:
        made = Machine.of(topology, config.settings(topology), config.reservation_arithmetic(topology))
    except ConfigError as error:
        if error.manager == "memory" and not any(node.memory for node in topology.nodes):
            error.hint = "no memory sizes are known of this machine: set memoryManagerPolicy None in --config"
        raise
    if state_dir is None:
        return Scratch(made, adapted(made.managers, NodeState()), "an empty node")
    stored = _stored_state(state_dir, made.settings)
    state = adapted(made.managers, stored)
    return Scratch(made, state, f"{state_dir}: {plural(len(state.pods()), 'pod')} there already")


def _stored_state(root: Path, settings: Settings) -> NodeState:
    gates = settings.gates
    cpu_raw, memory_raw = _read(root / CPU_FILE), _read(root / MEMORY_FILE)
    if cpu_raw is None and memory_raw is None:
        raise StateError(
            f"{root} holds neither {CPU_FILE} nor {MEMORY_FILE}", hint="is it a state directory?"
        )
    cpu, memory = CpuState(), MemoryState()
    if cpu_raw is not None:
        decoded_cpu = decode_cpu(cpu_raw, gates=gates)
        require_policy(decoded_cpu, settings.cpu_policy.value)
        cpu = decoded_cpu.state
    if memory_raw is not None:
        decoded_memory = decode_memory(memory_raw, gates=gates)
        require_policy(decoded_memory, settings.memory_policy.value)
        memory = decoded_memory.state
    return NodeState(cpu=cpu, memory=memory)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
