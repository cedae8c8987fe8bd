"""Many who look at a daemon at once: ``python -m scripts.bench.crowd WORK``, until standard input ends.

200 clients ask for the status every 2 s, one lists the pods 100 times a second, one scrapes every second.
Prints how many calls failed, and then why.
"""

from __future__ import annotations

import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

import grpc

from agent.api.podresources.v1 import api_pb2 as v1
from scripts.bench.running import Daemon

CLIENTS = 200


def scrape(running: Daemon) -> int:
    """The bytes of /metrics."""
    with urllib.request.urlopen(running.metrics, timeout=60) as answer:  # noqa: S310 - our own
        return len(answer.read())


@contextmanager
def lister(running: Daemon) -> Iterator[Callable[[], int]]:
    """A connection to the PodResources API: each call counts the pods of a List."""
    with grpc.insecure_channel(running.lister) as channel:
        call = channel.unary_unary(
            "/v1.PodResourcesLister/List",
            v1.ListPodResourcesRequest.SerializeToString,
            v1.ListPodResourcesResponse.FromString,
        )
        yield lambda: len(call(v1.ListPodResourcesRequest(), timeout=60).pod_resources)


@dataclass(slots=True)
class _Crowd:
    """Calls of many kinds at once, until told to stop."""

    errors: list[str]
    stop: Event

    def every(self, seconds: float, call: Callable[[], object]) -> None:
        """Call again and again; what fails is noted."""
        due = time.monotonic()
        while not self.stop.wait(max(0.0, due - time.monotonic())):
            due = max(due + seconds, time.monotonic())
            try:
                call()
            except Exception as error:  # noqa: BLE001 - counted, whatever it is
                self.errors.append(repr(error))


def main() -> None:
    """Crowd round the daemon whose files are in WORK."""
    running = Daemon(Path(sys.argv[1]))
    with lister(running) as listing:
        crowd = _Crowd([], Event())
        calls: list[tuple[float, Callable[[], object]]] = [
            *((2.0, lambda: running.client.call("GET", "/v1/status")) for _ in range(CLIENTS)),
            (0.01, listing),
            (1.0, lambda: scrape(running)),
        ]
        threads = [Thread(target=crowd.every, args=call) for call in calls]
        for thread in threads:
            thread.start()
        sys.stdin.read()
        crowd.stop.set()
        for thread in threads:
            thread.join()
    print(len(crowd.errors), *crowd.errors[:3], sep="\n")


if __name__ == "__main__":
    main()
