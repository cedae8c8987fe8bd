"""Each step of a trace as a sentence for people and as JSON values for programs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, assert_never

from agent.domain.hints import ANY_NODE_BITS, NO_PREFERENCE, AnyNode, Hint, Hints, Impossible, Wish
from agent.domain.idset import NodeMask
from agent.domain.state import Blocks
from agent.domain.trace import (
    WHOLE_POD,
    Classified,
    CpusGranted,
    Kept,
    MemoryGranted,
    Merged,
    Offered,
    Pool,
    Refused,
    Shared,
    Step,
    Trace,
)
from agent.explain.words import blocks_text, cpus_text, hints_text, nodes_text

Json = dict[str, Any]
JSON_SETS: Final = 16
"""JSON lists at most so many sets of NUMA nodes of one kind, the narrowest; the count is always there."""


def explain(trace: Trace) -> list[str]:
    """One sentence per step, in the order of the decision."""
    sentences: list[str] = []
    for step in trace:
        match step:
            case Classified():
                sentences.append(f"QoS class {step.qos.value}: {step.why}")
            case Refused():
                sentences.append(f"refused, {step.reason}: {step.message}")
                if step.remedy:
                    sentences.append(f"way out: {step.remedy}")
            case _:
                who = "the pod" if step.container == WHOLE_POD else step.container
                for topic, text in step_texts(step):
                    sentences.append(f"{who}: {topic}: {text}")
    return sentences


def step_texts(
    step: Offered | Merged | CpusGranted | MemoryGranted | Shared | Kept,
) -> list[tuple[str, str]]:
    """What a step about a container says, as (topic, text)."""
    match step:
        case CpusGranted():
            texts = [("cpu", _cpus_granted(step))]
        case MemoryGranted():
            texts = [("memory", _memory_granted(step))]
        case Shared():
            texts = [(step.resource, f"{pool_text(step.pool)}: {step.why}")]
        case Kept():
            texts = [(step.resource, "keeps what it already holds")]
        case Offered():
            wishes = sorted(step.wishes.items())
            texts = [(f"{resource} hints", wish_text(wish)) for resource, wish in wishes]
            texts = texts or [(f"{step.manager} hints", "none")]
        case Merged():
            verdict = "takes" if step.admitted else "refuses"
            texts = [("merge", f"{merged_text(step)}: the policy {verdict} it")]
        case _:
            assert_never(step)
    return texts


def pool_text(pool: Pool) -> str:
    """As the Kubernetes documentation calls them."""
    return "node shared pool" if pool is Pool.NODE else "pod shared pool"


def wish_text(wish: Wish) -> str:
    """What one resource wishes for."""
    match wish:
        case Hints():
            return hints_text(wish)
        case Impossible():
            return f"cannot be served: {wish.reason}"
        case _:
            assert wish is NO_PREFERENCE  # noqa: S101 - the type checker's view of the last member
            return "no preference"


def merged_text(step: Merged) -> str:
    """Where the hints come together."""
    preferred = "preferred by all" if step.hint.preferred else "not preferred by all"
    return f"{_affinity(step.hint)}, {preferred}"


def _affinity(hint: Hint) -> str:
    return "any NUMA node" if isinstance(hint.affinity, AnyNode) else nodes_text(hint.affinity)


def _cpus_granted(step: CpusGranted) -> str:
    granted = cpus_text(step.cpus)
    cpus = granted.partition(" ")[2]  # most often one rule picked them all: rendered once
    picks = "; ".join(
        [f"{cpus if pick.cpus == step.cpus else pick.cpus}: {pick.rule}" for pick in step.picks]
    )
    how = f" ({picks})" if picks else ""
    if step.container == WHOLE_POD:
        return f"{granted} of the node shared pool{how}"
    source = "node shared pool" if step.source is Pool.NODE else "pod's CPUs"
    return f"exclusive slice, {granted} of the {source}{how}"


def _memory_granted(step: MemoryGranted) -> str:
    source = "" if step.source is Pool.NODE else " of the pod's memory"
    return f"{blocks_text(step.blocks).removeprefix('memory ') or 'nothing'}{source}"


def step_json(step: Step) -> Json:
    """The step's fields: CPU and NUMA node sets in the kernel's list format, sizes in bytes."""
    container = getattr(step, "container", WHOLE_POD)
    where = {} if container == WHOLE_POD else {"container": container}
    return {**_fields(step), **where, "text": "; ".join(explain((step,)))}


def _fields(step: Step) -> Json:
    match step:
        case Classified():
            fields: Json = {"step": "qosClass", "qosClass": step.qos.value, "why": step.why}
        case Offered():
            wishes = {resource: _wish_json(wish) for resource, wish in sorted(step.wishes.items())}
            fields = {"step": "hints", "manager": step.manager, "hints": wishes}
        case Merged():
            fields = {"step": "merge", **_hint_json(step.hint), "admitted": step.admitted}
        case CpusGranted():
            picks = [{"cpus": str(pick.cpus), "rule": pick.rule.value} for pick in step.picks]
            fields = {"step": "cpus", "cpus": str(step.cpus), "source": step.source.value, "picks": picks}
        case MemoryGranted():
            fields = {"step": "memory", "blocks": blocks_json(step.blocks), "source": step.source.value}
        case Shared():
            fields = {"step": "shared", "resource": step.resource, "pool": step.pool.value, "why": step.why}
        case Kept():
            fields = {"step": "kept", "resource": step.resource}
        case Refused():
            fields = {"step": "refused", "manager": step.manager, **_refused_json(step)}
        case _:
            assert_never(step)
    return fields


def _refused_json(step: Refused) -> Json:
    return {"reason": step.reason, "message": step.message, "remedy": step.remedy}


def _hint_json(hint: Hint) -> Json:
    nodes = None if isinstance(hint.affinity, AnyNode) else str(hint.affinity)
    return {"numaNodes": nodes, "preferred": hint.preferred}


def _wish_json(wish: Wish) -> Json:
    match wish:
        case Impossible():
            return {"impossible": wish.reason}
        case Hints():
            return {
                "preferred": _sets(wish.preferred),
                "preferredCount": len(wish.preferred),
                "other": _sets(wish.other),
                "otherCount": len(wish.other),
                "complete": wish.complete,
            }
        case _:
            return {}


def _sets(masks: Iterable[int]) -> list[str]:
    narrowest = sorted(masks, key=lambda mask: (mask.bit_count(), mask))[:JSON_SETS]
    return ["any" if mask == ANY_NODE_BITS else str(NodeMask(mask)) for mask in narrowest]


def blocks_json(blocks: Blocks) -> list[Json]:
    """``[{"type", "size", "numaNodes"}]``, sorted."""
    ordered = sorted(blocks, key=lambda block: (block.nodes.bits, block.type))
    return [{"type": b.type, "size": b.size, "numaNodes": str(b.nodes)} for b in ordered]
