"""`numalet check` on a real host: what is wrong is found, and gone when it is mended."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.vm.node import MOUNT, numalet, remove_cgroup, wait_until

pytestmark = [pytest.mark.vm, pytest.mark.matrix]


def check(work: Path, **config: str) -> tuple[int, dict[tuple[str, str], str]]:
    """The status, and the lines' texts by subject and level."""
    (work / "config.yaml").write_text(json.dumps({"stateDir": str(work / "state"), **config}))
    done = numalet("check", "--config", work / "config.yaml", "-o", "json")
    lines = json.loads(done.stdout)["checks"]
    return done.returncode, {(line["subject"], line["level"]): line["text"] for line in lines}


def test_this_host_is_fit(tmp_path: Path) -> None:
    status, lines = check(tmp_path)
    assert [(key, text) for key, text in lines.items() if key[1] == "fail"] == []
    assert status == 0
    assert lines["cgroups", "ok"].startswith("v2 with cpu, cpuset, hugetlb, memory, pids; ")
    assert lines["systemd", "ok"] == "runs, and its bus answers"


def test_what_is_in_the_way_is_found(tmp_path: Path) -> None:
    """A parent without the last CPUs, somebody's own cpuset, state in memory, and a program that looks like numad."""
    outer, other = MOUNT / "numalet-check", MOUNT / "numalet-other"
    numad = tmp_path / "numad"
    numad.symlink_to("/bin/sleep")
    try:
        outer.mkdir()
        other.mkdir()
        (outer / "cpuset.cpus").write_text("0-1")
        (other / "cpuset.cpus").write_text("1")
        with subprocess.Popen([numad, "60"]) as process:
            wait_until(lambda: Path(f"/proc/{process.pid}/comm").read_text() == "numad\n", "it is numad")
            status, lines = check(tmp_path, cgroupRoot=f"{outer}/numalet", stateDir="/run/numalet-check")
            process.kill()
    finally:
        remove_cgroup(outer)
        remove_cgroup(other)
    assert status == 1
    assert lines["cpuset", "fail"].startswith(f"{outer} does not let CPUs 2-")
    assert lines["other cpusets", "warning"] == f"{other} is bound to CPUs of its own: 1"
    assert lines["conflicts", "warning"].startswith(f"numad runs (pid {process.pid})")
    assert lines["state", "warning"] == "/run/numalet-check is on tmpfs, which does not survive a reboot"
