"""The Debian package on a machine that never had it: installed, run, upgraded, booted with, and purged, in this order.

`scripts/vm-lane` gives this file a machine of its own, and runs it again on that machine after the boot. What the
unit does under systemd is in test_service.py.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from agent.domain.idset import CpuSet
from tests.vm.installed import BEFORE_BOOT, COMMAND, CONFIG, ROOT, UNIT, Installed
from tests.vm.node import (
    DRIVER,
    allowed,
    best_effort,
    exclusive,
    is_command,
    manifest,
    mixed,
    pids_in,
    remove_cgroup,
    text_of,
    wait_until,
)
from tests.vm.units import systemctl

pytestmark = pytest.mark.vm
first_boot, second_boot = pytest.mark.boot(1), pytest.mark.boot(2)

AGAIN: Final = Path("/run/vm-reboot")
"""Has scripts/vm/run reboot the machine."""
ENGINE: Final = Path("/etc/systemd/system/engine.service")
EXAMPLE: Final = Path(__file__).parents[2] / "systemd/example-pod-member.conf"
ELSEWHERE = (
    "dev proc sys tmp root results opt run/log run/systemd run/udev run/user "
    "var/cache var/lib/dpkg var/log var/tmp"
)
"""Where others write meanwhile; what systemd and dpkg know of the package is asked for by name."""


def files() -> set[str]:
    """Every path of the machine that only a package would change."""
    elsewhere = {f"/{path}" for path in ELSEWHERE.split()}
    found = set()
    for directory, directories, names in os.walk("/"):
        at = directory.rstrip("/")
        directories[:] = [d for d in directories if f"{at}/{d}" not in elsewhere and d != "__pycache__"]
        found |= {f"{at}/{name}" for name in (*directories, *names)}
    return found


@pytest.fixture(scope="module")
def files_before() -> set[str]:
    """What there was before the package."""
    return set(json.loads(BEFORE_BOOT.read_text())["files"]) if BEFORE_BOOT.exists() else files()


@pytest.fixture(scope="module")
def installed(files_before: set[str]) -> Iterator[Installed]:
    assert files_before
    host = Installed()
    if not BEFORE_BOOT.exists():
        host.install()
    yield host
    host.end_processes()


@first_boot
def test_installed_it_runs_is_enabled_and_the_default_configuration_fits(installed: Installed) -> None:
    assert installed.show("ActiveState") == "active"
    assert installed.show("UnitFileState") == "enabled"
    assert installed.show("StatusText") == "0 pods, 0/16 CPUs exclusive, 0 problems"
    assert installed.numalet("--version").startswith("numalet, version ")
    installed.numalet("config", "check")
    assert installed.show("NeedDaemonReload") == "no"


@first_boot
def test_pods_come_by_command_and_by_directory_and_have_real_processes(installed: Installed) -> None:
    Path("/etc/numalet/manifests/web.yaml").write_text(manifest(mixed("web")))
    wait_until(lambda: "web" in installed.pods(), "the manifest is followed")
    pods = Path("/run/pods.yaml")
    pods.write_text(manifest(exclusive("db"), best_effort("quiet")))
    installed.numalet("apply", "-f", str(pods))
    pods.unlink()
    for pod, container in (("web", "main"), ("web", "side"), ("quiet", "main")):
        pid = installed.run(pod, container)
        cgroup = Path(installed.held()[f"{pod}/{container}"][2])
        assert str(allowed(pid)) == text_of(cgroup / "cpuset.cpus.effective")


@first_boot
def test_an_upgrade_leaves_every_process_where_it_is(installed: Installed) -> None:
    held, placed, before = installed.held(), installed.placed(), installed.show("MainPID")
    printed = installed.upgrade()
    assert re.search(r"Unpacking numalet \(.*-2\) over \(.*-1\)", printed)
    assert installed.restarted(before), "the upgrade has returned with the new daemon ready"
    assert (installed.held(), installed.placed()) == (held, placed)
    assert len(placed) == len(installed.processes)


@first_boot
def test_a_service_that_is_enabled_runs_in_a_pod(installed: Installed, files_before: set[str]) -> None:
    drop_in, replaced = re.subn(
        r"^ExecStart=/.*$",
        f"ExecStart={COMMAND} exec db main -- sleep 900",
        EXAMPLE.read_text(),
        flags=re.MULTILINE,
    )
    assert replaced == 1
    ENGINE.write_text("[Service]\nExecStart=/bin/sleep 1\n[Install]\nWantedBy=multi-user.target\n")
    drop_ins = ENGINE.with_name(f"{ENGINE.name}.d")
    drop_ins.mkdir()
    (drop_ins / "numalet.conf").write_text(drop_in)
    systemctl("enable", "--now", ENGINE.name)
    held = installed.held()
    engine_runs_in(Path(held["db/main"][2]))
    BEFORE_BOOT.write_text(json.dumps({"boot": boot(), "held": held, "files": sorted(files_before)}))
    AGAIN.touch()


def boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text()


def engine_runs_in(cgroup: Path) -> None:
    wait_until(lambda: is_command(engine_pid(), "sleep"), "the service is the command")
    assert pids_in(cgroup) == [engine_pid()]


def engine_pid() -> int:
    return int(systemctl("show", "--value", "--property=MainPID", ENGINE.name))


@second_boot
def test_a_boot_brings_back_pods_isolation_and_the_service_in_a_pod_by_itself(installed: Installed) -> None:
    before = json.loads(BEFORE_BOOT.read_text())
    assert boot() != before["boot"]
    wait_until(lambda: installed.show("ActiveState") == "active", "numalet starts with the machine")
    held = json.loads(json.dumps(installed.held()))
    assert held == before["held"]
    engine_runs_in(Path(held["db/main"][2]))
    assert allowed(engine_pid()) == CpuSet.parse(held["db/main"][0])
    assert installed.numalet("verify") == "the kernel has what was decided\n"
    assert json.loads(installed.numalet("status", "-o", "json"))["status"]["problems"] == []
    assert installed.show("StatusText") == "3 pods, 6/16 CPUs exclusive, 0 problems"
    confined = systemctl("show", "--value", "--property=AllowedCPUs", "system.slice")
    assert CpuSet.parse(",".join(confined.split())) == CpuSet.parse(held["quiet/main"][0])
    subprocess.run(["journalctl", "--sync"], check=True)
    log = subprocess.run(
        ["journalctl", "--boot", f"--unit={UNIT}"], capture_output=True, text=True, check=True
    )
    assert "the machine was booted since" in log.stdout


@second_boot
def test_removed_it_keeps_state_configuration_and_running_processes_and_says_so(installed: Installed) -> None:
    systemctl("disable", "--now", ENGINE.name)
    ENGINE.unlink()
    shutil.rmtree(ENGINE.with_name(f"{ENGINE.name}.d"))
    installed.run("web", "main")
    placed = installed.placed()
    printed = installed.dpkg("--remove", "numalet")
    assert "Processes of pods run on" in printed
    assert installed.placed() == placed != []
    assert not Path("/usr/lib/numalet").exists()
    assert Path("/var/lib/numalet/cpu_manager_state").exists()
    assert CONFIG.exists()
    assert systemctl("show", "--value", "--property=AllowedCPUs", "system.slice").strip() == ""


@second_boot
def test_purged_it_leaves_running_processes_their_cgroups_and_else_nothing(
    installed: Installed, files_before: set[str]
) -> None:
    placed = installed.placed()
    printed = installed.dpkg("--purge", "numalet")
    assert f"{installed.at('poduid-web/main')}/cgroup.procs:1" in printed
    assert installed.placed() == placed != []
    left = {path.name for path in ROOT.rglob("*") if path.is_dir()}
    assert installed.at("poduid-web").exists()
    assert not any("quiet" in name for name in left)
    if DRIVER == "systemd":
        known = systemctl("list-units", "--plain", "--no-legend", "numalet*.slice").splitlines()
        assert {line.split()[0] for line in known} == {ROOT.name} | left
    remove_cgroup(ROOT)
    assert files() - files_before == set()
    assert files_before - files() == set()
    assert installed.show("LoadState") == "not-found"
