"""Templates of pods: a Pod spec in which quantities may be distributions, unfolded into all its sizes.

A distribution is a map of quantities to weights, ``cpu: {"2": 3, "4": 1}``, where a manifest has one quantity.
Every size is read and checked as any manifest is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from math import prod
from typing import Any, Final

from agent.config.load import Problem
from agent.domain.pod import Pod
from agent.domain.settings import Gates
from agent.manifest import ManifestError, parse_pod
from agent.manifest.problem import child
from agent.simulate.reading import positive

MOST_SIZES: Final = 256
Path = tuple[str | int, ...]


def sizes(spec: Mapping[str, Any], place: str, problems: list[Problem]) -> list[tuple[float, dict[str, Any]]]:
    """Each size of a template with its weight, as a Pod spec without distributions."""
    chances = dict(_distributions(spec, (), place, problems))
    count = prod(map(len, chances.values()))
    if count > MOST_SIZES:
        problems.append((place, f"its distributions amount to {count} sizes (at most {MOST_SIZES})"))
        return []
    unfolded = []
    for choice in product(*(weights.items() for weights in chances.values())):
        chosen = {path: value for path, (value, _) in zip(chances, choice, strict=True)}
        unfolded.append((prod(weight for _, weight in choice), _with(spec, (), chosen)))
    return unfolded


def _distributions(
    value: Any, path: Path, place: str, problems: list[Problem]
) -> Iterator[tuple[Path, dict[str, float]]]:
    """Where under ``resources`` a quantity is a map, and the weights there."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _distributions(item, (*path, index), f"{place}[{index}]", problems)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            where = child(place, key)
            if (
                path[-2:-1] == ("resources",)
                and path[-1] in ("requests", "limits")
                and isinstance(item, Mapping)
            ):
                yield (*path, key), dict(_weights(item, where, problems))
            else:
                yield from _distributions(item, (*path, key), where, problems)


def _weights(stated: Mapping[str, Any], place: str, problems: list[Problem]) -> Iterator[tuple[str, float]]:
    if not stated:
        problems.append((place, 'an empty distribution (expected e.g. {"2": 3, "4": 1})'))
    for quantity, weight in stated.items():
        try:
            yield quantity, positive(weight)
        except ValueError as error:
            problems.append((child(place, quantity), f"the weight {error}"))


def _with(value: Any, path: Path, chosen: Mapping[Path, str]) -> Any:
    if path in chosen:
        return chosen[path]
    if isinstance(value, list):
        return [_with(item, (*path, index), chosen) for index, item in enumerate(value)]
    if isinstance(value, Mapping):
        return {key: _with(item, (*path, key), chosen) for key, item in value.items()}
    return value


def pod_of(name: str, spec: dict[str, Any], gates: Gates, place: str, problems: list[Problem]) -> Pod | None:
    """The pod of one size; None where the manifest's rules say no."""
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    try:
        return parse_pod(document, "fleet", gates)
    except ManifestError as error:
        for problem in error.problems:
            below = problem.path.removeprefix("$").removeprefix(".metadata")
            problems.append((place + below, problem.text))
        return None
