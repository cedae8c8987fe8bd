"""The Debian package on a machine that never had it: installed, run, upgraded and purged, in this order."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.vm.installed import CONFIG, DROP_IN, ROOT, UNIT, Installed
from tests.vm.node import DRIVER, allowed, best_effort, manifest, mixed, remove_cgroup, text_of, wait_until
from tests.vm.units import systemctl

pytestmark = pytest.mark.vm

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
    return files()


@pytest.fixture(scope="module")
def installed(files_before: set[str]) -> Iterator[Installed]:
    assert files_before
    host = Installed()
    with ExitStack() as stack:
        stack.callback(host.close)
        DROP_IN.parent.mkdir(parents=True)
        DROP_IN.write_text("[Service]\nWatchdogSec=15\nTimeoutAbortSec=20\n")
        host.install()
        yield host


def test_installed_it_runs_is_enabled_and_the_default_configuration_fits(installed: Installed) -> None:
    assert installed.show("ActiveState") == "active"
    assert installed.show("UnitFileState") == "enabled"
    assert installed.show("StatusText") == "0 pods, 0/16 CPUs exclusive, 0 problems"
    assert installed.numalet("--version").startswith("numalet, version ")
    installed.numalet("config", "check")
    assert installed.show("NeedDaemonReload") == "no"


def test_pods_come_by_command_and_by_directory_and_have_real_processes(installed: Installed) -> None:
    Path("/etc/numalet/manifests/web.yaml").write_text(manifest(mixed("web")))
    wait_until(lambda: "web" in installed.pods(), "the manifest is followed")
    Path("/run/quiet.yaml").write_text(manifest(best_effort("quiet")))
    installed.numalet("apply", "-f", "/run/quiet.yaml")
    Path("/run/quiet.yaml").unlink()
    for pod, container in (("web", "main"), ("web", "side"), ("quiet", "main")):
        pid = installed.run(pod, container)
        cgroup = Path(installed.held()[f"{pod}/{container}"][2])
        assert str(allowed(pid)) == text_of(cgroup / "cpuset.cpus.effective")


def test_a_reload_an_end_by_sigkill_and_a_hang_are_nothing_to_a_pod(installed: Installed) -> None:
    held, placed, first = installed.held(), installed.placed(), installed.show("MainPID")
    before = CONFIG.read_text()
    CONFIG.write_text(before + "\npodPidsLimit: 321\n")
    systemctl("reload", UNIT)
    limit = installed.at("poduid-web") / "pids.max"
    wait_until(lambda: text_of(limit) == "321", "the limit is in the kernel")
    CONFIG.write_text(before)
    assert installed.show("MainPID") == first

    systemctl("kill", "--signal=KILL", UNIT)
    wait_until(lambda: installed.restarted(first), "systemd starts another", every=0.5)
    second = installed.show("MainPID")
    assert (installed.held(), installed.placed()) == (held, placed)

    systemctl("kill", "--signal=STOP", UNIT)
    wait_until(
        lambda: installed.restarted(second), "the watchdog finds it and systemd starts another", every=0.5
    )
    assert (installed.held(), installed.placed()) == (held, placed)


def test_an_upgrade_leaves_every_process_where_it_is(installed: Installed) -> None:
    held, placed, before = installed.held(), installed.placed(), installed.show("MainPID")
    printed = installed.upgrade()
    assert re.search(r"Unpacking numalet \(.*-2\) over \(.*-1\)", printed)
    assert installed.restarted(before), "the upgrade has returned with the new daemon ready"
    assert (installed.held(), installed.placed()) == (held, placed)
    assert len(placed) == len(installed.processes)


def test_as_after_a_boot_it_starts_with_its_state_where_no_cgroups_are(installed: Installed) -> None:
    held = installed.held()
    systemctl("stop", UNIT)
    remove_cgroup(ROOT)
    for process in installed.processes:
        process.wait()
    systemctl("start", UNIT)
    assert installed.held() == held != {}
    assert installed.show("StatusText") == "2 pods, 4/16 CPUs exclusive, 0 problems"


def test_removed_it_keeps_state_configuration_and_running_processes_and_says_so(installed: Installed) -> None:
    installed.run("web", "main")
    placed = installed.placed()
    printed = installed.dpkg("--remove", "numalet")
    assert "Processes of pods run on" in printed
    assert installed.placed() == placed != []
    assert not Path("/usr/lib/numalet").exists()
    assert Path("/var/lib/numalet/cpu_manager_state").exists()
    assert CONFIG.exists()
    assert systemctl("show", "--value", "--property=AllowedCPUs", "system.slice").strip() == ""


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
