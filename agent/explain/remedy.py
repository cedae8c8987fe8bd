"""Remedies: what would have to change for a refused pod to fit. Every number in one was rehearsed.

Pure: a refusal and all it depended on -> a sentence. It is worked out only after a refusal, so a
decision that admits costs nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from agent.cpumanager.options import FULL_PCPUS_ONLY, parse_options
from agent.cpumanager.requests import guaranteed_cpus, pod_guaranteed_cpus
from agent.domain.hints import Impossible
from agent.domain.idset import CpuSet, NodeMask
from agent.domain.pod import CPU, MEMORY, Pod, ResourceName
from agent.domain.settings import CpuPolicy, Settings, TopologyPolicy
from agent.domain.state import NodeState
from agent.domain.topology import Topology
from agent.domain.trace import WHOLE_POD, Offered, Refused, Trace
from agent.explain.claims import claims, pod_budget
from agent.explain.edits import Amounts, Edit, with_amounts
from agent.explain.emptypool import empty_pools, lowered, raised
from agent.explain.english import listed, plural
from agent.explain.shortage import Ground
from agent.explain.words import amount, amounts, nodes_text

ALIGNED: Final = {TopologyPolicy.RESTRICTED, TopologyPolicy.SINGLE_NUMA_NODE}
MAX_TRIES: Final = 3
"""A suggestion costs one rehearsal; the narrower NUMA placements are not all tried."""
MOST_RANKED: Final = 8
"""On more NUMA nodes best-effort is not rehearsed: it ranks the placements that nobody prefers, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A refusal and all it depended on.

    ``state`` is what the manager that refused saw: with the pod's containers that had been placed
    by then. ``trace`` are the steps before ``refused``. ``fits`` rehearses a changed pod under a
    topology policy.
    """

    settings: Settings
    machine: Topology
    reserved: CpuSet
    state: NodeState
    pod: Pod
    trace: Trace
    refused: Refused
    fits: Callable[[Pod, TopologyPolicy], bool]


def remedy(refusal: Refusal) -> str:
    """What would have to change; empty where nothing is known to help."""
    reasons = _impossible(refusal)
    refused = refusal.refused
    if refused.reason == "EmptyPodSharedPoolError" or any(r.startswith("pod rejected") for r in reasons):
        return _empty_pool_remedy(refusal)
    if any("already holds" in reason for reason in reasons):
        return f"{listed(sorted(set(reasons)))}: delete the pod, then apply it anew"
    if refused.reason == "SMTAlignmentError":
        return _smt_remedy(refusal)
    wanted = _wanted(refusal)
    if not wanted or (refused.remedy and not (refused.manager == MEMORY and wanted.keys() - {CPU})):
        return refused.remedy
    if refused.manager == CPU:
        return _cpu_remedy(refusal, wanted[CPU])
    return _placement_remedy(refusal, wanted)


def _impossible(refusal: Refusal) -> list[str]:
    """Why resources of the refused container or pod could not be served anywhere."""
    return [
        wish.reason
        for step in refusal.trace
        if isinstance(step, Offered) and step.container == refusal.refused.container
        for wish in step.wishes.values()
        if isinstance(wish, Impossible)
    ]


def _fits(refusal: Refusal, edit: Edit | None) -> bool:
    return edit is not None and refusal.fits(edit.pod, refusal.settings.topology_policy)


def _multiple(refusal: Refusal) -> int:
    """CPUs come in multiples of this: a whole core under full-pcpus-only."""
    if refusal.settings.cpu_policy is CpuPolicy.NONE:
        return 1
    options = parse_options(refusal.settings.cpu_options, refusal.settings.gates)
    return refusal.machine.threads_per_core if options.full_pcpus_only else 1


def _empty_pool_remedy(refusal: Refusal) -> str:
    pools = empty_pools(refusal.pod, refusal.settings)
    situation = "; ".join(pool.situation() for pool in pools)
    raising, lowering = raised(refusal.pod, pools, _multiple(refusal)), lowered(refusal.pod, pools)
    ways = []
    if _fits(refusal, raising):
        assert raising is not None  # noqa: S101 - _fits says so
        ways.append(f"raise {raising.text}")
    if _fits(refusal, lowering):
        assert lowering is not None  # noqa: S101 - _fits says so
        ways.append(f"lower {lowering.text}")
    if not ways and raising is not None:
        ways.append(f"raise {raising.text}, though that alone does not make it fit here")
    return f"{situation}: {', or '.join(ways)}" if ways else situation


def _smt_remedy(refusal: Refusal) -> str:
    wanted = _wanted(refusal)
    threads = _multiple(refusal)
    n = wanted.get(CPU, 0)
    if n % threads == 0:
        return _cpu_remedy(refusal, n)
    down, up = n - n % threads, n - n % threads + threads
    tried = [
        with_amounts(refusal.pod, refusal.refused.container, {CPU: n}, {CPU: size})
        for size in (up, down)
        if size
    ]
    fitting = [edit.text for edit in tried if edit is not None and _fits(refusal, edit)]
    numbers = listed([str(size) for size in (down, up) if size], "or")
    what = fitting[0].rpartition(" to ")[0] if fitting else ""
    sizes = listed([text.rpartition(" to ")[2] for text in fitting], "or")
    way = f"change {what} to {sizes}" if fitting else f"ask for {numbers} CPUs"
    return f"{FULL_PCPUS_ONLY} gives out whole cores of {plural(threads, 'CPU')}: {way}"


def _cpu_remedy(refusal: Refusal, n: int) -> str:
    """Not enough CPUs on the whole machine, whichever NUMA nodes."""
    ground, multiple = _ground(refusal), _multiple(refusal)
    free = sum(held[CPU] for held in ground.free.values())
    parts = f"{plural(n, 'CPU')} wanted, {free} free in all: {ground.overview((CPU,))}"
    size = free - free % multiple
    edit = with_amounts(refusal.pod, refusal.refused.container, {CPU: n}, {CPU: size}) if size else None
    ways = [f"lower {edit.text}"] if edit is not None and _fits(refusal, edit) else []
    if refusal.state.pods() - {refusal.pod.uid}:
        ways.append("delete pods that hold CPUs")
    return f"{parts}. {_capital(', or '.join(ways))}" if ways else parts


def _ground(refusal: Refusal) -> Ground:
    available = refusal.state.cpu.default - refusal.reserved
    if _multiple(refusal) > 1:  # full-pcpus-only: a core with a reserved thread is of no use
        available -= refusal.machine.siblings(refusal.reserved)
    return Ground.of(refusal.machine, available, refusal.reserved, refusal.state.memory)


def _wanted(refusal: Refusal) -> Amounts:
    """What the refused container or pod asks for of its own."""
    pod, settings, name = refusal.pod, refusal.settings, refusal.refused.container
    if name == WHOLE_POD:
        cpus = pod_guaranteed_cpus(pod, settings.gates)
        memory = pod_budget(pod, settings)
    else:
        container = pod.container(name)
        cpus = guaranteed_cpus(pod, container, settings.gates) if container else 0
        memory = next((c.memory for c in claims(pod, settings) if c.container == name), {})
    cpu = {CPU: cpus} if cpus and settings.cpu_policy is CpuPolicy.STATIC else {}
    return {**cpu, **memory}


def _placement_remedy(refusal: Refusal, wanted: Amounts) -> str:
    ground = _ground(refusal)
    sizes = {resource: ground.fewest(resource, size) for resource, size in wanted.items()}
    counts = _counts(refusal.settings.topology_policy, list(sizes.values()), len(ground.free))
    choices = [ground.closest(wanted, count) for count in counts[:MAX_TRIES]]
    nodes = choices[0]
    parts = [_need(refusal, ground, wanted, sizes)]
    if None not in sizes.values() and ground.missing(nodes, wanted):
        parts += [f"free: {ground.overview(ground.scarce(nodes, wanted))}", ground.shortage(nodes, wanted)]
    ways = [
        _ask_for_less(refusal, ground, wanted, choices),
        _ask_for_more_cpus(refusal, ground, wanted, counts[0]),
        _free_some(refusal, ground, wanted, nodes),
        _other_policy(refusal),
    ]
    ways = [way for way in ways if way]
    text = "; ".join(parts)
    return f"{text}. {_capital(', or '.join(ways))}" if ways else text


def _counts(policy: TopologyPolicy, sizes: list[int | None], nodes: int) -> list[int]:
    """How many NUMA nodes a placement may have, the widest first."""
    if policy is TopologyPolicy.SINGLE_NUMA_NODE:
        return [1]
    return sorted({1, *(nodes if size is None else size for size in sizes)}, reverse=True)


def _need(refusal: Refusal, ground: Ground, wanted: Amounts, sizes: Mapping[ResourceName, int | None]) -> str:
    """What was asked for, and from where the policy wants it."""
    beyond = {resource: wanted[resource] for resource, count in sizes.items() if count is None}
    if beyond:
        total = {r: sum(held.get(r, 0) for held in ground.usable.values()) for r in beyond}
        return f"{amounts(beyond)} wanted, but all of this machine has {amounts(total)} for pods"
    policy = refusal.settings.topology_policy
    cpu, memory = _nodes_needed(sizes)
    if policy is TopologyPolicy.RESTRICTED and cpu and memory and cpu != memory:
        kinds = {resource: size for resource, size in wanted.items() if resource != CPU}
        return (
            f"{amount(CPU, wanted[CPU])} take {plural(cpu, 'NUMA node')}, {amounts(kinds)} takes"
            f" {plural(memory, 'NUMA node')}; restricted wants both from the same nodes, and no more than needed"
        )
    count = 1 if policy is TopologyPolicy.SINGLE_NUMA_NODE else max(cpu, memory, 1)
    where = f" from {plural(count, 'NUMA node')}" if policy in ALIGNED else ""
    return f"{amounts(wanted)} wanted{where}"


def _nodes_needed(sizes: Mapping[ResourceName, int | None]) -> tuple[int, int]:
    """The fewest NUMA nodes for the CPUs and for all memory types together; 0 where none are asked for."""
    memory = [count or 0 for resource, count in sizes.items() if resource != CPU]
    return sizes.get(CPU) or 0, max(memory, default=0)


def _other_policy(refusal: Refusal) -> str:
    policy, nodes = refusal.settings.topology_policy, len(refusal.machine.nodes)
    way = "set topologyManagerPolicy best-effort, which takes other NUMA nodes too"
    if policy not in ALIGNED:
        return ""
    if nodes > MOST_RANKED:
        return f"{way} (not rehearsed on {nodes} NUMA nodes)"
    return way if refusal.fits(refusal.pod, TopologyPolicy.BEST_EFFORT) else ""


def _ask_for_less(refusal: Refusal, ground: Ground, wanted: Amounts, choices: list[NodeMask]) -> str:
    """The most that a set of nodes can give now, if the pod then fits."""
    multiple = _multiple(refusal)
    for nodes in choices:
        offer = ground.offer(nodes, wanted, multiple)
        edit = with_amounts(refusal.pod, refusal.refused.container, wanted, offer)
        if all(offer.values()) and edit is not None and _fits(refusal, edit):
            return f"lower {edit.text}"
    return ""


def _ask_for_more_cpus(refusal: Refusal, ground: Ground, wanted: Amounts, count: int) -> str:
    """Under restricted, CPUs for as many nodes as the memory needs are aligned with it again."""
    size = wanted.get(CPU)
    if refusal.settings.topology_policy is not TopologyPolicy.RESTRICTED or not size:
        return ""
    enough = ground.largest(CPU, count - 1) + 1
    enough += -enough % _multiple(refusal)
    edit = with_amounts(refusal.pod, refusal.refused.container, {CPU: size}, {CPU: enough})
    if enough > size and edit is not None and _fits(refusal, edit):
        return f"raise {edit.text}"
    return ""


def _free_some(refusal: Refusal, ground: Ground, wanted: Amounts, nodes: NodeMask) -> str:
    """Deleting pods helps only where others hold what is missing."""
    lacks = ground.missing(nodes, wanted)
    others = refusal.state.pods() - {refusal.pod.uid}
    enough = all(ground.usable_on(nodes, resource) >= wanted[resource] for resource in lacks)
    if not lacks or not others or not enough:
        return ""
    held = listed(["CPUs" if resource == CPU else resource for resource in lacks])
    return f"delete pods that hold {held} on {nodes_text(nodes)}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
