"""The unit as it is shipped, under a real systemd."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from agent.domain.idset import CpuSet
from tests.vm.node import (
    DEFAULT_ROOT,
    DRIVER,
    MOUNT,
    NUMALET,
    PATIENCE,
    Node,
    allowed,
    exclusive,
    held,
    is_alive,
    is_command,
    manifest,
    mixed,
    pids_in,
    text_of,
    wait_until,
)
from tests.vm.units import Unit, systemctl

pytestmark = pytest.mark.vm

SYSTEMD = Path(__file__).parents[2] / "systemd"
SHIPPED = SYSTEMD / "numalet.service"
MOST_EXPOSED = 3.0
DROP_IN = "[Service]\nWatchdogSec=6\nTimeoutStopSec=20\n"


class Service(Node):
    """The daemon as a unit, with everything where the unit and the defaults have it."""

    def __init__(self, work: Path, unit: Unit) -> None:
        super().__init__(
            work,
            cgroupDriver=DRIVER,
            cgroupRoot=str(DEFAULT_ROOT),
            stateDir="/var/lib/numalet",
            staticPodPath="/etc/numalet/manifests",
            controlSocket="/run/numalet/control.sock",
            hostIsolation="slices",
        )
        self.unit = unit
        self.root, self.manifests = DEFAULT_ROOT, Path("/etc/numalet/manifests")

    def journal(self) -> list[dict[str, str]]:
        """What the unit has logged so far."""
        subprocess.run(["journalctl", "--sync"], check=True)
        lines = subprocess.run(
            ["journalctl", "--output=json", f"_SYSTEMD_UNIT={self.unit.name}"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        return list(map(json.loads, lines))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    unit = Unit("numalet.service", SHIPPED.read_text(), DROP_IN)
    service = Service(tmp_path_factory.mktemp("service"), unit)
    with ExitStack() as stack:
        for directory in ("/etc/numalet", "/var/lib/numalet"):
            stack.callback(shutil.rmtree, directory, ignore_errors=True)
        stack.callback(service.close)
        stack.callback(subprocess.run, [*NUMALET, "release-host"], check=True, timeout=PATIENCE)
        service.manifests.mkdir(parents=True)
        Path("/etc/numalet/config.yaml").write_text(json.dumps(service.config))
        (service.manifests / "web.yaml").write_text(manifest(mixed("web")))
        stack.enter_context(unit)
        systemctl("start", unit.name)
        yield service


def test_start_returns_when_the_daemon_is_ready_and_the_status_says_how_it_is(service: Service) -> None:
    web = service.pods()["web"]
    assert web["state"] == "Admitted", "ready means that the manifests were followed"
    assert service.unit.show("ActiveState") == "active"
    assert service.unit.show("StatusText") == "1 pod, 4/16 CPUs exclusive, 0 problems"
    assert service.page("/readyz") == (200, "ok\n")


def test_the_hardened_unit_reaches_systemd_and_keeps_the_host_off_exclusive_cpus(service: Service) -> None:
    slices = CpuSet.parse(service.status()["cpus"]["exclusive"])
    assert slices
    for unit in ("init.scope", "system.slice", "user.slice"):
        assert systemctl("show", "--value", "--property=AllowedCPUs", unit).strip()
        assert CpuSet.parse(text_of(MOUNT / unit / "cpuset.cpus.effective")).isdisjoint(slices)
    assert allowed(service.unit.main_pid).isdisjoint(slices)


def test_the_journal_has_every_message_with_its_priority(service: Service) -> None:
    (verdict,) = service.apply(exclusive("greedy", "15"))
    assert verdict["verdict"] == "rejected"
    wait_until(lambda: any("greedy" in line["MESSAGE"] for line in service.journal()), "it is in the journal")
    priorities = {line["MESSAGE"].split(":")[0]: line["PRIORITY"] for line in service.journal()}
    assert priorities["ready"] == priorities["admitted pod default/web"] == "6"
    assert priorities["rejected pod default/greedy"] == "4"


def test_the_unit_is_sound_and_exposes_little(service: Service) -> None:
    def analyzed(*words: str) -> subprocess.CompletedProcess[str]:
        command = ["systemd-analyze", *words, service.unit.name]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)

    verified = analyzed("verify", "--man=no")
    assert (verified.returncode, verified.stdout, verified.stderr) == (0, "", "")
    rated = analyzed("security", "--no-pager")
    score = re.search(r"exposure level for numalet.service: ([\d.]+)", rated.stdout)
    assert score, rated.stderr
    assert float(score[1]) <= MOST_EXPOSED


def test_systemctl_reload_reads_the_configuration_again(service: Service) -> None:
    pid = service.unit.main_pid
    file = Path("/etc/numalet/config.yaml")

    def reload(**changes: object) -> None:
        file.write_text(json.dumps(service.config | changes))
        systemctl("reload", service.unit.name)

    reload(logFormat="json", podPidsLimit=321, controlSocketGroup="adm", stateRecovery="strict")
    limit = service.at("poduid-web") / "pids.max"
    wait_until(lambda: text_of(limit) == "321", "the limit is in the kernel")
    wait_until(lambda: service.client.path.group() == "adm", "the socket is the group's")
    wait_until(lambda: service.status()["pendingRestart"] != [], "what needs a restart is told")
    (pending,) = service.status()["pendingRestart"]
    assert pending.startswith("stateRecovery: ")
    wait_until(lambda: any(line["MESSAGE"].startswith("{") for line in service.journal()), "the log is JSON")
    file.write_text("logFormat: xml\n")
    systemctl("reload", service.unit.name)
    wait_until(lambda: len(service.status()["problems"]) == 1, "the problem is told")
    assert "config.yaml:1: $.logFormat" in service.status()["problems"][0]
    assert text_of(limit) == "321"
    reload()
    wait_until(lambda: service.status()["problems"] == [], "the problem is over")
    wait_until(lambda: text_of(limit) == "max", "the limit is lifted")
    assert service.unit.main_pid == pid
    assert service.unit.show("ActiveState") == "active"


def test_a_service_with_the_example_drop_in_runs_inside_its_pods_container(service: Service) -> None:
    drop_in = (SYSTEMD / "example-pod-member.conf").read_text()
    command = shlex.join([*NUMALET, "exec", "web", "main", "--", "sleep", "600"])
    drop_in = re.sub(r"^ExecStart=/.*$", f"ExecStart={command}", drop_in, flags=re.MULTILINE)
    root = f"WorkingDirectory={SYSTEMD.parent}"
    with Unit("engine.service", f"[Service]\nExecStart=sleep 1\n{root}\n", drop_in) as engine:
        systemctl("start", engine.name)
        cgroup = service.cgroup("web", "main")
        pid = engine.main_pid
        wait_until(lambda: is_command(pid, "sleep"), "it is the command")
        assert pids_in(cgroup) == [pid]
        assert allowed(pid) == CpuSet.parse(text_of(cgroup / "cpuset.cpus.effective"))
        assert engine.show("ActiveState") == "active"
        systemctl("stop", engine.name)
        assert not is_alive(pid)
        assert engine.show("Result") == "success"


def test_the_watchdog_is_fed_and_restarts_a_daemon_that_hangs(service: Service) -> None:
    first, before = service.unit.main_pid, held(service.pods()["web"])
    process = service.spawn("web", "main")
    fed = service.unit.show("WatchdogTimestampMonotonic")
    wait_until(lambda: service.unit.show("WatchdogTimestampMonotonic") != fed, "it is fed", every=1)
    assert service.unit.main_pid == first
    systemctl("kill", "--signal=STOP", service.unit.name)
    wait_until(lambda: service.unit.show("NRestarts") == "1", "systemd restarts the daemon", every=1)
    wait_until(lambda: service.unit.show("ActiveState") == "active", "the daemon is ready again", every=1)
    assert service.unit.main_pid != first
    assert held(service.pods()["web"]) == before
    assert process.poll() is None


def test_daemon_reload_restart_and_an_end_by_sigkill_leave_the_pods_processes_alone(service: Service) -> None:
    processes = [service.spawn("web", name) for name in ("main", "side")]
    cpus = [allowed(process.pid) for process in processes]
    before = held(service.pods()["web"])
    systemctl("daemon-reload")
    assert [allowed(process.pid) for process in processes] == cpus
    systemctl("restart", service.unit.name)
    assert [allowed(process.pid) for process in processes] == cpus
    assert held(service.pods()["web"]) == before
    restarted = service.unit.main_pid
    systemctl("kill", "--signal=KILL", service.unit.name)
    wait_until(
        lambda: service.unit.main_pid not in (0, restarted) and service.unit.show("ActiveState") == "active",
        "systemd starts another",
        every=1,
    )
    assert [allowed(process.pid) for process in processes] == cpus
    assert held(service.pods()["web"]) == before


def test_partitions_and_interrupts_under_the_unit_need_the_drop_ins_that_the_documentation_has(
    service: Service,
) -> None:
    wanted = json.dumps(service.config | {"hostIsolation": "partition"})
    Path("/etc/numalet/config.yaml").write_text(wanted)
    systemctl("restart", service.unit.name)
    status = service.status()
    assert status["hostIsolation"] == "slices"
    (problem,) = status["problems"]
    assert "root invalid (Enable partition not permitted)" in problem
    assert "CAP_SYS_ADMIN" in problem

    wanted = json.dumps(service.config | {"hostIsolation": "partition", "irqAffinity": True})
    Path("/etc/numalet/config.yaml").write_text(wanted)
    lines = "CapabilityBoundingSet=CAP_SYS_ADMIN\nProtectKernelTunables=no\n"
    (Path("/run/systemd/system") / f"{service.unit.name}.d/host.conf").write_text(f"[Service]\n{lines}")
    systemctl("daemon-reload")
    systemctl("restart", service.unit.name)
    slices = CpuSet.parse(service.status()["cpus"]["exclusive"])
    assert (service.status()["hostIsolation"], service.status()["problems"]) == ("partition", [])
    assert text_of(service.cgroup("web", "main") / "cpuset.cpus.partition") == "root"
    assert CpuSet.parse(text_of(MOUNT / "cpuset.cpus.effective")).isdisjoint(slices)
    assert CpuSet.parse_mask(text_of(Path("/proc/irq/default_smp_affinity"))).isdisjoint(slices)


def test_stop_leaves_the_pods_processes_and_what_keeps_the_host_off(service: Service) -> None:
    processes = [service.spawn("web", name) for name in ("main", "side")]
    cpus = [allowed(process.pid) for process in processes]
    systemctl("stop", service.unit.name)
    assert service.unit.show("Result") == "success"
    assert not service.client.path.exists()
    assert [process.poll() for process in processes] == [None, None]
    assert [allowed(process.pid) for process in processes] == cpus
    assert CpuSet.parse(text_of(MOUNT / "cpuset.cpus.effective")).isdisjoint(cpus[0])
