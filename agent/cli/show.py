"""`numalet get` and `numalet describe`: what the daemon holds, as tables or JSON."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import click

from agent.api.client import ControlClient
from agent.cli.common import (
    formats_option,
    gib,
    output_option,
    pod_argument,
    pod_target,
    print_json,
    socket_option,
    table,
)
from agent.cli.events import event_lines
from agent.cli.look import age, failed, local_time, state_word, titled, well
from agent.domain.idset import CpuSet
from agent.explain.english import plural

Json = dict[str, Any]

SHOWN_EVENTS = 10
"""Of one pod; all of them: numalet events --pod POD."""


@click.command()
@click.argument("what", type=click.Choice(["pods", "cpus", "nodes", "status"]))
@socket_option
@formats_option("wide", "name")
def get(what: str, socket_path: Path, output: str) -> None:
    """List pods, CPUs or NUMA nodes, or say in short how the node is and what is wrong.

    wide tells more of each, name is for scripts.

    \b
    numalet get pods
    numalet get pods -o wide
    numalet get status
    numalet get cpus -o json | jq '.cpus[] | select(.numaNode == 1)'
    for pod in $(numalet get pods -o name); do numalet describe pod $pod; done
    """
    if (what, output) == ("status", "name"):
        raise click.UsageError("status has no names (see: numalet get pods -o name)")
    answer = ControlClient(socket_path).call("GET", f"/v1/{what}")
    if output == "json":
        print_json(answer)
    elif output == "name":
        for name in _names(what, answer):
            click.echo(name)
    else:
        text = {"pods": pods_text, "cpus": cpus_text, "nodes": nodes_text, "status": status_text}
        wide = {**text, "pods": pods_wide, "cpus": cpus_wide, "nodes": nodes_wide}
        click.echo((wide if output == "wide" else text)[what](answer))


def _names(what: str, answer: Json) -> Iterator[str]:
    if what == "pods":
        return (f"{pod['namespace']}/{pod['name']}" for pod in answer["pods"])
    return (str(one["id"]) for one in answer["cpus" if what == "cpus" else "numaNodes"])


def pods_text(answer: Json) -> str:
    """One line per container, a line for a pod that was refused."""
    if not answer["pods"]:
        return "no pods"
    rows = [row for pod in answer["pods"] for row in _pod_rows(pod)]
    return table(("pod", "state", "ready", "container", "status", "isolation", "cpus", "memory"), rows)


def _pod_rows(pod: Json) -> Iterator[tuple[str, ...]]:
    name = f"{pod['namespace']}/{pod['name']}"
    if pod["state"] != "Admitted":
        yield name, state_word(pod["state"]), "-", "-", "-", pod["reason"], "-", "-"
        return
    for position, container in enumerate(pod["containers"]):
        first = position == 0
        yield (
            name if first else "",
            state_word(_state(pod)) if first else "",
            pod["ready"] if first else "",
            container["name"],
            life_text(container),
            container["isolation"],
            container["cpus"],
            memory_text(container["memory"]),
        )


def pods_wide(answer: Json) -> str:
    """One line per container, with all that fits on a wide screen."""
    if not answer["pods"]:
        return "no pods"
    rows = [row for pod in answer["pods"] for row in _wide_rows(pod)]
    headings = ("pod", "state", "qos", "age", "source")
    return table((*headings, "container", "kind", "status", "isolation", "cpus", "memory", "cgroup"), rows)


def _wide_rows(pod: Json) -> Iterator[tuple[str, ...]]:
    head: tuple[str, ...] = (
        f"{pod['namespace']}/{pod['name']}",
        state_word(_state(pod)),
        pod["qosClass"],
        age(_changed_at(pod)),
        pod["source"],
    )
    if pod["state"] != "Admitted":
        yield *head, "-", "-", "-", f"{pod['reason']}: {pod['message']}", "-", "-", "-"
        return
    for container in pod["containers"]:
        memory = memory_text(container["memory"])
        shown = (container["isolation"], container["cpus"], memory, container["cgroup"])
        yield *head, container["name"], container["kind"], life_text(container), *shown
        head = ("",) * len(head)


def _state(pod: Json) -> str:
    return "Degraded" if pod.get("degraded") else str(pod["state"])


def life_text(container: Json) -> str:
    """``running (2 restarts)``."""
    restarts = container["restarts"]
    return f"{container['state']} ({plural(restarts, 'restart')})" if restarts else str(container["state"])


def memory_text(blocks: list[Json]) -> str:
    """``memory 1.0 GiB on node 0``."""
    return ", ".join(f"{b['type']} {gib(b['size'])} on node {b['numaNodes']}" for b in blocks) or "-"


def cpus_text(answer: Json) -> str:
    """Neighbouring CPUs of one owner share a line."""
    rows = []
    for (socket, node, owner, reserved), cpus in groupby(
        answer["cpus"], key=lambda c: (c["socket"], c["numaNode"], c["owner"], c["reserved"])
    ):
        ids = CpuSet.of(cpu["id"] for cpu in cpus)
        rows.append((ids, socket, node, owner + (" (reserved)" if reserved else "")))
    return table(("cpus", "socket", "numa node", "owner"), rows)


def cpus_wide(answer: Json) -> str:
    """One line per CPU."""
    headings = ("cpu", "core", "socket", "numa node", "reserved", "owner")
    keys = ("id", "core", "socket", "numaNode")
    rows = [
        (*(cpu[key] for key in keys), "reserved" if cpu["reserved"] else "-", cpu["owner"])
        for cpu in answer["cpus"]
    ]
    return table(headings, rows)


def nodes_wide(answer: Json) -> str:
    """The table of `nodes_text`, then each NUMA node's CPUs, pod shared pools and distances."""
    rows = [
        (node["id"], node["cpus"] or "-", node["podShared"] or "-", " ".join(map(str, node["distances"])))
        for node in answer["numaNodes"]
    ]
    more = table(("numa node", "cpus", "pod shared pools", "distances"), rows)
    return f"{nodes_text(answer)}\n\n{more}"


def nodes_text(answer: Json) -> str:
    """CPUs by pool and memory by type, one line per NUMA node and type."""
    rows = []
    for node in answer["numaNodes"]:
        head = [node["id"], node["shared"] or "-", node["exclusive"] or "-", node["reserved"] or "-"]
        for kind, held in node["memory"].items() or {"-": None}.items():
            sizes = [gib(held[key]) for key in ("allocatable", "reserved", "free")] if held else ["-"] * 3
            rows.append((*head, kind, *sizes))
            head = [""] * len(head)
    return table(
        ("numa node", "shared cpus", "exclusive", "reserved", "memory type", "allocatable", "held", "free"),
        rows,
    )


def status_text(answer: Json) -> str:
    """Counts, CPUs by pool, then a line for each thing that is wrong or waits."""
    cpus = answer["cpus"]
    lines = [
        f"Pods       {answer['pods']} admitted, {answer['degraded']} of them degraded, {answer['rejected']} rejected",
        f"CPUs       {cpus['online']} online, {cpus['shared'] or 'none'} shared, {cpus['exclusive'] or 'none'} exclusive",
        f"Isolation  {answer['hostIsolation']}",
        *(f"Notice     {notice}" for notice in answer["notices"]),
        *(f"Problem    {problem}" for problem in answer["problems"]),
        *(f"Pending    {change}" for change in answer["pendingRestart"]),
    ]
    return "\n".join(lines)


@click.command()
@socket_option
@output_option
def verify(socket_path: Path, output: str) -> None:
    """Check that the kernel has what was decided: one line per deviation, exit status 1 if there is any.

    \b
    numalet verify || systemctl status numalet
    """
    answer = ControlClient(socket_path).call("GET", "/v1/deviations")
    if output == "json":
        print_json(answer)
    else:
        click.echo("\n".join(answer["deviations"]) or "the kernel has what was decided")
    if answer["deviations"]:
        raise click.exceptions.Exit(1)


@click.command()
@click.argument("what", type=click.Choice(["pod"]))
@pod_argument
@socket_option
@output_option
def describe(what: str, pod: str, socket_path: Path, output: str) -> None:
    """Show one pod: what was decided and why, what the kernel has.

    For each file of each cgroup: what is wanted, what was written, and what the kernel makes of it.

    \b
    numalet describe pod trading
    numalet describe pod telco/upf -o yaml
    """
    answer = ControlClient(socket_path).call("GET", f"/v1/pods/{pod_target(pod)}")
    if output == "json":
        print_json(answer)
    else:
        click.echo(pod_text(answer))


def pod_text(pod: Json) -> str:
    """The whole story of one pod."""
    lines = [
        f"Pod        {pod['namespace']}/{pod['name']}",
        f"Uid        {pod['uid']}",
        f"QoS class  {pod['qosClass']}",
        f"Source     {pod['source']}",
        f"Since      {_since(pod)}",
        f"State      {state_word(_state(pod))}",
        *(f"Degraded   {reason}" for reason in pod.get("degraded", ())),
    ]
    if pod["state"] != "Admitted":
        lines += [f"Reason     {pod['reason']}", f"Message    {pod['message']}"]
        lines += [f"Remedy     {pod['remedy']}"] if pod["remedy"] else []
    elif pod["cpus"] is not None:
        lines.append(f"CPUs       {pod['cpus']} (shared pool of the pod: {pod['podSharedPool'] or 'none'})")
    if pod.get("settings"):
        lines += ["", f"{titled('Pod cgroup')} {pod['cgroup']}", *_settings_lines(pod)]
    for container in pod["containers"]:
        lines += [
            "",
            f"{titled('Container')}  {container['name']} ({container['kind']}{_isolation(container)})",
            f"  {'status':<22} {life_text(container)}{_life_since(container)}",
            *_holdings(container),
        ]
    for container in pod["ephemeralContainers"]:
        lines += ["", f"{titled('Container')}  {container['name']} (ephemeral)", *_kernel_lines(container)]
    if pod.get("events"):
        lines += [
            "",
            titled("Events"),
            *(f"  {line}" for line in event_lines(pod["events"][-SHOWN_EVENTS:])),
        ]
    if pod.get("trace"):
        lines += ["", titled("Why"), *(f"  {line}" for line in pod["trace"])]
    return "\n".join(lines)


def _life_since(container: Json) -> str:
    return (
        f" since {local_time(container['since'])} ({age(container['since'])})" if container["since"] else ""
    )


def _isolation(container: Json) -> str:
    return f", isolation {container['isolation']}" if "isolation" in container else ""


def _holdings(container: Json) -> Iterator[str]:
    """What a container of an admitted pod has."""
    if "cgroup" in container:
        if container.get("binding"):
            yield f"  {'is':<22} {container['binding']}; the pod's collective limits do not hold over it, its own do"
        yield f"  {'CPUs':<22} {container['cpus']}"
        yield f"  {'memory':<22} {memory_text(container['memory'])}"
        yield from _kernel_lines(container)


def _kernel_lines(container: Json) -> Iterator[str]:
    yield f"  {'cgroup':<22} {container['cgroup']}"
    told = {line["file"] for line in container.get("settings", ())}
    for file, value in container.get("kernel", {}).items():
        if file.removesuffix(".effective") not in told:
            yield f"  {file:<22} {_amount(file, value)}"
    yield from _settings_lines(container)


def _amount(file: str, value: str) -> str:
    return f"{value} ({gib(int(value))})" if file == "memory.current" else value


def _settings_lines(cgroup: Json) -> Iterator[str]:
    """Wanted, written and effective, file by file; what is not as it should be is marked."""
    if not cgroup.get("settings"):
        return
    rows = dict.fromkeys(
        (
            "hugetlb.*.max" if _is_no_hugepages(line) else line["file"],
            line["wanted"] or "empty",
            line["actual"] or "-",
            line["effective"] or "-",
            well("as wanted") if line["met"] else failed("NOT AS WANTED"),
        )
        for line in cgroup["settings"]
    )
    yield from (
        f"  {line}" for line in table(("file", "wanted", "written", "effective", ""), rows).split("\n")
    )


def _is_no_hugepages(line: Json) -> bool:
    """One of the many limits, two a size, of a cgroup that has no huge pages, and that are as wanted."""
    return str(line["file"]).startswith("hugetlb.") and line["wanted"] == "0" and line["met"]


def _changed_at(pod: Json) -> str:
    """When the pod came into its state."""
    return next(str(pod[key]) for key in ("endedAt", "rejectedAt", "admittedAt") if key in pod)


def _since(pod: Json) -> str:
    when = _changed_at(pod)
    return f"{local_time(when)} ({age(when)})"
