"""What `numalet explain` and `numalet plan` show, as text for people and as JSON values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from agent.admission import Managers, isolation
from agent.cli.common import table
from agent.cli.recorded import Recorded
from agent.cli.scratch import Rehearsed, Scratch, Unread
from agent.containermanager.machine import Machine
from agent.domain.idset import NO_CPUS, NO_NODES, CpuSet, NodeMask, union
from agent.domain.outcome import Isolation
from agent.domain.qos import qos_class
from agent.domain.settings import CpuPolicy, Settings
from agent.domain.state import Blocks
from agent.explain.claims import Claim, claims
from agent.explain.english import plural
from agent.explain.report import Section, render, sections
from agent.explain.sentences import blocks_json, step_json
from agent.explain.words import blocks_text, bytes_text, cpus_text

Json = dict[str, Any]

LEVELS: Final = {
    Isolation.CONTAINER: "exclusive slice",
    Isolation.POD: "pod shared pool",
    Isolation.HOST: "node shared pool",
}


def header(scratch: Scratch, machine: Recorded | None) -> str:
    """Under what was decided: machine, policies, options, gates that are off, reservations, state."""
    topology, settings = scratch.machine.topology, scratch.machine.settings
    counts = f"{plural(len(topology.cpus), 'CPU')}, {plural(len(topology.nodes), 'NUMA node')}"
    memory = bytes_text(sum(node.memory for node in topology.nodes))
    policies = (
        f"cpu {settings.cpu_policy.value}, memory {settings.memory_policy.value},"
        f" topology {settings.topology_policy.value}, scope {settings.topology_scope.value}"
    )
    rows = [
        ("Machine", f"{machine or 'this host'}: {counts}, memory {memory}"),
        ("Policies", policies),
        ("Options", _options_text(settings)),
        ("Gates off", ", ".join(name for name, on in _gates(settings).items() if not on)),
        ("Reserved", _reserved_text(scratch.machine)),
        ("State", scratch.origin),
    ]
    return "\n".join(f"{label:<10} {text}" for label, text in rows if text)


def _options_text(settings: Settings) -> str:
    options = {**settings.cpu_options, **settings.topology_options}
    return ", ".join(f"{name}={value}" for name, value in sorted(options.items()))


def _gates(settings: Settings) -> Mapping[str, bool]:
    return {
        "PodLevelResources": settings.gates.pod_level_resources,
        "PodLevelResourceManagers": settings.gates.pod_level_resource_managers,
    }


def _reserved_text(machine: Machine) -> str:
    cpus = machine.managers.cpu.reserved
    parts = [cpus_text(cpus)] if cpus else []
    for node, limits in sorted(machine.settings.reserved_memory.items()):
        parts += [f"{kind} {size} on NUMA node {node}" for kind, size in sorted(limits.items())]
    return ", ".join(parts)


def explained_text(machine: Machine, one: Rehearsed) -> str:
    """The story of one pod: verdict, sections, and who would get what."""
    refusal = one.refusal
    if refusal is None:
        story = render(sections(one.pod, machine.settings, one.decision.trace))
        return f"Pod {one.pod.full_name} would be admitted\n\n{story}\n\n{_result_text(machine, one)}"
    parts = sections(one.pod, machine.settings, refusal.trace)
    if not refusal.trace:
        parts = (Section("Refused", (("message", refusal.message), ("way out", refusal.remedy))),)
    return f"Pod {one.pod.full_name} would be refused: {refusal.reason}\n\n{render(parts)}"


def _result_text(machine: Machine, one: Rehearsed) -> str:
    cpu, pod = one.state.cpu, one.pod
    rows = [
        (name, LEVELS[level], str(cpus) or "any", _memory_text(machine.managers, one, name))
        for name, level, cpus, _ in _result(machine.managers, one)
    ]
    lines = table(("container", "runs in", "cpus", "memory"), rows).splitlines()
    if pod.uid in cpu.pod_entries:
        lines.append(f"Pod shared pool: {cpus_text(_pod_shared_pool(machine.managers, one))}")
    if machine.settings.cpu_policy is CpuPolicy.STATIC:
        lines.append(f"Node shared pool: {cpus_text(cpu.default)}")
    return "\n".join(("  Result", *(f"    {line}" for line in lines)))


def _memory_text(managers: Managers, one: Rehearsed, name: str) -> str:
    memory, container = one.state.memory, one.pod.container(name)
    blocks = memory.of(one.pod.uid, name) or ()
    shares = container and managers.memory.isolation(memory, one.pod, container) is Isolation.POD
    return f"{blocks_text(blocks)}{' (shared)' if shares else ''}" if blocks else "any"


def _result(managers: Managers, one: Rehearsed) -> Iterator[tuple[str, Isolation, CpuSet, Blocks]]:
    """Per container: where it runs, on which CPUs, and the memory entered for it."""
    state, uid = one.state, one.pod.uid
    for name, level in isolation(managers, state, one.pod).items():
        yield name, level, managers.cpu.cpus_of(state.cpu, uid, name), state.memory.of(uid, name) or ()


def _pod_shared_pool(managers: Managers, one: Rehearsed) -> CpuSet:
    """The pod's CPUs less the slices of its sidecars and app containers."""
    pool = one.state.cpu.pod_entries.get(one.pod.uid, NO_CPUS)
    kinds = {container.name: container.kind for container in one.pod.containers}
    for name, level, cpus, _ in _result(managers, one):
        if kinds[name].keeps_running and level is Isolation.CONTAINER:
            pool -= cpus
    return pool


def explained_json(machine: Machine, one: Rehearsed) -> Json:
    """The same as `explained_text`, for programs."""
    given: dict[str, Json] = {}
    if one.refusal is None:
        given = {
            name: {"isolation": level.value, "cpus": str(cpus), "memory": blocks_json(blocks)}
            for name, level, cpus, blocks in _result(machine.managers, one)
        }
    return {
        **_verdict_json(one),
        "qosClass": qos_class(one.pod).value,
        "containers": [
            {"name": claim.container, **_claim_json(claim), **given.get(claim.container, {})}
            for claim in claims(one.pod, machine.settings)
        ],
        "steps": [step_json(step) for step in one.decision.trace],
    }


def _verdict_json(one: Rehearsed) -> Json:
    refusal = one.refusal
    return {
        "pod": one.pod.full_name,
        "uid": one.pod.uid,
        "verdict": "rejected" if refusal else "admitted",
        "reason": refusal.reason if refusal else "",
        "message": refusal.message if refusal else "",
        "remedy": refusal.remedy if refusal else "",
    }


def _claim_json(claim: Claim) -> Json:
    return {
        "kind": claim.kind.value,
        "exclusiveCPUs": claim.cpus,
        "whyNoExclusiveCPUs": claim.why_no_cpus,
        "exclusiveMemory": dict(claim.memory),
        "whyNoExclusiveMemory": claim.why_no_memory,
    }


def settings_json(machine: Machine) -> Json:
    """Policies, options, gates and reservations, in the names of the configuration file."""
    settings = machine.settings
    return {
        "cpuManagerPolicy": settings.cpu_policy.value,
        "cpuManagerPolicyOptions": dict(settings.cpu_options),
        "memoryManagerPolicy": settings.memory_policy.value,
        "topologyManagerPolicy": settings.topology_policy.value,
        "topologyManagerScope": settings.topology_scope.value,
        "topologyManagerPolicyOptions": dict(settings.topology_options),
        "featureGates": dict(_gates(settings)),
        "reservedCPUs": str(machine.managers.cpu.reserved),
        "reservedMemory": {
            str(node): {kind: size.value for kind, size in sorted(limits.items())}
            for node, limits in sorted(settings.reserved_memory.items())
        },
    }


def plan_text(scratch: Scratch, planned: Sequence[Rehearsed], problems: Sequence[Unread], head: str) -> str:
    """Verdicts, each refusal in full, files that could not be read, and what remains per NUMA node."""
    refused = [one for one in planned if one.refusal]
    parts = [head]
    if planned:
        rows = [_plan_row(scratch.machine.managers, one) for one in planned]
        parts.append(table(("pod", "file", "verdict", "numa", "cpus", "pod shared pool"), rows))
    if refused:
        parts.append(render([Section(one.pod.full_name, tuple(_refusal(one))) for one in refused]))
    if problems:
        lines = (f"    {line}" for file in problems for line in file.problems)
        parts.append("\n".join(("  Not read", *lines)))
    parts.append(table(_LEFT_HEADINGS, _left_rows(scratch)))
    counts = f"{len(planned) - len(refused)} admitted, {len(refused)} refused"
    broken = f", {plural(len(problems), 'file')} not read" if problems else ""
    parts.append(f"{plural(len(planned), 'pod')}: {counts}{broken}")
    return "\n\n".join(parts)


_LEFT_HEADINGS: Final = ("numa node", "free cpus", "of", "memory free", "of")


def _plan_row(managers: Managers, one: Rehearsed) -> tuple[str, ...]:
    name = one.pod.full_name.removeprefix("default/")
    if one.refusal:
        return name, one.source, "refused", "-", "-", one.refusal.reason
    own, nodes = _holdings(managers, one)
    pool = _pod_shared_pool(managers, one)
    return name, one.source, "admitted", str(nodes) or "any", str(own) or "shared", str(pool) or "-"


def _holdings(managers: Managers, one: Rehearsed) -> tuple[CpuSet, NodeMask]:
    """The pod's exclusive CPUs, and the NUMA nodes of these and of its memory."""
    cpu, memory, uid = one.state.cpu, one.state.memory, one.pod.uid
    own = cpu.pod_entries.get(uid) or union(cpu.entries.get(uid, {}).values())
    nodes = NO_NODES
    for name in memory.entries.get(uid, {}):
        nodes |= managers.memory.nodes_of(memory, uid, name)
    return own, nodes | NodeMask.of(
        node for node, cpus in managers.machine.node_cpus.items() if node >= 0 and not cpus.isdisjoint(own)
    )


def _refusal(one: Rehearsed) -> Iterator[tuple[str, str]]:
    refusal = one.refusal
    if refusal:
        yield "reason", refusal.reason
        yield "message", refusal.message
        if refusal.remedy:
            yield "way out", refusal.remedy


def _left_rows(scratch: Scratch) -> Iterator[tuple[str, ...]]:
    for row in _left(scratch):
        head = (str(row["id"]), row["freeCPUs"] or "-", str(row["cpus"]))
        for kind, sizes in row["memory"].items() or {"-": None}.items():
            free = f"{kind} {bytes_text(sizes['free'])}" if sizes else "-"
            yield (*head, free, bytes_text(sizes["allocatable"]) if sizes else "-")
            head = ("", "", "")


def _left(scratch: Scratch) -> Iterator[Json]:
    """What remains per NUMA node: CPUs that may still be given exclusively, memory by type."""
    state = scratch.state
    available = state.cpu.default - scratch.machine.managers.cpu.reserved
    for node in scratch.machine.topology.nodes:
        held = state.memory.nodes.get(node.id)
        yield {
            "id": node.id,
            "cpus": len(node.cpus),
            "freeCPUs": str(node.cpus & available),
            "freeCPUCount": len(node.cpus & available),
            "memory": {
                kind: {"free": table.free, "allocatable": table.allocatable}
                for kind, table in sorted(held.tables.items() if held else ())
                if table.allocatable
            },
        }


def plan_json(
    scratch: Scratch, planned: Sequence[Rehearsed], problems: Sequence[Unread], machine: Recorded | None
) -> Json:
    """The same as `plan_text`, for programs."""
    return {
        "machine": str(machine) if machine else None,
        "settings": settings_json(scratch.machine),
        "pods": [_planned_json(scratch.machine.managers, one) for one in planned],
        "problems": [{"file": one.source, "problems": list(one.problems)} for one in problems],
        "numaNodes": list(_left(scratch)),
    }


def _planned_json(managers: Managers, one: Rehearsed) -> Json:
    verdict = {**_verdict_json(one), "file": one.source}
    if one.refusal:
        return verdict
    own, nodes = _holdings(managers, one)
    return {
        **verdict,
        "cpus": str(own),
        "numaNodes": str(nodes),
        "podSharedPool": str(_pod_shared_pool(managers, one)),
    }
