"""What is wrong with a configuration on a given machine: every problem, not only a manager's first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from agent.config.load import Problem
from agent.config.model import Config
from agent.cpumanager.options import parse_options
from agent.cpumanager.policy import new_cpu_manager
from agent.domain.settings import CpuPolicy
from agent.domain.topology import Topology
from agent.errors import ConfigError
from agent.manifest.problem import child
from agent.memorymanager.policy import new_memory_manager
from agent.topologymanager.options import policy_options
from agent.topologymanager.policy import new_topology_manager

_CPU_OPTIONS: Final = "$.cpuManagerPolicyOptions"
_TOPOLOGY_OPTIONS: Final = "$.topologyManagerPolicyOptions"


def machine_problems(config: Config, topology: Topology) -> tuple[Problem, ...]:
    """The managers' start-up checks, with the kubelet's words, the way out, and the place of each."""
    return tuple(_problems(config, topology))


def _problems(config: Config, topology: Topology) -> Iterator[Problem]:
    settings = config.settings(topology)
    options = tuple(_bad_options(_TOPOLOGY_OPTIONS, settings.topology_options, policy_options))
    yield from options or _refusal(
        "$.topologyManagerPolicy", lambda: new_topology_manager(settings, topology)
    )
    options = ()
    if settings.cpu_policy is CpuPolicy.STATIC:
        options = tuple(
            _bad_options(
                _CPU_OPTIONS, settings.cpu_options, lambda option: parse_options(option, settings.gates)
            )
        )
    place = _CPU_OPTIONS if settings.cpu_options else "$.reservedSystemCPUs"
    yield from options or _refusal(place, lambda: new_cpu_manager(settings, topology))
    arithmetic = config.reservation_arithmetic(topology)
    yield from _refusal("$.reservedMemory", lambda: new_memory_manager(settings, topology), arithmetic)


def _bad_options(
    place: str, options: Mapping[str, str], parse: Callable[[Mapping[str, str]], object]
) -> Iterator[Problem]:
    for name, text in options.items():
        yield from _refusal(child(place, name), lambda name=name, text=text: parse({name: text}))  # type: ignore[misc]


def _refusal(place: str, build: Callable[[], object], arithmetic: str = "") -> Iterator[Problem]:
    try:
        build()
    except ConfigError as error:
        hint = memory_hint(error, arithmetic)
        yield place, f"{error.message} ({hint})" if hint else error.message


def memory_hint(error: ConfigError, arithmetic: str) -> str:
    """The error's way out; where reserved memory does not add up, with the ``arithmetic`` of what it should.

    The manager knows what reservedMemory adds up to, the configuration what it should.
    """
    if 'of type "memory" is not equal to' not in error.message:
        return error.hint
    return f"{error.hint.partition(';')[0]}; {arithmetic}"
