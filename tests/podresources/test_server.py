"""The socket and the service on it: rate limit, counters, health, reflection, and who may be in the way."""

from __future__ import annotations

import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from agent.api.podresources.server import PodResourcesServer
from agent.domain.pod import PodUid
from agent.errors import HostError
from tests.containermanager.node import Node, budgeted, manifest, parsed
from tests.podresources.reference import Client, Json, RefusedError
from tests.podresources.serving import Clock, Hasty, Serving, serving

SERVING = 1
SERVICES = ("v1.PodResourcesLister", "v1alpha1.PodResourcesLister")


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[Serving, Client]]:
    with serving(tmp_path) as both:
        yield both


@pytest.fixture
def vacant(tmp_path: Path) -> Path:
    """Where no server listens yet."""
    return tmp_path / "pod-resources" / "kubelet.sock"


def new_server(path: Path, mode: int = 0o660) -> PodResourcesServer:
    return PodResourcesServer(path, mode, Node().owner().snapshot, lambda _name, _version: None, Hasty())


def refusal(client: Client, method: str) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(RefusedError) as caught:
        client.call(method)
    return caught.value.code, caught.value.details


# --- calls ----------------------------------------------------------------------------------


def test_all_calls_together_have_ten_at_once_and_a_hundred_a_second(tmp_path: Path) -> None:
    clock = Clock()
    limited = (grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
    with serving(tmp_path, clock=clock) as (served, client):
        for _ in range(4):
            client.list()
            client.allocatable()
        client.call("v1alpha1.PodResourcesLister/List")
        assert refusal(client, "v1.PodResourcesLister/Get")[0] is grpc.StatusCode.UNKNOWN
        counted = dict(served.counts)
        assert refusal(client, "v1.PodResourcesLister/List") == limited
        assert refusal(client, "v1.PodResourcesLister/Get") == limited
        assert refusal(client, "v1alpha1.PodResourcesLister/List") == limited
        assert served.counts == counted
        clock.now += 0.0101
        assert client.list() == {}
        assert refusal(client, "v1.PodResourcesLister/List") == limited
        assert client.health("") == SERVING


def test_every_call_is_counted_with_its_version(both: tuple[Serving, Client]) -> None:
    served, client = both
    client.list()
    client.list()
    client.allocatable()
    client.call("v1alpha1.PodResourcesLister/List")
    refusal(client, "v1.PodResourcesLister/Get")
    assert served.counts == {
        ("requests_total", "v1"): 4,
        ("requests_list", "v1"): 2,
        ("requests_get_allocatable", "v1"): 1,
        ("requests_get", "v1"): 1,
        ("errors_get", "v1"): 1,
        ("requests_total", "v1alpha1"): 1,
        ("requests_list", "v1alpha1"): 1,
    }


def test_a_method_that_does_not_exist_is_unimplemented(both: tuple[Serving, Client]) -> None:
    call = both[1].channel.unary_unary("/v1.PodResourcesLister/Watch", bytes, bytes)
    with pytest.raises(grpc.RpcError, match="UNIMPLEMENTED"):
        call(b"", timeout=20)


def test_a_list_of_many_frames_arrives_whole(both: tuple[Serving, Client]) -> None:
    served, client = both
    served.admit(manifest("a"))
    shot = served.owner.snapshot()
    (entry,) = shot.pods.values()
    pods = [parsed(manifest(f"{'x' * 40}-{number}")) for number in range(2000)]
    served.snapshot = lambda: replace(shot, pods={pod.uid: replace(entry, pod=pod) for pod in pods})
    assert list(client.list()) == [pod.name for pod in pods]


# --- churn ----------------------------------------------------------------------------------


def contradictions(pods: dict[str, Json]) -> list[str]:
    """What cannot be true of one moment: a CPU held twice, a slice outside of its pod's set."""
    taken: dict[int, str] = {}
    wrong = []
    for name, pod in pods.items():
        slices = [cpu for container in pod["containers"] for cpu in container.get("cpu_ids", ())]
        whole = pod.get("cpu_ids", slices)
        if not set(slices) <= set(whole):
            wrong.append(f"{name} has slices {slices} outside of {whole}")
        wrong += [
            f"CPU {cpu} is {name}'s and {taken[cpu]}'s" for cpu in whole if taken.get(cpu, name) != name
        ]
        taken |= dict.fromkeys(whole, name)
    return wrong


def test_every_list_is_of_one_moment_while_pods_come_and_go(both: tuple[Serving, Client]) -> None:
    served, client = both

    def look() -> list[str]:
        return [text for _ in range(5) for text in contradictions(client.list())]

    with ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(look) for _ in range(4)]
        turn = 0
        while not all(reader.done() for reader in readers):
            turn += 1
            name = f"p{turn % 3}"
            served.owner.remove(PodUid(f"uid-{name}"), 0)
            served.admit(budgeted(name, "3" if turn % 2 else "2", "1Gi") if turn % 5 else manifest(name))
            # a thread that never waits leaves the others a turn each 5 ms: lists take seconds
            time.sleep(0.001)
    assert [reader.result() for reader in readers] == [[]] * 4
    assert served.counts["errors_list", "v1"] == 0


# --- health and reflection ------------------------------------------------------------------


@pytest.mark.parametrize("service", ["", *SERVICES])
def test_what_is_served_is_healthy(both: tuple[Serving, Client], service: str) -> None:
    assert both[1].health(service) == SERVING


def test_many_who_watch_the_health_hold_up_nobody(both: tuple[Serving, Client]) -> None:
    _served, client = both
    watchers = [client.watch() for _ in range(40)]
    assert {next(watcher).status for watcher in watchers} == {SERVING}
    assert client.list() == {}
    for watcher in watchers:
        watcher.cancel()


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_reflection_tells_services_and_messages(both: tuple[Serving, Client], version: str) -> None:
    client = both[1]
    listed = client.reflect(version, list_services="").list_services_response.service
    assert {service.name for service in listed} == {*SERVICES, "grpc.health.v1.Health"}
    for service in SERVICES:
        found = client.reflect(version, file_containing_symbol=service).file_descriptor_response
        (file,) = (FileDescriptorProto.FromString(raw) for raw in found.file_descriptor_proto)
        assert f"{file.package}.{file.service[0].name}" == service
    unknown = client.reflect(version, file_containing_symbol="v1.Nobody").error_response
    assert unknown.error_code == grpc.StatusCode.NOT_FOUND.value[0]


# --- the socket -----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o600, 0o660, 0o666])
def test_the_socket_has_its_mode_and_is_gone_afterwards(vacant: Path, mode: int) -> None:
    server = new_server(vacant, mode)
    assert stat.S_IMODE(vacant.stat().st_mode) == mode
    server.start()
    server.stop()
    assert not vacant.exists()


def test_a_socket_left_by_a_dead_daemon_is_replaced(vacant: Path) -> None:
    vacant.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(vacant))
    server = new_server(vacant)
    server.start()
    with Client(vacant) as client:
        assert client.list() == {}
    server.stop()


def test_another_daemons_socket_is_left_alone(both: tuple[Serving, Client]) -> None:
    served, client = both
    with pytest.raises(HostError, match="another daemon answers on") as caught:
        new_server(served.path)
    assert caught.value.hint == "stop it, or choose another podResourcesSocket"
    assert client.list() == {}


def test_something_else_in_the_sockets_place_is_left_alone(vacant: Path) -> None:
    vacant.parent.mkdir()
    vacant.write_text("precious")
    with pytest.raises(HostError, match="is in the way: it is not a socket"):
        new_server(vacant)
    assert vacant.read_text() == "precious"


def test_a_path_that_cannot_be_listened_on_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="AF_UNIX path too long") as caught:
        new_server(tmp_path / ("x" * 120))
    assert caught.value.hint == "choose another podResourcesSocket"
    (tmp_path / "file").write_text("")
    with pytest.raises(HostError, match=r"cannot listen on .*/file/kubelet\.sock: File exists"):
        new_server(tmp_path / "file" / "kubelet.sock")


@pytest.mark.parametrize("folder", ["with space", "100%25", "a#b?c", "ünï"])
def test_a_path_of_any_characters_will_do(tmp_path: Path, folder: str) -> None:
    server = new_server(tmp_path / folder / "s.sock")
    server.start()
    with Client(tmp_path / folder / "s.sock") as client:
        assert client.list() == {}
    server.stop()


def test_a_server_that_never_served_can_be_stopped(vacant: Path) -> None:
    new_server(vacant).stop()
    assert not vacant.exists()


def test_clients_find_their_way_back_after_a_restart(vacant: Path) -> None:
    with ExitStack() as stack:
        client = stack.enter_context(Client(vacant))
        for _ in range(2):
            server = new_server(vacant)
            server.start()
            grpc.channel_ready_future(client.channel).result(20)
            assert client.list() == {}
            server.stop()


def test_grpc_is_loaded_when_somebody_calls(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
import agent.cli, agent.daemon
from agent.api.podresources.server import PodResourcesServer

server = PodResourcesServer(Path(sys.argv[1]), 0o600, lambda: None, lambda *_: None)
server.start()
server.stop()
print({"grpclib", "h2", "google.protobuf"} & set(sys.modules))
"""
    command = [sys.executable, "-c", code, str(tmp_path / "socket")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("set()\n", "")
