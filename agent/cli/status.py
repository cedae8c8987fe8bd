"""`numalet status`: the node on one screen."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

import click

from agent.api.client import ControlClient, ControlError
from agent.cli.bars import Pools, cpu_bar, legend, share_bar
from agent.cli.common import gib, output_option, print_json, socket_option
from agent.cli.events import event_lines
from agent.cli.look import age, draws_unicode, failed, local_time, state_word, titled, well
from agent.domain.idset import CpuSet

Json = dict[str, Any]

_SHOWN_EVENTS: Final = 5
_SHOWN_PODS: Final = 5
_WITHDRAWN: Final = 503


@click.command()
@socket_option
@output_option
def status(socket_path: Path, output: str) -> None:
    """Show the node at a glance: machine, daemon, pools of each NUMA node, pods, problems, last events.

    Exit status 1 if there is a problem: with the node, or a pod that lacks what it was given. That a
    pod was refused is no problem of the node.

    \b
    numalet status
    numalet status -o json | jq .status.problems
    numalet status >/dev/null || numalet events
    """
    answer = _asked(ControlClient(socket_path))
    if output == "json":
        print_json(answer)
    else:
        columns = shutil.get_terminal_size().columns if draws_unicode() else None
        click.echo(screen(answer, columns))
    if answer["status"]["problems"]:
        raise click.exceptions.Exit(1)


def _asked(client: ControlClient) -> Json:
    try:
        nodes = client.call("GET", "/v1/nodes")["numaNodes"]
    except ControlError as error:
        if error.status != _WITHDRAWN:
            raise
        nodes = []  # the machine cannot be looked at now: a problem of the status says so
    return {
        "host": os.uname().nodename,
        "kernel": os.uname().release,
        "status": client.call("GET", "/v1/status"),
        "numaNodes": nodes,
        "pods": client.call("GET", "/v1/pods")["pods"],
        "events": client.call("GET", "/v1/events")["events"][-_SHOWN_EVENTS:],
    }


def screen(answer: Json, columns: int | None) -> str:
    """What `numalet status` shows, a section each; ``columns`` of a terminal that shows more than ASCII."""
    unicode = columns is not None
    sections = (
        _node(answer),
        _pools(answer["numaNodes"], unicode=unicode),
        _pods(answer["pods"]),
        _problems(answer["status"]),
        _events(answer["events"], columns),
    )
    return "\n\n".join("\n".join(lines) for section in sections if (lines := list(section)))


def _node(answer: Json) -> Iterator[str]:
    found = answer["status"]
    node, daemon, cpus = found["node"], found["daemon"], CpuSet.parse(found["cpus"]["online"])
    health = failed(f"{len(found['problems'])} to look at") if found["problems"] else well("healthy")
    yield f"{titled('Node')}       {answer['host']}: {health}"
    yield f"Machine    {len(cpus)} CPUs ({cpus}) on {node['numaNodes']} NUMA nodes; Linux {answer['kernel']}"
    yield f"Kernel     cgroup v2 with {', '.join(node['controllers']) or 'no controllers'}; boot {node['bootID']}"
    since = f"since {local_time(daemon['since'])} ({age(daemon['since'])})"
    yield f"Daemon     numalet {daemon['version']}, pid {daemon['pid']}, {since}"
    yield f"Isolation  {found['hostIsolation']}"
    yield from (f"Notice     {notice}" for notice in found["notices"])


def _pools(nodes: list[Json], *, unicode: bool) -> Iterator[str]:
    every = [Pools.of(node) for node in nodes]
    if every:
        yield f"{titled('CPUs')}       {legend(unicode=unicode)}"
    for node, pools in zip(nodes, every, strict=True):
        yield f"node {node['id']:<5} {cpu_bar(pools, unicode=unicode)}  {pools.words()}"
        for kind, held in node["memory"].items():
            if not held["reserved"] and not held["allocatable"]:
                continue  # huge pages of a size of which this node has none
            bar = share_bar(held["reserved"], held["allocatable"], unicode=unicode)
            text = f"{kind} {gib(held['reserved'])} of {gib(held['allocatable'])} held"
            yield f"           {bar}  {text}"


def _pods(pods: list[Json]) -> Iterator[str]:
    states = [_state(pod) for pod in pods]
    shown = ("Admitted", "Degraded", *(("Succeeded",) if "Succeeded" in states else ()), "Rejected")
    counts = [f"{states.count(state)} {state.lower()}" for state in shown]
    yield f"{titled('Pods')}       {', '.join(counts)}"
    worst = [pod for pod in pods if _state(pod) not in {"Admitted", "Succeeded"}]
    for pod in islice(worst, _SHOWN_PODS):
        why = "; ".join(pod.get("degraded", ())) or f"{pod['reason']}: {pod['message']}"
        yield f"  {state_word(_state(pod))} {pod['namespace']}/{pod['name']}: {why}"
        if pod.get("remedy"):
            yield f"    {pod['remedy']}"
    if len(worst) > _SHOWN_PODS:
        yield f"  and {len(worst) - _SHOWN_PODS} more: numalet get pods"


def _state(pod: Json) -> str:
    return "Degraded" if pod.get("degraded") else str(pod["state"])


def _problems(found: Json) -> Iterator[str]:
    for problem, remedy in zip(found["problems"], found["remedies"], strict=True):
        yield f"{failed('Problem')}    {problem}"
        if remedy:
            yield f"           {remedy}"


def _events(events: list[Json], columns: int | None) -> Iterator[str]:
    if events:
        yield titled("Last events")
    for line in event_lines(events, None if columns is None else columns - 2):
        yield f"  {line}"
