"""The options of the Topology manager's policies (KEP-3545, KEP-4622)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from agent.domain.strconv import atoi, parse_bool, quote
from agent.errors import ConfigError

PREFER_CLOSEST: Final = "prefer-closest-numa-nodes"
MAX_ALLOWABLE: Final = "max-allowable-numa-nodes"
SMALLEST_MAX_ALLOWABLE: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOptions:
    """``max_allowable_nodes`` None: any number of NUMA nodes, the operator set no limit."""

    prefer_closest: bool = False
    max_allowable_nodes: int | None = None


def policy_options(options: Mapping[str, str]) -> PolicyOptions:
    """Read `topologyManagerPolicyOptions`; raise ConfigError with the kubelet's text, first name first."""
    prefer_closest, max_allowable = False, None
    for name, text in sorted(options.items()):
        if name == PREFER_CLOSEST:
            prefer_closest = _flag(text)
        elif name == MAX_ALLOWABLE:
            max_allowable = _max_allowable(text)
        else:
            raise ConfigError(
                f"unknown Topology Manager Policy option: {quote(name)}",
                hint=f"known options: {MAX_ALLOWABLE}, {PREFER_CLOSEST}",
            )
    return PolicyOptions(prefer_closest=prefer_closest, max_allowable_nodes=max_allowable)


def _flag(text: str) -> bool:
    try:
        return parse_bool(text)
    except ValueError as error:
        raise ConfigError(
            f"bad value for option {quote(PREFER_CLOSEST)}: {error}", hint='write "true" or "false"'
        ) from error


def _max_allowable(text: str) -> int:
    # Old documentation showed "true" here; the hint tells those who copied it what is wanted.
    hint = (
        f"{MAX_ALLOWABLE} is an integer, {SMALLEST_MAX_ALLOWABLE} or more;"
        " numalet needs it on no machine, without it there is no limit"
    )
    try:
        value = atoi(text)
    except ValueError as error:
        raise ConfigError(
            f"unable to convert policy option to integer {quote(MAX_ALLOWABLE)}: {error}", hint=hint
        ) from error
    if value < SMALLEST_MAX_ALLOWABLE:
        raise ConfigError(
            f"the minimum value of {quote(MAX_ALLOWABLE)} should not be less than {SMALLEST_MAX_ALLOWABLE}",
            hint=hint,
        )
    return value
