"""The page on a real owner and a real socket; disk and kernel in memory."""

from __future__ import annotations

from http.client import HTTPConnection, HTTPResponse

from agent.api.http import PageServer
from agent.api.page import page_routes
from agent.config.address import Address
from agent.domain.topology import Topology
from tests.containermanager.node import Node, best_effort, budgeted, manifest, parsed

HOSTILE = "<img src=x onerror=alert(1)>\"'&"


class Site:
    """``team`` has slices and a pod shared pool, ``solo`` a slice, ``free`` nothing; ``huge`` was refused."""

    def __init__(self, machine: Topology | None = None) -> None:
        self.node = Node(machine=machine)
        self.owner = self.node.owner()
        self.admit(budgeted("team"), f"file:{HOSTILE}.yaml")
        self.admit(manifest("solo"))
        self.admit(best_effort("free"))
        self.admit(manifest("huge", "900"))
        self.port = 0
        self.serve()

    def serve(self) -> None:
        address = Address("127.0.0.1", self.port)
        self.server = PageServer(address, page_routes(self.owner, address))
        self.server.start()
        self.port = self.server.port

    def stop(self) -> None:
        self.server.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def admit(self, document: dict[str, object], source: str = "api") -> None:
        self.owner.admit(parsed(document), source)

    def remove(self, name: str) -> None:
        known = self.owner.find("default", name)
        assert known
        self.owner.remove(known.pod.uid, 0)

    def ask(self, target: str, method: str = "GET", **headers: str) -> tuple[HTTPResponse, str]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=20)
        connection.request(method, target, headers={k.replace("_", "-"): v for k, v in headers.items()})
        response = connection.getresponse()
        body = response.read().decode()
        connection.close()
        return response, body
