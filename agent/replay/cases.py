"""One recorded case: its answer today, and how it compares with the recorded one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from agent.errors import NumaletError
from agent.replay.checkpoint import replay_checkpoint
from agent.replay.history import replay_history
from agent.replay.merge import replay_merge
from agent.replay.take import replay_take

Json = dict[str, Any]

OPERATIONS: Final[Mapping[str, Callable[[Mapping[str, Any]], Json]]] = {
    "take": replay_take,
    "merge": replay_merge,
    "admit": replay_history,
    "checkpoint": replay_checkpoint,
}


class MalformedCaseError(NumaletError):
    """A line that is not a case of the schema."""


def answer(case: Mapping[str, Any]) -> Json:
    """The answer to one case, in the schema's ``out`` form; raises MalformedCaseError."""
    operation = OPERATIONS.get(str(case.get("op")))
    if operation is None or "in" not in case:
        raise MalformedCaseError(
            f'op "{case.get("op")}" is not one of {", ".join(OPERATIONS)}, or "in" is missing',
            hint='a case is {"op": …, "in": …, "out": …}',
        )
    try:
        return operation(case["in"])
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise MalformedCaseError(f'"in" does not have the form of op "{case["op"]}": {error!r}') from error


def mismatches(case: Mapping[str, Any], found: Json) -> list[str]:
    """Where a case's recorded answer and ``found`` differ, one ``place: expected … found …`` each.

    A checkpoint that is refused matches one that is refused: the texts are the agents' own.
    """
    expected = case["out"]
    if expected == found or (case["op"] == "checkpoint" and "error" in expected and "error" in found):
        return []
    return list(_differences(expected, found, "out"))


def _differences(expected: Any, found: Any, place: str) -> Iterator[str]:
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in [*expected, *(key for key in found if key not in expected)]:
            yield from _differences(expected.get(key, ABSENT), found.get(key, ABSENT), f"{place}.{key}")
    elif isinstance(expected, list) and isinstance(found, list):
        for position, (one, other) in enumerate(zip(expected, found, strict=False)):
            yield from _differences(one, other, f"{place}[{position}]")
        if len(expected) != len(found):
            yield f"{place}: expected {len(expected)} items, found {len(found)}"
    elif expected != found:
        yield f"{place}: expected {expected!r}, found {found!r}"


class _Absent:
    def __repr__(self) -> str:
        return "nothing"


ABSENT: Final = _Absent()
