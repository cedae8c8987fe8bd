"""The daemon as a whole, in this process: real sockets, directory and threads; disk and kernel in memory."""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from agent.api.client import ControlError
from agent.cgroup.layout import CgroupDir
from agent.errors import HostError
from tests.containermanager.faults import Mode
from tests.containermanager.node import Node, admitted_names, manifest, topology
from tests.daemon.running import Running, eventually
from tests.podresources.reference import Client


def test_ready_means_the_manifests_were_followed_and_everything_is_served(running: Running) -> None:
    running.write("a.yaml", json.dumps(manifest("a")))
    running.start()
    assert [pod["name"] for pod in running.client().call("GET", "/v1/pods")["pods"]] == ["a"]
    assert running.page("/healthz") == (200, "ok\n")
    assert running.page("/readyz") == (200, "ok\n")
    expected = 'resource_manager_allocations_total{resource_name="cpu",source="node"} 1.0'
    assert expected in running.page("/metrics")[1]


def test_it_follows_the_directory_while_it_runs(running: Running) -> None:
    running.start()
    owner = running.current.owner
    running.write("a.yaml", json.dumps(manifest("a")))
    eventually(lambda: admitted_names(owner) == ["a"])
    running.write("a.yaml", "a: [")
    eventually(lambda: running.client().call("GET", "/v1/status")["problems"] != [])
    assert admitted_names(owner) == ["a"]
    (running.root / "manifests" / "a.yaml").unlink()
    eventually(lambda: admitted_names(owner) == [])
    assert running.client().call("GET", "/v1/status")["problems"] == []


def test_stopping_leaves_the_pods_and_the_next_daemon_takes_them_over(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    running.start()
    running.client().call("POST", "/v1/pods", json.dumps(manifest("a")).encode())
    cgroups, files = len(running.node.cgroups.log), dict(running.node.store.files)
    running.stop()
    assert not Path(running.config.control_socket).exists()
    assert caplog.messages[-1] == "stopping: pods keep running"
    running.start()
    assert admitted_names(running.current.owner) == ["a"]
    assert len(running.node.cgroups.log) == cgroups
    assert running.node.store.files == files


def test_a_full_disk_makes_it_not_ready_until_there_is_space(running: Running) -> None:
    running.start()
    running.fuse.arm(0, Mode.LASTING)
    answer = running.client().call("POST", "/v1/pods", json.dumps(manifest("a")).encode())
    assert answer["results"][0]["reason"] == "StorageError"
    status, text = running.page("/readyz")
    assert (status, text.partition(":")[0]) == (503, "StorageError")
    assert "No space left on device" in text
    running.fuse.disarm()
    eventually(lambda: running.page("/readyz")[0] == 200)
    answer = running.client().call("POST", "/v1/pods", json.dumps(manifest("a")).encode())
    assert answer["results"][0]["verdict"] == "admitted"


def test_the_shared_pool_follows_hotplug(running: Running) -> None:
    running.start()
    running.hotplug.happen(topology(offline=frozenset({7})))
    eventually(lambda: running.client().call("GET", "/v1/status")["cpus"]["shared"] == "0-6")
    running.hotplug.happen(topology())
    eventually(lambda: running.client().call("GET", "/v1/status")["cpus"]["shared"] == "0-7")


def test_a_machine_that_cannot_be_read_is_withdrawn_until_a_reconcile_can(running: Running) -> None:
    running.start()
    running.hotplug.happen(HostError("sysfs is gone"))
    eventually(lambda: running.page("/readyz")[0] == 503)
    assert "sysfs is gone" in running.page("/readyz")[1]
    assert "numalet_cpus_shared{" not in running.page("/metrics")[1]
    with pytest.raises(ControlError, match="sysfs is gone"):
        running.client().call("GET", "/v1/cpus")
    running.write("a.yaml", json.dumps(manifest("a")))
    eventually(lambda: running.client().call("GET", "/v1/status")["rejected"] == 1)
    [refused] = running.client().call("GET", "/v1/pods")["pods"]
    assert (refused["state"], refused["reason"]) == ("Rejected", "DiscoveryError")
    running.hotplug.found = running.node.plug(topology(offline=frozenset({7})))  # no event
    eventually(lambda: running.page("/readyz")[0] == 200)
    eventually(lambda: admitted_names(running.current.owner) == ["a"])
    assert running.client().call("GET", "/v1/status")["cpus"]["online"] == "0-6"


def test_without_a_metrics_address_no_page_is_served(running: Running) -> None:
    address = running.config.metrics_address
    running.config = replace(running.config, metrics_address="")
    running.start()
    host, _, port = address.partition(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), 5)


def test_the_page_shows_the_pods_unless_it_is_switched_off(running: Running) -> None:
    running.write("a.yaml", json.dumps(manifest("a")))
    running.start()
    status, text = running.page("/")
    assert (status, "default/a" in text) == (200, True)
    running.stop()
    running.config = replace(running.config, ui=False)
    running.start()
    assert running.page("/") == running.page("/live") == (404, "not found\n")
    assert running.page("/healthz")[0] == 200


def test_a_pod_whose_work_is_done_ends(running: Running) -> None:
    running.start()
    once = manifest("once")
    once["spec"]["restartPolicy"] = "Never"
    running.client().call("POST", "/v1/pods", json.dumps(once).encode())
    cgroups, main = running.node.cgroups, CgroupDir("poduid-once/main")
    process = cgroups.spawn()
    cgroups.add_process(main, process)
    running.containers.happen(main)
    eventually(lambda: state_of(running, "once") == ("Admitted", "running"))
    cgroups.exit(process)
    running.containers.happen(main)
    eventually(lambda: state_of(running, "once") == ("Succeeded", "exited"))
    assert running.client().call("GET", "/v1/status")["cpus"]["exclusive"] == ""


def test_containers_that_nothing_tells_of_are_looked_at_with_the_period(running: Running) -> None:
    running.start()
    running.client().call("POST", "/v1/pods", json.dumps(manifest("a")).encode())
    main = CgroupDir("poduid-a/main")
    running.containers.untold = frozenset({main})
    running.node.cgroups.add_process(main, running.node.cgroups.spawn())
    eventually(lambda: state_of(running, "a") == ("Admitted", "running"))


def test_what_somebody_else_wrote_is_put_right_without_waiting_for_the_period(running: Running) -> None:
    running.config = replace(running.config, reconcile_period=3600)
    running.write("a.yaml", json.dumps(manifest("a")))
    running.start()
    cgroups, pod = running.node.cgroups, CgroupDir("poduid-a")
    (running.root / pod).mkdir()
    running.drift.add(pod)
    wanted = cgroups.read(pod, "memory.max")
    with cgroups.somebody_else():
        cgroups.write(pod, "memory.max", "max")
    (running.root / pod / "memory.max").write_text("max")
    eventually(lambda: cgroups.read(pod, "memory.max") == wanted != "max")


def state_of(running: Running, name: str) -> tuple[str, str]:
    """A pod's state, and that of its first container."""
    pod = running.client().call("GET", f"/v1/pods/default/{name}")
    return pod["state"], pod["containers"][0]["state"]


def test_a_second_daemon_on_the_socket_touches_nothing(running: Running) -> None:
    running.start()
    other = Node()
    owner = other.stopped_owner()
    with (
        pytest.raises(HostError, match="another daemon answers on"),
        running.daemon(owner) as second,
    ):
        second.run()
    assert other.store.files == {}
    assert other.cgroups.log == []
    assert running.client().call("GET", "/v1/status")["pods"] == 0


def test_a_daemon_that_cannot_start_gives_its_socket_back(running: Running) -> None:
    running.start()
    taken = replace(running.config, control_socket=str(running.root / "second.sock"))
    running.config = taken
    with pytest.raises(HostError, match="cannot serve metrics on"), running.daemon() as second:
        second.run()
    assert not Path(taken.control_socket).exists()


def test_the_pod_resources_api_is_served_counted_and_given_up_with_the_daemon(running: Running) -> None:
    running.write("a.yaml", json.dumps(manifest("a")))
    running.start()
    socket_path = Path(running.config.pod_resources_path)
    with Client(socket_path) as client:
        assert client.list()["a"]["containers"][0]["cpu_ids"] == [1, 2]
    expected = 'pod_resources_endpoint_requests_list{server_api_version="v1"} 1.0'
    assert expected in running.page("/metrics")[1]
    running.stop()
    assert not socket_path.exists()


def test_without_a_path_there_is_no_pod_resources_api(running: Running) -> None:
    running.config = replace(running.config, pod_resources_socket="")
    running.start()
    assert not (running.root / "kubelet.sock").exists()


def test_one_that_is_stopped_while_it_starts_does_not_wait_for_the_manifests(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.daemon._FIRST_SYNC_SECONDS", 3600.0)
    running.current = running.daemon()
    running.current.stop()
    running.thread = threading.Thread(target=running._run, args=(running.current,), daemon=True)
    running.thread.start()
    running.thread.join(20)
    assert not running.thread.is_alive()


def test_systemd_hears_that_it_is_ready_alive_and_stopping(running: Running) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(running.root / "notify"))
        systemd.settimeout(20)
        running.environ |= {
            "NOTIFY_SOCKET": str(running.root / "notify"),
            "WATCHDOG_USEC": "20000",
            "WATCHDOG_PID": str(os.getpid()),
        }
        running.start()
        heard: set[str] = set()
        while not {"READY=1", "WATCHDOG=1"} <= heard:
            heard.add(systemd.recv(4096).decode().partition("\n")[0])
        running.current.stop()
        while "STOPPING=1" not in heard:
            heard.add(systemd.recv(4096).decode().partition("\n")[0])
    assert "STATUS=0 pods, 0/8 CPUs exclusive, 0 problems" in heard


def test_nothing_is_logged_while_there_is_nothing_to_do(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    running.start()
    running.client().call("POST", "/v1/pods", json.dumps(manifest("a")).encode())
    caplog.set_level(logging.DEBUG, "agent")
    caplog.clear()
    owner, done = running.current.owner, threading.Event()
    count = 0
    reconcile = owner.reconcile

    def counted() -> int:
        nonlocal count
        count += 1
        if count == 20:
            done.set()
        return reconcile()

    owner.reconcile = counted  # type: ignore[method-assign]
    assert done.wait(60)
    assert caplog.messages == []


def test_a_secret_in_a_containers_environment_is_told_to_nobody(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "correct-horse-battery-staple"  # noqa: S105 - it is the one that must not show
    good, bad = manifest("good"), manifest("bad", cpu="64")
    for pod in (good, bad):
        pod["spec"]["containers"][0]["env"] = [{"name": "TOKEN", "value": secret}]
    broken = json.loads(json.dumps(good))
    broken["metadata"] = {"name": "broken"}
    broken["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "x"}}
    running.write("broken.yaml", json.dumps(broken))
    running.write("good.yaml", json.dumps(good))
    running.start()
    client = running.client()
    client.call("POST", "/v1/pods", json.dumps(bad).encode())
    told = [
        client.call("GET", f"/v1/{what}")
        for what in ("status", "pods", "events", "config", "pods/default/good", "pods/default/bad")
    ]
    everything = json.dumps(told) + "\n".join(caplog.messages) + running.page("/metrics")[1]
    assert "rejected pod default/bad" in everything
    assert "broken.yaml" in everything
    assert secret not in everything
