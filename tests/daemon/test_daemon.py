"""The daemon as a whole, in this process: real sockets, directory and threads; disk and kernel in memory."""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.api.client import ControlClient, ControlError
from agent.cgroup.boundwatch import BoundWatch
from agent.cgroup.layout import CgroupDir
from agent.cgroup.watch import DriftWatch
from agent.config import Config
from agent.config.source import ConfigSource
from agent.config.table import FIELDS, Reload, dump
from agent.containermanager import ContainerManager
from agent.containermanager.machine import Machine
from agent.daemon import Daemon, Kernel
from agent.domain.settings import TopologyPolicy
from agent.domain.topology import Topology
from agent.errors import HostError
from agent.metrics import DecisionMetrics, NodeMetrics
from agent.reload import Configuration
from agent.sysfs.hotplug import Changed
from agent.systemd import Notifier
from tests.cli.command import invoke
from tests.containermanager.faults import Mode, faulty_node
from tests.containermanager.node import Node, admitted_names, machine_of, manifest, topology
from tests.podresources.reference import Client


class Hotplug:
    """A watch whose events the test makes."""

    def __init__(self, node: Node) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK)
        self.node = node
        self.found: Machine | HostError = node.machine

    def fileno(self) -> int:
        return self.fd

    def drain(self) -> Changed:
        os.eventfd_read(self.fd)
        return frozenset({"cpu"})

    def close(self) -> None:
        os.close(self.fd)

    def look(self) -> Machine:
        if isinstance(self.found, HostError):
            raise self.found
        return self.found

    def happen(self, machine: Topology | HostError) -> None:
        self.found = self.node.plug(machine) if isinstance(machine, Topology) else machine
        os.eventfd_write(self.fd, 1)


class Containers:
    """Changes of containers' cgroups, when a test makes them."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK)
        self.changed: frozenset[CgroupDir] = frozenset()
        self.untold: frozenset[CgroupDir] = frozenset()

    def fileno(self) -> int:
        return self.fd

    def follow(self, directories: Iterable[CgroupDir]) -> None:
        """It tells of what a test says anyway."""

    def drain(self) -> frozenset[CgroupDir]:
        with suppress(BlockingIOError):
            os.eventfd_read(self.fd)
            return self.changed
        return self.untold

    def close(self) -> None:
        os.close(self.fd)

    def happen(self, *directories: str) -> None:
        self.changed = frozenset(map(CgroupDir, directories))
        os.eventfd_write(self.fd, 1)


class Running:
    """A node whose daemon runs in a thread of its own."""

    def __init__(self, root: Path) -> None:
        self.node, self.fuse = faulty_node()
        self.root = root
        self.config = Config(
            manifest_dir=str(root / "manifests"),
            control_socket=str(root / "control.sock"),
            pod_resources_socket=str(root / "kubelet.sock"),
            metrics_address=f"127.0.0.1:{free_port()}",
            manifest_scan_period=0.05,
            reconcile_period=0.05,
        )
        self.hotplug = Hotplug(self.node)
        self.containers = Containers()
        self.drift = DriftWatch(root)
        self.bound = BoundWatch(root)
        self.environ: dict[str, str] = {}
        self.file = root / "config.yaml"
        self.source = ConfigSource(path=self.file)
        (root / "manifests").mkdir()

    def daemon(self, owner: ContainerManager | None = None) -> Daemon:
        decisions = DecisionMetrics()
        owner = owner or self.node.stopped_owner(decisions.decided)
        metrics = NodeMetrics(decisions, owner.snapshot, self.node.cgroups.stat)
        notifier = Notifier(self.environ)
        configuration = Configuration(self.source, self.config, owner, self.look, notifier)
        kernel = Kernel(self.hotplug, self.hotplug.look, self.containers, self.drift, self.bound)
        return Daemon(configuration, owner, metrics, kernel, notifier)

    def look(self, config: Config) -> Machine:
        return machine_of(config, self.node.topology)

    def start(self) -> None:
        self.current = self.daemon()
        self.thread = threading.Thread(target=self._run, args=(self.current,))
        self.thread.start()
        assert self.current.ready.wait(20)

    @staticmethod
    def _run(daemon: Daemon) -> None:
        with daemon:
            daemon.run()

    def stop(self) -> None:
        self.current.stop()
        self.thread.join(20)
        assert not self.thread.is_alive()

    def configure(self, **changes: Any) -> None:
        """Write the configuration file: what runs, with changes."""
        self.file.write_text(json.dumps(dump(replace(self.config, **changes))))

    def reload(self) -> dict[str, list[str]]:
        """Reload, and the keys that changed or wait, and what was refused."""
        answer = self.client().call("POST", "/v1/reload")
        keys = {kind: [change["key"] for change in answer[kind]] for kind in ("live", "restart")}
        return {**keys, "refused": answer["refused"]}

    def client(self) -> ControlClient:
        return ControlClient(Path(self.config.control_socket))

    def page(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://{self.config.metrics_address}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def write(self, name: str, text: str) -> None:
        (self.root / "manifests" / name).write_text(text)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def eventually(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    running = Running(tmp_path)
    yield running
    if running.thread.is_alive():
        running.stop()
    running.hotplug.close()
    running.containers.close()
    running.drift.close()
    running.bound.close()


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


def test_every_key_that_changes_at_once_is_brought_into_force(running: Running) -> None:
    running.start()
    by_process = {"logLevel", "logFormat"}  # run_daemon's, of the whole process
    assert running.current.live.keys() | by_process == {
        field.key for field in FIELDS.values() if field.reload is Reload.LIVE
    }


def test_a_reload_takes_over_what_it_can_and_lists_what_needs_a_restart(running: Running) -> None:
    running.start()
    running.configure(reconcile_period=3600.0, manifest_scan_period=0.01, state_dir="/srv/state")
    assert running.reload() == {
        "live": ["fileCheckFrequency", "cpuManagerReconcilePeriod"],
        "restart": ["stateDir"],
        "refused": [],
    }
    status = running.client().call("GET", "/v1/status")
    assert status["pendingRestart"] == ['stateDir: "/var/lib/numalet" -> "/srv/state" (with a restart)']
    assert status["problems"] == []
    shown = running.client().call("GET", "/v1/config")["config"]
    assert (shown["cpuManagerReconcilePeriod"], shown["stateDir"]) == ("3600s", "/var/lib/numalet")
    running.configure()
    assert running.reload()["restart"] == []
    assert running.client().call("GET", "/v1/status")["pendingRestart"] == []


def test_the_commands_show_what_is_in_force_and_print_what_a_reload_did(running: Running) -> None:
    running.start()
    socket_option = ("--socket", running.config.control_socket)
    running.configure(reconcile_period=3600.0, state_dir="/srv/state")
    done = invoke("reload", *socket_option)
    assert (done.status, done.out.splitlines()) == (
        0,
        [
            'changed: cpuManagerReconcilePeriod: "0.05s" -> "3600s" (at once)',
            'needs a restart: stateDir: "/var/lib/numalet" -> "/srv/state"',
        ],
    )
    assert 'Pending    stateDir: "/var/lib/numalet" -> ' in invoke("get", "status", *socket_option).out
    shown = invoke("config", "show", *socket_option)
    assert shown.out.startswith(f"# the running daemon ({running.file})\n")
    assert "cpuManagerReconcilePeriod: 3600s\n" in shown.out
    running.file.write_text("stateDir: x\n")
    refused = invoke("reload", *socket_option)
    assert (refused.status, refused.out.splitlines()[-1]) == (1, "nothing was changed")


def test_a_broken_file_changes_nothing_and_is_a_problem_until_it_is_mended(running: Running) -> None:
    running.start()
    running.file.write_text("cpuManagerReconcilePeriod: 1h\nstateDir: x\nlogLevel: loud\n")
    refused = running.reload()
    assert (refused["live"], refused["restart"], len(refused["refused"])) == ([], [], 2)
    assert refused["refused"][0] == f'{running.file}:2: $.stateDir: "x" is not an absolute path'
    assert running.current.config == running.config
    problems = running.client().call("GET", "/v1/status")["problems"]
    assert problems == [f"configuration refused: {text}" for text in refused["refused"]]
    running.configure()
    assert running.reload() == {"live": [], "restart": [], "refused": []}
    assert running.client().call("GET", "/v1/status")["problems"] == []


def test_a_file_that_does_not_fit_the_machine_or_is_gone_is_refused(running: Running) -> None:
    running.start()
    running.file.write_text("reservedMemory: [{numaNode: 5, limits: {memory: 100Mi}}]\n")
    (refused,) = running.reload()["refused"]
    assert refused.startswith(
        f"{running.file}:1: $.reservedMemory: the reserved memory configuration references"
    )
    running.file.unlink()
    assert running.reload()["refused"] == [f"{running.file}: No such file or directory"]


def test_a_new_topology_policy_decides_about_new_pods_and_old_ones_stay(running: Running) -> None:
    running.start()
    client = running.client()
    pod = json.dumps(manifest("a", cpu="5")).encode()
    (verdict,) = client.call("POST", "/v1/pods", json.dumps(manifest("old")).encode())["results"]
    assert verdict["verdict"] == "admitted"
    running.configure(topology_policy=TopologyPolicy.SINGLE_NUMA_NODE)
    assert running.reload()["live"] == ["topologyManagerPolicy"]
    (verdict,) = client.call("POST", "/v1/pods", pod)["results"]
    assert verdict["reason"] == "TopologyAffinityError"
    running.configure(topology_policy=TopologyPolicy.NONE)
    running.reload()
    (verdict,) = client.call("POST", "/v1/pods", pod)["results"]
    assert verdict["verdict"] == "admitted"
    assert admitted_names(running.current.owner) == ["a", "old"]
    events = [event.text for event in running.current.owner.events.since(0)]
    assert not any("hotplug" in text for text in events)


def test_the_pages_move_with_their_address_and_stay_where_the_new_one_is_taken(running: Running) -> None:
    running.start()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        running.configure(metrics_address=f"127.0.0.1:{taken.getsockname()[1]}")
        (refused,) = running.reload()["refused"]
    assert refused.startswith("metricsBindAddress: cannot serve metrics on 127.0.0.1:")
    assert running.page("/healthz") == (200, "ok\n")
    address = f"127.0.0.1:{free_port()}"
    running.configure(metrics_address=address)
    assert running.reload()["live"] == ["metricsBindAddress"]
    running.config = replace(running.config, metrics_address=address)
    assert running.page("/healthz") == (200, "ok\n")
    running.configure(metrics_address="")
    assert running.reload()["live"] == ["metricsBindAddress"]
    with pytest.raises(urllib.error.URLError):
        running.page("/healthz")


def test_a_pid_limit_is_changed_in_the_kernel_and_lifted(running: Running) -> None:
    running.start()
    running.client().call("POST", "/v1/pods", json.dumps(manifest("a")).encode())
    running.configure(pod_pids_limit=77)
    assert running.reload()["live"] == ["podPidsLimit"]
    assert running.node.cgroups.read(CgroupDir("poduid-a"), "pids.max") == "77"
    running.configure(pod_pids_limit=None)
    running.reload()
    assert running.node.cgroups.read(CgroupDir("poduid-a"), "pids.max") == "max"


def test_systemd_hears_when_a_reload_begins_and_ends(running: Running) -> None:
    running.configure(reconcile_period=30.0)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(running.root / "notify"))
        systemd.settimeout(20)
        running.environ |= {"NOTIFY_SOCKET": str(running.root / "notify")}
        running.start()
        running.current.ask_reload()
        heard: list[dict[str, str]] = []
        while len([message for message in heard if "READY" in message]) < 2:
            lines = systemd.recv(4096).decode().splitlines()
            heard.append(dict(line.split("=", 1) for line in lines))
        begun = next(number for number, message in enumerate(heard) if message.get("RELOADING") == "1")
        assert 0 < int(heard[begun]["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000
        assert "READY" in heard[-1]
        assert running.current.config.reconcile_period == 30.0


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
