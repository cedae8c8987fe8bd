"""The machine, and if there is one the configuration, that a stored state is held against."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from agent.admission import restore
from agent.checkpoint.audit import (
    MachineMemory,
    booking_differences,
    cpu_differences,
    memory_differences,
    unsound,
)
from agent.checkpoint.podrecord import PodRecord
from agent.checkpoint.reading import CpuFile, MemoryFile, sentence
from agent.cli.common import machine_topology
from agent.cli.scratch import DEFAULT_CONFIG
from agent.cli.statefiles import Stored, Unread
from agent.config import Config, load_config
from agent.containermanager.machine import Machine
from agent.domain.idset import CpuSet
from agent.domain.settings import Fidelity
from agent.domain.state import NodeState
from agent.errors import StateError
from agent.memorymanager.machinestate import expected_machine_state, initial_machine_state


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """``cpus`` and ``memory`` are what a state must account for; ``machine`` None: no configuration."""

    cpus: CpuSet
    memory: MachineMemory
    machine: Machine | None

    @classmethod
    def of(cls, recorded: Path | None, config: Config | None) -> Self:
        """This host or a recorded machine. Raises ConfigError, HostError."""
        topology = machine_topology(recorded)
        cpus, memory = topology.online, initial_machine_state(topology, {}, Fidelity.SAFE)
        if config is None:
            return cls(cpus=cpus, memory=memory, machine=None)
        arithmetic = config.reservation_arithmetic(topology)
        machine = Machine.of(topology, config.settings(topology), arithmetic)
        fresh = restore(machine.managers, NodeState())
        return cls(
            cpus=fresh.cpu.default or cpus,  # strictly reserved CPUs are in no state
            memory=fresh.memory.nodes or memory,
            machine=machine,
        )

    @property
    def managed(self) -> Machine:
        """The machine under its configuration, which there must be."""
        assert self.machine is not None  # noqa: S101 - the caller gave one
        return self.machine

    def findings(self, stored: Stored) -> Iterator[tuple[str, str]]:
        """Where the checkpoints do not fit: the file and a sentence."""
        for source in (self._other_policies, self._other_sizes, self._refusals):
            found = list(source(stored))
            yield from found
            if found:  # what follows from it would only repeat it
                return

    def _other_policies(self, stored: Stored) -> Iterator[tuple[str, str]]:
        settings = self.machine.settings if self.machine else None
        if settings and stored.cpu and stored.cpu.policy != settings.cpu_policy.value:
            yield stored.cpu_name, _policy("cpu", stored.cpu.policy, settings.cpu_policy.value)
        if settings and stored.memory and stored.memory.policy != settings.memory_policy.value:
            yield stored.memory_name, _policy("memory", stored.memory.policy, settings.memory_policy.value)

    def _other_sizes(self, stored: Stored) -> Iterator[tuple[str, str]]:
        for text in cpu_differences(stored.state.cpu, self.cpus):
            yield stored.cpu_name, text
        for text in memory_differences(stored.state.memory, self.memory, reserved=self.machine is not None):
            yield stored.memory_name, text

    def _refusals(self, stored: Stored) -> Iterator[tuple[str, str]]:
        """What the managers say at start, where ids and sizes are right."""
        if self.machine is None:
            return
        state = stored.state
        try:
            restore(self.machine.managers, state)
        except StateError as error:
            name = stored.cpu_name if error.manager == "cpu" else stored.memory_name
            yield name, sentence(error)
            with suppress(StateError):  # a block where there is no memory: said already
                booked = expected_machine_state(self.memory, state.memory)
                for text in booking_differences(state.memory, booked):
                    yield stored.memory_name, text


def _policy(manager: str, stored: str, configured: str) -> str:
    return f'written under {manager}ManagerPolicy "{stored}", configured is "{configured}"'


def findings_within(stored: Stored) -> Iterator[tuple[str, str]]:
    """What is wrong with the files by themselves: the file and a sentence."""
    for name, file in stored.files.items():
        match file:
            case Unread(text):
                yield name, text
            case CpuFile() | MemoryFile():
                state = (
                    NodeState(cpu=file.state) if isinstance(file, CpuFile) else NodeState(memory=file.state)
                )
                for text in (*filter(None, [file.refusal]), *file.problems, *unsound(state)):
                    yield name, text
            case PodRecord():
                pass  # it was read whole


def chosen_config(config_file: Path | None, *, live: bool) -> Config | None:
    """The configuration of a file; on the ``live`` host the daemon's own, if there is one."""
    if config_file is None and live and DEFAULT_CONFIG.exists():
        config_file = DEFAULT_CONFIG
    return load_config(config_file.read_bytes(), str(config_file)) if config_file else None
