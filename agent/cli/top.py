"""`numalet top`: what pods and CPUs use now."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import count as counted
from pathlib import Path
from typing import Final

import click

from agent.api.client import ControlClient
from agent.cli.common import gib, output_option, print_json_line, socket_option, table
from agent.cli.screen import Screen
from agent.cli.usage import Json, Look, Use, containers_of, cpu_shares, look, use_between
from agent.domain.idset import CpuSet

_KEYS: Final = {"cpu": "cpus", "memory": "memory", "throttled": "throttled_seconds"}
_NONE: Final = Use(cpus=0.0, throttled=0.0, throttled_seconds=0.0, memory=0, limit=None, processes=0)


@click.command()
@click.argument("what", type=click.Choice(["pods", "cpus"]), default="pods")
@click.option(
    "--sort",
    type=click.Choice(list(_KEYS)),
    help="Most of this first [default: cpu for pods, by number for cpus].",
)
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1, max=3600),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to look at a time.",
)
@click.option(
    "-n",
    "--count",
    type=click.IntRange(min=1),
    help="Look so often, then end [default: on a terminal for ever, else once].",
)
@socket_option
@output_option
def top(
    what: str, sort: str | None, interval: float, count: int | None, socket_path: Path, output: str
) -> None:
    """Watch what each container and pod, or each CPU, uses; on a terminal until q or Ctrl-C.

    CPU is in CPUs (1.50: as much as one CPU and a half), THROTTLED the share of scheduling periods in
    which a limit held it back. A CPU's time is user, system, interrupts (IRQ) and stolen by a
    hypervisor (STEAL). JSON is one object per look on a line.

    \b
    numalet top
    numalet top cpus --interval 5
    numalet top pods --sort throttled -n 3
    numalet top -o json | jq '.pods[] | {pod, cpus: .use.cpus}'
    """
    if what == "cpus" and sort not in {None, "cpu"}:
        raise click.UsageError(f"cpus cannot be sorted by {sort}: only by cpu")
    client = ControlClient(socket_path)
    show = _pods_shown if what == "pods" else _cpus_shown
    terminal = output == "text" and sys.stdout.isatty()
    with Screen(active=terminal) as screen:
        before = _look(client)
        for number in counted(1):
            if screen.wait(interval):
                return
            after = _look(client)
            facts = show(client, before, after, sort)
            if output == "json":
                print_json_line({"time": _now(), "interval": round(after.at - before.at, 3), what: facts})
            else:
                text = _pods_text(facts) if what == "pods" else _cpus_text(facts)
                screen.draw(_heading(what, interval, sort) if terminal else "", text)
            if number == (count or (0 if terminal else 1)):
                return
            before = after


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _heading(what: str, interval: float, sort: str | None) -> str:
    by = f", by {sort}" if sort else ""
    return f"numalet top {what}{by}  every {interval:g} s  {time.strftime('%H:%M:%S')}  (q ends)"


def _look(client: ControlClient) -> Look:
    pods = [pod for pod in client.call("GET", "/v1/pods")["pods"] if pod["state"] == "Admitted"]
    online = client.call("GET", "/v1/status")["cpus"]["online"]
    return look(pods, CpuSet.parse(online))


def _pods_shown(_client: ControlClient, before: Look, after: Look, sort: str | None) -> list[Json]:
    uses = use_between(before, after)

    def weight(cgroup: Json) -> float:
        return -float(getattr(uses.get(cgroup["cgroup"], _NONE), _KEYS[sort or "cpu"]))

    return [
        {
            "pod": f"{pod['namespace']}/{pod['name']}",
            "use": _use_json(uses, pod),
            "containers": [
                {"name": one["name"], "allowed": one.get("cpus"), "use": _use_json(uses, one)}
                for one in sorted(containers_of(pod), key=lambda one: (weight(one), one["name"]))
            ],
        }
        for pod in sorted(after.pods, key=lambda pod: (weight(pod), pod["namespace"], pod["name"]))
    ]


def _use_json(uses: Mapping[str, Use], cgroup: Json) -> Json | None:
    use = uses.get(cgroup["cgroup"])
    if use is None:
        return None
    return {
        name: round(value, 4) if isinstance(value, float) else value for name, value in asdict(use).items()
    }


def _pods_text(pods: list[Json]) -> str:
    if not pods:
        return "no pods"
    rows = [row for pod in pods for row in _pod_rows(pod)]
    return table(("pod", "container", "cpu", "of cpus", "throttled", "memory", "limit", "procs"), rows)


def _pod_rows(pod: Json) -> Iterator[tuple[str, ...]]:
    yield pod["pod"], "", *_use_cells(pod["use"], "")
    for container in pod["containers"]:
        yield "", container["name"], *_use_cells(container["use"], container["allowed"] or "")


def _use_cells(use: Json | None, allowed: str) -> tuple[str, ...]:
    if use is None:
        return "-", allowed, "-", "-", "-", "-"
    limit = "-" if use["limit"] is None else gib(use["limit"])
    return (
        f"{use['cpus']:.2f}",
        allowed,
        f"{use['throttled']:.0%}",
        gib(use["memory"]),
        limit,
        str(use["processes"]),
    )


def _cpus_shown(client: ControlClient, before: Look, after: Look, sort: str | None) -> list[Json]:
    shares = dict(cpu_shares(before, after))
    shown = [
        {
            "id": cpu["id"],
            "numaNode": cpu["numaNode"],
            "owner": cpu["owner"],
            "use": {name: round(value, 4) for name, value in shares[cpu["id"]].items()},
        }
        for cpu in client.call("GET", "/v1/cpus")["cpus"]
        if cpu["id"] in shares
    ]
    return sorted(shown, key=lambda cpu: (-cpu["use"]["busy"], cpu["id"])) if sort else shown


def _cpus_text(cpus: list[Json]) -> str:
    rows = [
        (
            cpu["id"],
            cpu["numaNode"],
            f"{cpu['use']['busy']:.0%}",
            f"{cpu['use']['user'] + cpu['use']['nice']:.0%}",
            f"{cpu['use']['system']:.0%}",
            f"{cpu['use']['irq'] + cpu['use']['softirq']:.0%}",
            f"{cpu['use']['steal']:.0%}",
            cpu["owner"],
        )
        for cpu in cpus
    ]
    return table(("cpu", "numa node", "busy", "user", "system", "irq", "steal", "owner"), rows)
