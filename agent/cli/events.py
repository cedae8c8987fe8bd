"""`numalet events`: what happened, and as a stream what happens."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import click

from agent.api.client import ControlClient, ControlError
from agent.cli.common import complete_pod, output_option, print_json_line, socket_option
from agent.cli.look import local_time, warned

Json = dict[str, Any]

_WAIT_SECONDS: Final = 30
_RETRY_SECONDS: Final = 0.5
_NOT_REACHED: Final = 0


@click.command()
@click.option(
    "-f", "--follow", is_flag=True, help="Go on with every new event, across restarts of the daemon."
)
@click.option("--pod", metavar="POD", shell_complete=complete_pod, help="Only those of [NAMESPACE/]NAME.")
@socket_option
@output_option
def events(follow: bool, pod: str | None, socket_path: Path, output: str) -> None:  # noqa: FBT001 - a flag is a bool
    """Show what happened since the daemon started: who was admitted, refused, degraded, repaired.

    JSON is one object per line, YAML one document per event. The newest 1,000 are kept.

    \b
    numalet events
    numalet events -f --pod telco/upf
    numalet events -f -o json | jq 'select(.type == "Warning")'
    """
    source = _Source(ControlClient(socket_path), _full_name(pod) if pod else "")
    width = 0
    for found in source.follow() if follow else [source.poll(wait=0)]:
        width = max(width, _kind_width(found))
        for event in found:
            if output == "json":
                print_json_line(event)
            else:
                click.echo(_line(event, width))


def event_lines(events: Sequence[Json], columns: int | None = None) -> list[str]:
    """Each event on one line, its time as the clock on the wall shows it; cut to ``columns`` if they are given."""
    width = _kind_width(events)
    return [_line(event, width, columns) for event in events]


def _kind_width(events: Iterable[Json]) -> int:
    """How wide the column of kinds is."""
    return max((len(event["kind"]) for event in events), default=0)


def _line(event: Json, width: int, columns: int | None = None) -> str:
    when, kind, text = local_time(event["time"]), f"{event['kind']:<{width}}", event["text"]
    room = None if columns is None else max(1, columns - len(when) - len(kind) - 4)
    if room is not None and len(text) > room:
        text = text[: room - 1] + "…"
    return f"{when}  {warned(kind) if event['type'] == 'Warning' else kind}  {text}"


def _full_name(pod: str) -> str:
    namespace, _, name = pod.rpartition("/")
    return f"{namespace or 'default'}/{name}"


class _Source:
    """The daemon's events from the first that is kept on; ``run`` and ``last`` say how far we are."""

    def __init__(self, client: ControlClient, pod: str) -> None:
        self.client = client
        self.pod = pod
        self.run = ""
        self.last = 0

    def poll(self, wait: float) -> list[Json]:
        """What is new, after up to ``wait`` seconds. Raises ControlError."""
        answer = self._ask(wait)
        if self.run and answer["run"] != self.run:
            click.echo("numalet: the daemon was started anew: its events follow", err=True)
            self.last = 0
        self.run = answer["run"]
        found: list[Json] = answer["events"]
        for event in found:
            missed = event["sequence"] - self.last - 1
            if self.last and missed and not self.pod:
                click.echo(f"numalet: {missed} events were missed: they came too fast", err=True)
            self.last = event["sequence"]
        return found

    def _ask(self, wait: float) -> Json:
        run = {"run": self.run} if self.run else {}
        query = urlencode({"since": self.last, "wait": wait, "pod": self.pod, **run})
        return self.client.call("GET", f"/v1/events?{query}")

    def follow(self) -> Iterator[list[Json]]:
        """Every event, for ever; a daemon that went away is waited for. Raises ControlError before the first."""
        yield self.poll(wait=0)
        gone = False
        while True:
            try:
                found = self.poll(_WAIT_SECONDS)
            except ControlError as error:
                if error.status != _NOT_REACHED:
                    raise
                if not gone:
                    click.echo(f"numalet: {error.message}: waiting for it to come back", err=True)
                gone = True
                time.sleep(_RETRY_SECONDS)
                continue
            gone = False
            yield found
