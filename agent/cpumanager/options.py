"""cpuManagerPolicyOptions: names, maturity, values, and what does not go together.

KEPs 2902 (distribute-cpus-across-numa), 4176 (distribute-cpus-across-cores), 4540
(strict-cpu-reservation), 4800 (prefer-align-cpus-by-uncorecache).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from agent.cpumanager.assignment import Strategy
from agent.cpumanager.distribute import Distributed
from agent.cpumanager.packed import Packed
from agent.domain.settings import Gates, TopologyPolicy
from agent.domain.topology import Topology
from agent.errors import ConfigError

FULL_PCPUS_ONLY: Final = "full-pcpus-only"
DISTRIBUTE_ACROSS_NUMA: Final = "distribute-cpus-across-numa"
ALIGN_BY_SOCKET: Final = "align-by-socket"
DISTRIBUTE_ACROSS_CORES: Final = "distribute-cpus-across-cores"
STRICT_RESERVATION: Final = "strict-cpu-reservation"
PREFER_UNCORE: Final = "prefer-align-cpus-by-uncorecache"

ALPHA: Final = frozenset({ALIGN_BY_SOCKET, DISTRIBUTE_ACROSS_CORES})
BETA: Final = frozenset({DISTRIBUTE_ACROSS_NUMA, PREFER_UNCORE})
STABLE: Final = frozenset({FULL_PCPUS_ONLY, STRICT_RESERVATION})

_EXCLUDE_EACH_OTHER: Final = (
    (FULL_PCPUS_ONLY, DISTRIBUTE_ACROSS_CORES),
    (DISTRIBUTE_ACROSS_NUMA, DISTRIBUTE_ACROSS_CORES),
    (PREFER_UNCORE, DISTRIBUTE_ACROSS_CORES),
    (PREFER_UNCORE, DISTRIBUTE_ACROSS_NUMA),
)
_BOOLS: Final = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuOptions:
    """The options of the static policy."""

    full_pcpus_only: bool = False
    distribute_across_numa: bool = False
    align_by_socket: bool = False
    distribute_across_cores: bool = False
    strict_reservation: bool = False
    prefer_uncore: bool = False

    def strategy(self, threads_per_core: int) -> Strategy:
        """How `take` is to choose CPUs."""
        if self.distribute_across_numa:
            group_size = threads_per_core if self.full_pcpus_only else 1
            return Distributed(group_size=group_size, spread=self.distribute_across_cores)
        return Packed(spread=self.distribute_across_cores, uncore=self.prefer_uncore)


def parse_options(texts: Mapping[str, str], gates: Gates) -> CpuOptions:
    """Read the option map; raises ConfigError with the kubelet's text for the first fault by name."""
    chosen: dict[str, bool] = {}
    for name, text in sorted(texts.items()):
        _check_available(name, gates)
        if text not in _BOOLS:
            raise ConfigError(
                f"bad value for option {_quoted(name)}: strconv.ParseBool: parsing {_quoted(text)}: invalid syntax",
                hint='use "true" or "false"',
            )
        chosen[name] = _BOOLS[text]
    for one, other in _EXCLUDE_EACH_OTHER:
        if chosen.get(one) and chosen.get(other):
            raise ConfigError(f"static policy options {one} and {other} can not be used at the same time")
    return CpuOptions(
        full_pcpus_only=chosen.get(FULL_PCPUS_ONLY, False),
        distribute_across_numa=chosen.get(DISTRIBUTE_ACROSS_NUMA, False),
        align_by_socket=chosen.get(ALIGN_BY_SOCKET, False),
        distribute_across_cores=chosen.get(DISTRIBUTE_ACROSS_CORES, False),
        strict_reservation=chosen.get(STRICT_RESERVATION, False),
        prefer_uncore=chosen.get(PREFER_UNCORE, False),
    )


def check_options(options: CpuOptions, topology: Topology, policy: TopologyPolicy) -> None:
    """Check the options against machine and topology policy; raises ConfigError."""
    if not options.align_by_socket:
        return
    if policy is TopologyPolicy.SINGLE_NUMA_NODE:
        raise ConfigError(
            "Topolgy manager single-numa-node policy is incompatible"  # codespell:ignore
            " with CPUManager align-by-socket policy option"
        )
    if len(topology.sockets) > len(topology.node_cpus):
        raise ConfigError(
            "Align by socket is not compatible with hardware where"
            " number of sockets are more than number of NUMA"
        )


def _check_available(name: str, gates: Gates) -> None:
    if name in ALPHA:
        level, enabled = "Alpha", gates.cpu_alpha_options
    elif name in BETA:
        level, enabled = "Beta", gates.cpu_beta_options
    elif name in STABLE:
        return
    else:
        known = ", ".join(sorted(ALPHA | BETA | STABLE))
        raise ConfigError(f"unknown CPU Manager Policy option: {_quoted(name)}", hint=f"known: {known}")
    if not enabled:
        raise ConfigError(
            f"CPU Manager Policy {level}-level Options not enabled, but option {_quoted(name)} provided",
            hint=f"enable the feature gate CPUManagerPolicy{level}Options",
        )


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
