"""The unit as it is shipped, under a real systemd."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.vm.node import MOUNT, Node, allowed, exclusive, manifest, mixed, wait_until
from tests.vm.units import Unit, systemctl

pytestmark = pytest.mark.vm

SHIPPED = Path(__file__).parents[2] / "systemd/numalet.service"
DROP_IN = "[Service]\nWatchdogSec=6\nTimeoutStopSec=20\n"


class Service(Node):
    """The daemon as a unit, with everything where the unit and the defaults have it."""

    def __init__(self, work: Path, unit: Unit) -> None:
        super().__init__(
            work,
            cgroupRoot=str(MOUNT / "numalet"),
            stateDir="/var/lib/numalet",
            staticPodPath="/etc/numalet/manifests",
            controlSocket="/run/numalet/control.sock",
        )
        self.unit = unit
        self.root, self.manifests = MOUNT / "numalet", Path("/etc/numalet/manifests")

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
        service.manifests.mkdir(parents=True)
        Path("/etc/numalet/config.yaml").write_text(json.dumps(service.config))
        (service.manifests / "web.yaml").write_text(manifest(mixed("web")))
        stack.enter_context(unit)
        systemctl("start", unit.name)
        yield service


def test_start_returns_when_the_daemon_is_ready_and_the_status_says_how_it_is(service: Service) -> None:
    held = service.pods()["web"]
    assert held["state"] == "Admitted", "ready means that the manifests were followed"
    assert service.unit.show("ActiveState") == "active"
    assert service.unit.show("StatusText") == "1 pod, 4/16 CPUs exclusive, 0 problems"
    assert service.page("/readyz") == (200, "ok\n")


def test_the_journal_has_every_message_with_its_priority(service: Service) -> None:
    (verdict,) = service.apply(exclusive("greedy", "15"))
    assert verdict["verdict"] == "rejected"
    wait_until(lambda: any("greedy" in line["MESSAGE"] for line in service.journal()), "it is in the journal")
    priorities = {line["MESSAGE"].split(":")[0]: line["PRIORITY"] for line in service.journal()}
    assert priorities["ready"] == priorities["admitted pod default/web"] == "6"
    assert priorities["rejected pod default/greedy"] == "4"


def test_the_watchdog_is_fed_and_restarts_a_daemon_that_hangs(service: Service) -> None:
    first, before = service.unit.main_pid, service.pods()["web"]
    process = service.spawn("web", "main")
    fed = service.unit.show("WatchdogTimestampMonotonic")
    wait_until(lambda: service.unit.show("WatchdogTimestampMonotonic") != fed, "it is fed", every=1)
    assert service.unit.main_pid == first
    systemctl("kill", "--signal=STOP", service.unit.name)
    wait_until(lambda: service.unit.show("NRestarts") == "1", "systemd restarts the daemon", every=1)
    wait_until(lambda: service.unit.show("ActiveState") == "active", "the daemon is ready again", every=1)
    assert service.unit.main_pid != first
    assert service.pods()["web"] == before
    assert process.poll() is None


def test_reload_restart_and_stop_leave_the_pods_processes_alone(service: Service) -> None:
    processes = [service.spawn("web", name) for name in ("main", "side")]
    cpus = [allowed(process.pid) for process in processes]
    before = service.pods()["web"]
    for words in (["daemon-reload"], ["restart", service.unit.name]):
        systemctl(*words)
        assert [allowed(process.pid) for process in processes] == cpus
    assert service.pods()["web"] == before
    systemctl("stop", service.unit.name)
    assert service.unit.show("Result") == "success"
    assert not service.client.path.exists()
    assert [process.poll() for process in processes] == [None, None]
    assert [allowed(process.pid) for process in processes] == cpus
