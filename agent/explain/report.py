"""A decision in reading order: sections of labelled lines, wrapped for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from agent.cpumanager.requests import is_managed_as_pod, pod_guaranteed_cpus
from agent.domain.hints import Impossible
from agent.domain.pod import CPU, MEMORY, ContainerKind, Pod
from agent.domain.settings import CpuPolicy, Settings, TopologyPolicy
from agent.domain.trace import (
    WHOLE_POD,
    Classified,
    CpusGranted,
    Kept,
    MemoryGranted,
    Merged,
    Offered,
    Refused,
    Shared,
    Trace,
)
from agent.explain.claims import Claim, claims, is_allocated_as_pod, pod_budget
from agent.explain.sentences import merged_text, pool_text, step_texts
from agent.explain.words import amounts

WIDTH: Final = 96
WIDEST_LABEL: Final = 24

Row = tuple[str, str]
Told = Offered | Merged | CpusGranted | MemoryGranted | Shared | Kept
KINDS: Final = {
    ContainerKind.INIT: "init container",
    ContainerKind.SIDECAR: "sidecar",
    ContainerKind.APP: "app container",
}


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and (label, text) rows."""

    heading: str
    rows: tuple[Row, ...]


def sections(pod: Pod, settings: Settings, trace: Trace) -> tuple[Section, ...]:
    """The story of one decision: QoS class, what is claimed, then step by step who got what."""
    claimed = claims(pod, settings)
    wanted = {claim.container: bool(claim.memory) for claim in claimed}
    wanted[WHOLE_POD] = bool(pod_budget(pod, settings))
    return (
        Section("QoS class", tuple(_qos(trace))),
        Section("What is asked for", tuple(_asked(pod, settings, claimed))),
        *_decided(settings, trace, wanted),
        *_refused(trace),
    )


def render(parts: Sequence[Section]) -> str:
    """Text of at most `WIDTH` columns; labels in one column, long lines wrapped under their text."""
    labels = [len(label) for part in parts for label, _ in part.rows]
    width = min(max(labels, default=0), WIDEST_LABEL)
    return "\n\n".join(
        "\n".join((f"  {part.heading}", *(_line(label, text, width) for label, text in part.rows)))
        for part in parts
        if part.rows
    )


def _line(label: str, text: str, width: int) -> str:
    return textwrap.fill(
        text,
        width=WIDTH,
        initial_indent=f"    {label:<{width}}  ",
        subsequent_indent=" " * (4 + width + 2),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _qos(trace: Trace) -> Iterator[Row]:
    for step in trace:
        if isinstance(step, Classified):
            yield step.qos.value, step.why


def _asked(pod: Pod, settings: Settings, claimed: Sequence[Claim]) -> Iterator[Row]:
    if pod.has_pod_level_resources:
        yield "spec.resources", _budget(pod, settings)
    for claim in claimed:
        binding = pod.bindings.get(claim.container)
        elsewhere = f"; it is {binding}" if binding else ""
        yield claim.container, f"{KINDS[claim.kind]}, {_claim(claim)}{elsewhere}"


def _budget(pod: Pod, settings: Settings) -> str:
    if not is_managed_as_pod(pod, settings.gates):
        return "not managed: the feature gate PodLevelResourceManagers is off"
    if not is_allocated_as_pod(pod, settings):
        none = settings.topology_policy is TopologyPolicy.NONE
        under = "topology policy none" if none else "scope container"
        return f"a limit for all containers together; under {under} each container is placed alone"
    cpus = pod_guaranteed_cpus(pod, settings.gates) if settings.cpu_policy is CpuPolicy.STATIC else 0
    wanted = {**({CPU: cpus} if cpus else {}), **pod_budget(pod, settings)}
    if not wanted:
        return "nothing that could be exclusive"
    return f"{amounts(wanted)}, one allocation for the pod, divided among its containers"


def _claim(claim: Claim) -> str:
    own = {**({CPU: claim.cpus} if claim.cpus else {}), **claim.memory}
    slices = f"exclusive slice: {amounts(own)}" if own else ""
    shared = []
    if claim.why_no_cpus == claim.why_no_memory and claim.cpu_pool is claim.memory_pool:
        if not own:
            shared.append(f"{pool_text(claim.cpu_pool)}: {claim.why_no_cpus}")
    else:
        shared += [f"cpu from the {pool_text(claim.cpu_pool)}: {claim.why_no_cpus}"] if not claim.cpus else []
        shared += (
            [f"memory from the {pool_text(claim.memory_pool)}: {claim.why_no_memory}"]
            if not claim.memory
            else []
        )
    return "; ".join(filter(None, (slices, *shared)))


def _decided(settings: Settings, trace: Trace, wanted: Mapping[str, bool]) -> Iterator[Section]:
    """The pod's own steps, then each container's: one section where they were placed one by one.

    ``wanted`` tells who asks for memory of its own.
    """
    if settings.topology_policy is TopologyPolicy.NONE:
        yield Section("NUMA nodes", (("merge", "topologyManagerPolicy is none: no hints, any NUMA node"),))
    rows: dict[str, list[Row]] = {}
    for step in trace:
        if not isinstance(step, Classified | Refused):
            rows.setdefault(step.container, []).extend(_rows(step, settings, trace, wanted))
    if WHOLE_POD in rows:
        yield Section("The pod as a whole", tuple(rows.pop(WHOLE_POD)))
    if any(label == "merge" for lines in rows.values() for label, _ in lines):
        for container, lines in rows.items():
            yield Section(f"Container {container}", tuple(lines))
    else:
        undone = any(isinstance(step, Refused) for step in trace)
        heading = "Placed before the refusal, then undone" if undone else "Who gets what"
        yield Section(heading, tuple((name, _joined(lines)) for name, lines in rows.items()))


def _rows(step: Told, settings: Settings, trace: Trace, wanted: Mapping[str, bool]) -> Iterator[Row]:
    match step:
        case Merged():
            yield "merge", _merge(step, trace, settings.topology_policy)
        case Offered() if step.manager == MEMORY and wanted[step.container] and not step.wishes:
            yield "memory hints", _no_memory_hint(step.container, trace)
        case Shared():
            yield step.resource, pool_text(step.pool)  # why is told under what is asked for
        case _:
            yield from step_texts(step)


def _joined(rows: Sequence[Row]) -> str:
    """``exclusive slice 2-3 …; memory 1Gi …``, or one pool for all."""
    if len({text for _, text in rows}) == 1:
        return rows[0][1]
    return "; ".join(f"{label} {text}" for label, text in rows)


def _no_memory_hint(container: str, trace: Trace) -> str:
    if any(isinstance(step, Kept) and step.container == container for step in trace):
        return "none: what it holds is not what it requests now"
    return "none: no NUMA nodes have enough free, so the allocation will be refused"


def _merge(step: Merged, trace: Trace, policy: TopologyPolicy) -> str:
    verdict = f"{policy.value} {'takes' if step.admitted else 'refuses'} it"
    offers = [s for s in trace if isinstance(s, Offered) and s.container == step.container]
    if not any(offer.wishes for offer in offers):
        return f"nothing to align: {verdict}"
    stuck = sorted(
        {
            resource
            for offer in offers
            for resource, wish in offer.wishes.items()
            if isinstance(wish, Impossible)
        }
    )
    if stuck:
        return f"{', '.join(stuck)} cannot be served anywhere, so nothing is preferred: {verdict}"
    if step.admitted:
        return f"{merged_text(step)}: {verdict}"
    return f"no set of NUMA nodes is preferred by all: {verdict}"


def _refused(trace: Trace) -> Iterator[Section]:
    for step in trace:
        if isinstance(step, Refused):
            rows = [("reason", step.reason), ("message", step.message)]
            if step.container != WHOLE_POD:
                rows.append(("container", step.container))
            if step.remedy:
                rows.append(("way out", step.remedy))
            yield Section("Refused", tuple(rows))
