"""`numalet get` and `numalet describe`: what the daemon holds, as tables or JSON."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import click

from agent.api.client import ControlClient
from agent.cli.common import gib, output_option, pod_argument, pod_target, print_json, socket_option, table
from agent.domain.idset import CpuSet

Json = dict[str, Any]


@click.command()
@click.argument("what", type=click.Choice(["pods", "cpus", "nodes", "status"]))
@socket_option
@output_option
def get(what: str, socket_path: Path, output: str) -> None:
    """List pods, CPUs or NUMA nodes, or say in short how the node is and what is wrong.

    \b
    numalet get pods
    numalet get status
    numalet get cpus -o json | jq '.cpus[] | select(.numaNode == 1)'
    """
    answer = ControlClient(socket_path).call("GET", f"/v1/{what}")
    if output == "json":
        print_json(answer)
    else:
        shown = {"pods": pods_text, "cpus": cpus_text, "nodes": nodes_text, "status": status_text}[what]
        click.echo(shown(answer))


def pods_text(answer: Json) -> str:
    """One line per container, a line for a pod that was refused."""
    if not answer["pods"]:
        return "no pods"
    rows = [row for pod in answer["pods"] for row in _pod_rows(pod)]
    return table(("pod", "state", "container", "isolation", "cpus", "memory"), rows)


def _pod_rows(pod: Json) -> Iterator[tuple[str, ...]]:
    name = f"{pod['namespace']}/{pod['name']}"
    if pod["state"] != "Admitted":
        yield name, pod["state"], "-", pod["reason"], "-", "-"
    for position, container in enumerate(pod["containers"]):
        first = position == 0
        yield (
            name if first else "",
            _state(pod) if first else "",
            container["name"],
            container["isolation"],
            container["cpus"],
            memory_text(container["memory"]),
        )


def _state(pod: Json) -> str:
    return "Degraded" if pod.get("degraded") else str(pod["state"])


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

    \b
    numalet describe pod trading
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
        f"State      {_state(pod)}",
        *(f"Degraded   {reason}" for reason in pod.get("degraded", ())),
    ]
    if pod["state"] != "Admitted":
        lines += [f"Reason     {pod['reason']}", f"Message    {pod['message']}"]
        lines += [f"Remedy     {pod['remedy']}"] if pod["remedy"] else []
    elif pod["cpus"] is not None:
        lines.append(f"CPUs       {pod['cpus']} (shared pool of the pod: {pod['podSharedPool'] or 'none'})")
    for container in pod["containers"]:
        lines += [
            "",
            f"Container  {container['name']} ({container['kind']}, isolation {container['isolation']})",
            f"  {'CPUs':<22} {container['cpus']}",
            f"  {'memory':<22} {memory_text(container['memory'])}",
            *_kernel_lines(container),
        ]
    for container in pod["ephemeralContainers"]:
        lines += ["", f"Container  {container['name']} (ephemeral)", *_kernel_lines(container)]
    if pod.get("trace"):
        lines += ["", "Why", *(f"  {line}" for line in pod["trace"])]
    return "\n".join(lines)


def _kernel_lines(container: Json) -> Iterator[str]:
    yield f"  {'cgroup':<22} {container['cgroup']}"
    for file, value in container.get("kernel", {}).items():
        yield f"  {file:<22} {value}"
