"""A machine with the Debian package and a service inside a pod reboots.

`scripts/vm-lane` gives this file a machine of its own, and runs it again on that machine after the boot.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

from agent.domain.idset import CpuSet
from tests.vm.installed import COMMAND, UNIT, Installed
from tests.vm.node import allowed, best_effort, exclusive, manifest, mixed, pids_in, wait_until
from tests.vm.units import systemctl

pytestmark = [pytest.mark.vm, pytest.mark.reboot]

BEFORE: Final = Path("/var/lib/reboot-test.json")
"""What the first boot's test writes and the second one's finds."""
AGAIN: Final = Path("/run/vm-reboot")
"""Has scripts/vm/run reboot the machine."""
ENGINE: Final = Path("/etc/systemd/system/engine.service")
EXAMPLE: Final = Path(__file__).parents[2] / "systemd/example-pod-member.conf"


def boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text()


def engine_runs_in(cgroup: Path) -> None:
    wait_until(lambda: engine_pid() in pids_in(cgroup), "the service is in its pod's container")


def engine_pid() -> int:
    return int(systemctl("show", "--value", "--property=MainPID", ENGINE.name))


def test_a_boot_brings_back_pods_isolation_and_the_service_in_a_pod_by_itself() -> None:
    host = Installed()
    if BEFORE.exists():
        find_all_again(host, json.loads(BEFORE.read_text()))
    else:
        BEFORE.write_text(json.dumps({"boot": boot(), "held": set_up(host)}))
        AGAIN.touch()


def set_up(host: Installed) -> dict[str, object]:
    """Install, give it pods of each source, and a service that is enabled; what the pods hold."""
    host.install()
    Path("/etc/numalet/manifests/web.yaml").write_text(manifest(mixed("web")))
    api = Path("/run/api.yaml")
    api.write_text(manifest(exclusive("db"), best_effort("log")))
    host.numalet("apply", "-f", str(api))
    drop_in, replaced = re.subn(
        r"^ExecStart=/.*$",
        f"ExecStart={COMMAND} exec db main -- sleep 900",
        EXAMPLE.read_text(),
        flags=re.MULTILINE,
    )
    assert replaced == 1
    ENGINE.write_text("[Service]\nExecStart=/bin/sleep 1\n[Install]\nWantedBy=multi-user.target\n")
    directory = ENGINE.with_name("engine.service.d")
    directory.mkdir()
    (directory / "numalet.conf").write_text(drop_in)
    systemctl("daemon-reload")
    systemctl("enable", "--now", ENGINE.name)
    wait_until(lambda: "web" in host.pods(), "the manifest is followed")
    held = host.held()
    engine_runs_in(Path(held["db/main"][2]))
    return dict(held)


def find_all_again(host: Installed, before: dict[str, object]) -> None:
    """Nobody has done anything since the boot."""
    assert boot() != before["boot"]
    wait_until(lambda: host.show("ActiveState") == "active", "numalet starts with the machine")
    held = json.loads(json.dumps(host.held()))
    assert held == before["held"]
    engine_runs_in(Path(held["db/main"][2]))
    assert allowed(engine_pid()) == CpuSet.parse(held["db/main"][0])
    assert host.numalet("verify") == "the kernel has what was decided\n"
    assert json.loads(host.numalet("status", "-o", "json"))["status"]["problems"] == []
    assert host.show("StatusText") == "3 pods, 6/16 CPUs exclusive, 0 problems"
    confined = systemctl("show", "--value", "--property=AllowedCPUs", "system.slice")
    assert CpuSet.parse(",".join(confined.split())) == CpuSet.parse(held["log/main"][0])
    subprocess.run(["journalctl", "--sync"], check=True)
    log = subprocess.run(
        ["journalctl", "--boot", f"--unit={UNIT}"], capture_output=True, text=True, check=True
    )
    assert "the machine was booted since" in log.stdout
