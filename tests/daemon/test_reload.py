"""A daemon that reads its configuration again."""

from __future__ import annotations

import json
import socket
import time
import urllib.error
import urllib.request
from dataclasses import replace

import pytest

from agent.cgroup.layout import CgroupDir
from agent.config.table import FIELDS, Reload
from agent.domain.settings import TopologyPolicy
from tests.cli.command import invoke
from tests.containermanager.node import admitted_names, manifest
from tests.daemon.running import Running, free_port


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
